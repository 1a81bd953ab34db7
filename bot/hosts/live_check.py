"""How a host of the inventory stands with us: reachable, known by its key, let in, answering."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial

from bot.hosts.sudo_check import SudoCheck, build_sudo_query
from bot.hosts.sudo_rules import group_grants_by_login, list_host_sudo_grants
from bot.workflow.requests import get_required_tag
from connectors.command import DeviceCommand, Query, Shell
from connectors.errors import (
    CommandError,
    HostError,
    HostKeyMismatchError,
    LoginError,
    ParseError,
    SetupError,
    UnreachableError,
    WeakAlgorithmsError,
)
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from runbooks import load_catalogue

# Hosts that are asked at once. Most of the time is waiting.
_MAX_PARALLEL_HOSTS = 32

_USER_ID_COMMAND = Shell(("id", "-u"), deadline=10)
_USER_ID_QUERY = Query(_USER_ID_COMMAND, lambda answer: _parse_user_id(answer))
# Lists what the login may do. Status 1 is "nothing, or only with a password"; 126 and 127 mean
# that there is no sudo that could be run.
_SUDO_LIST_COMMAND = Shell(("sudo", "-n", "-l"), deadline=10)
_SUDO_LIST_QUERY = Query(
    _SUDO_LIST_COMMAND,
    lambda answer: "NOPASSWD:" in answer,
    frozenset({0, 1, 126, 127}),
)
_PLATFORMS = ("cisco_ios", "dell_powerconnect", "frr")
_VERSION_QUERY = Query(
    DeviceCommand(("show version",) * len(_PLATFORMS), platforms=_PLATFORMS),
    lambda answer: bool(answer.strip()),
)
# By the kind of trouble: reachable, key, login, answers.
_RESULTS_BY_ERROR: tuple[tuple[type[HostError], tuple[bool | None, ...]], ...] = (
    (UnreachableError, (False, None, None, None)),
    (WeakAlgorithmsError, (True, None, None, None)),
    (HostKeyMismatchError, (True, False, None, None)),
    (LoginError, (True, True, False, None)),
    # Before the connection, as with our key file, or after the login: no `timeout` there.
    (SetupError, (None, None, None, None)),
    # The host failed at the command, or nobody saw its end.
    (HostError, (True, True, True, False)),
)
_NO_SUDO_MESSAGE = (
    "{whose} no sudo without a password there, so what needs root will fail: "
    "`keyturn sudoers {name}` prints the lines"
)


@dataclass(frozen=True)
class HostCheck:
    """What was found out about one host; None where it was not got that far.

    key: whether the host showed the key that the inventory knows it by. login: whether it let us
    in. answers: whether a command got its answer. root: how commands that need root would run:
    "root" is the login itself, "sudo" has rules, "none" has none, "" for a network device.
    trouble: what is so and what to do; "" if the host is well. advice: the same for what is well
    and could be better.
    """

    host: str
    address: str
    reachable: bool | None = None
    key: bool | None = None
    login: bool | None = None
    answers: bool | None = None
    root: str | None = None
    error: str = ""
    advice: str = ""

    @property
    def is_healthy(self) -> bool:
        return not self.error


def check_hosts(fleet: Fleet, names: Sequence[str]) -> Iterator[HostCheck]:
    """Ask these hosts, many at once; yield each as it is known, in no order."""
    with ThreadPoolExecutor(min(_MAX_PARALLEL_HOSTS, len(names) or 1)) as pool:
        for known in as_completed([pool.submit(check_host, fleet, name) for name in names]):
            yield known.result()


def check_host(fleet: Fleet, name: str) -> HostCheck:
    """Ask one host. Raises UnknownHostError for one that the inventory does not have."""
    host = fleet.inventory[name]
    found = partial(HostCheck, name, _format_address(host))
    try:
        root = _detect_root_access(fleet, host)
        rights = _check_sudo_rules(fleet, host) if root == "sudo" else SudoCheck()
    except HostError as trouble:
        blocked = _find_blocked_jump_host(fleet, host) if host.jump else ""
        return _build_failed_check(trouble, blocked, found)
    needed = _list_runbooks_for_host(host)
    trouble, advice = (
        "; ".join(rights.list_problems(name, needed)),
        rights.describe_unneeded_programs(needed),
    )
    if root == "none":
        users = dict.fromkeys((host.for_reading.user, host.user))
        whose = " or ".join(users) + " has" if len(users) > 1 else f"the login {host.user} has"
        trouble = _NO_SUDO_MESSAGE.format(whose=whose, name=name)
    met = partial(found, reachable=True, key=True, login=True, answers=True, root=root)
    return met(error=trouble, advice=advice)


def _check_sudo_rules(fleet: Fleet, host: Host) -> SudoCheck:
    """Try each rule with the login that it is for."""
    missing = SudoCheck()
    for user, granted in group_grants_by_login(host, list_host_sudo_grants(host)).items():
        asked = build_sudo_query(granted, host.settings)
        if user == host.for_reading.user:
            missing = missing.merge_with(fleet.run_query(host.name, asked))
        elif isinstance(asked.command, Shell):
            told = fleet.run_command(host.name, asked.command)
            missing = missing.merge_with(asked.parse(told.out))
    return missing


def _list_runbooks_for_host(host: Host) -> list[str]:
    """Return the runbooks that the host's tags say are meant for it."""
    return [
        words for words, each in load_catalogue().items() if get_required_tag(each) in host.tags
    ]


def _detect_root_access(fleet: Fleet, host: Host) -> str:
    """Return how commands for root would run; of two logins, both are tried."""
    if host.platform != "linux":
        fleet.run_query(host.name, _VERSION_QUERY)
        return ""
    reads = (
        "root"
        if fleet.run_query(host.name, _USER_ID_QUERY) == 0
        else _get_sudo_access(fleet.run_query(host.name, _SUDO_LIST_QUERY))
    )
    if host.reader is None or not host.changes:
        return reads
    if _USER_ID_QUERY.parse(fleet.run_command(host.name, _USER_ID_COMMAND).out) == 0:
        return "root"
    try:
        changes = _get_sudo_access(
            _SUDO_LIST_QUERY.parse(fleet.run_command(host.name, _SUDO_LIST_COMMAND).out)
        )
    except CommandError:
        changes = "none"
    return "none" if reads == "none" else changes


def _get_sudo_access(has_rules: bool) -> str:  # noqa: FBT001 - it is what was asked
    return "sudo" if has_rules else "none"


def _find_blocked_jump_host(fleet: Fleet, host: Host) -> str:
    """Return the jump host that does not let us through, or "" if each does."""
    for jump in _list_jump_hosts(fleet.inventory, host):
        try:
            fleet.run_query(jump.name, _USER_ID_QUERY)
        except (
            UnreachableError,
            HostKeyMismatchError,
            LoginError,
            WeakAlgorithmsError,
            SetupError,
        ):
            return jump.name
        except HostError:
            continue  # it takes no commands, and need not: it is asked to pass on
    return ""


def _list_jump_hosts(inventory: Inventory, host: Host) -> list[Host]:
    if host.jump is None:
        return []
    jump = inventory[host.jump]
    return [*_list_jump_hosts(inventory, jump), jump]


def _build_failed_check(
    error: HostError, blocked_jump_host: str, build_check: Callable[..., HostCheck]
) -> HostCheck:
    if blocked_jump_host:
        return build_check(reachable=False, error=str(error))
    claims = next(claims for kind, claims in _RESULTS_BY_ERROR if isinstance(error, kind))
    reachable, key, login, answers = claims
    return build_check(
        reachable=reachable, key=key, login=login, answers=answers, error=str(error)
    )


def _format_address(host: Host) -> str:
    return (
        f"[{host.address}]:{host.port}" if ":" in host.address else f"{host.address}:{host.port}"
    )


def _parse_user_id(answer: str) -> int:
    if not answer.strip().isdecimal():
        raise ParseError(f"`id -u` answered {answer[:80]!r}: does its login shell add words?")
    return int(answer)

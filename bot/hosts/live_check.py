"""Check the hosts of the inventory: reachable, host key, login, command, sudo, tags, BMC."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial

from bot.hosts.contact import build_contact_query
from bot.hosts.sudo_check import SudoCheck, build_sudo_query
from bot.hosts.sudo_rules import group_grants_by_login, list_host_sudo_grants
from bot.hosts.tag_check import list_tag_problems, list_verifying_checks
from bot.model.request_form import get_required_tag
from connectors.command import Query, Shell
from connectors.errors import (
    CommandError,
    HostError,
    HostKeyMismatchError,
    LoginError,
    NoCommandsError,
    ParseError,
    SetupError,
    UnreachableError,
    WeakAlgorithmsError,
)
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from runbooks import Refused, load_catalogue
from runbooks._bmc import read_machine
from runbooks.bmc_show import ShowBmc

# How many hosts are checked in parallel. Most of the time is waiting.
_MAX_PARALLEL_HOSTS = 32

_BMC_TAG = get_required_tag(ShowBmc)
_USER_ID_COMMAND = Shell(("id", "-u"), deadline=10)
_USER_ID_QUERY = Query(_USER_ID_COMMAND, lambda answer: _parse_user_id(answer))
# Lists the rights of the login. Status 1 means none, or only with a password; 126 and 127 mean
# that sudo is missing.
_SUDO_LIST_COMMAND = Shell(("sudo", "-n", "-l"), deadline=10)
_SUDO_LIST_QUERY = Query(
    _SUDO_LIST_COMMAND,
    lambda answer: "NOPASSWD:" in answer,
    frozenset({0, 1, 126, 127}),
)
# Reachable, host key, login and command, by the class of the error.
_RESULTS_BY_ERROR: tuple[tuple[type[HostError], tuple[bool | None, ...]], ...] = (
    (UnreachableError, (False, None, None, None)),
    (WeakAlgorithmsError, (True, None, None, None)),
    (HostKeyMismatchError, (True, False, None, None)),
    (NoCommandsError, (True, True, True, False)),
    (LoginError, (True, True, False, None)),
    # Before the connection, such as a missing key file, or after the login: `timeout` is missing.
    (SetupError, (None, None, None, None)),
    # The command failed, or its outcome is unknown.
    (HostError, (True, True, True, False)),
)
_NO_SUDO_MESSAGE = (
    "{whose} no sudo rights without a password, so commands that need root will fail: "
    "`keyturn sudoers {name}` prints the lines to install"
)
_FORWARDS_ONLY = (
    "its login runs no commands, which is enough to reach other hosts through it: no runbook "
    "works on it itself"
)


@dataclass(frozen=True)
class HostCheck:
    """The result for one host; None for what the check did not reach."""

    host: str
    address: str
    reachable: bool | None = None
    key: bool | None = None
    """Whether the host presented the key in the inventory."""
    login: bool | None = None
    """Whether the login succeeded."""
    answers: bool | None = None
    """Whether a command returned its output."""
    root: str | None = None
    """How commands that need root would run: `root` by the login itself, `sudo` by sudo rules,
    `none` not at all; "" for a network device."""
    error: str = ""
    """What is wrong and what to do; "" for a healthy host."""
    advice: str = ""
    """What could be better and what to do."""

    @property
    def is_healthy(self) -> bool:
        return not self.error


def check_hosts(fleet: Fleet, names: Sequence[str]) -> Iterator[HostCheck]:
    """Check hosts in parallel; yield each result when it is complete, in no order."""
    with ThreadPoolExecutor(min(_MAX_PARALLEL_HOSTS, len(names) or 1)) as pool:
        for known in as_completed([pool.submit(check_host, fleet, name) for name in names]):
            yield known.result()


def check_host(fleet: Fleet, name: str) -> HostCheck:
    """Check one host and its BMC. Raises UnknownHostError if it is not in the inventory."""
    host = fleet.inventory[name]
    check = _check_login(fleet, host)
    return _check_bmc(fleet, host, check) if host.bmc or _BMC_TAG in host.tags else check


def _check_bmc(fleet: Fleet, host: Host, check: HostCheck) -> HostCheck:
    """Return the check with what is wrong with the BMC, or the power of an unreachable server."""
    try:
        machine = read_machine(fleet.run_query, host.name)
    except (HostError, Refused) as error:
        found = f"its BMC: {error}"
    else:
        found = "" if check.reachable else f"its BMC reports the server's power as {machine.power}"
    return replace(check, error="; ".join(filter(None, (check.error, found))))


def _check_login(fleet: Fleet, host: Host) -> HostCheck:
    name, build_check = host.name, partial(HostCheck, host.name, _format_address(host))
    try:
        root = _detect_root_access(fleet, host)
        rights = _check_sudo_rules(fleet, host) if root == "sudo" else SudoCheck()
    except HostError as error:
        blocked = _find_blocked_jump_host(fleet, host) if host.jump else ""
        check = _build_failed_check(error, blocked, build_check)
        is_enough = isinstance(error, NoCommandsError) and _only_forwards(fleet.inventory, host)
        return replace(check, error="", advice=_FORWARDS_ONLY) if is_enough else check
    needed = _list_runbooks_for_host(host)
    if root == "none":
        users = dict.fromkeys((host.for_reading.user, host.user))
        whose = " or ".join(users) + " has" if len(users) > 1 else f"the login {host.user} has"
        problems = [_NO_SUDO_MESSAGE.format(whose=whose, name=name)]
    else:
        problems = [*rights.list_problems(name, needed), *list_tag_problems(fleet, host)]
    return build_check(
        reachable=True,
        key=True,
        login=True,
        answers=True,
        root=root,
        error="; ".join(problems),
        advice=rights.describe_unneeded_programs(needed),
    )


def _check_sudo_rules(fleet: Fleet, host: Host) -> SudoCheck:
    """Test each sudo rule with its login."""
    missing = SudoCheck()
    for user, granted in group_grants_by_login(host, list_host_sudo_grants(host)).items():
        query = build_sudo_query(granted, host.settings)
        if user == host.for_reading.user:
            missing = missing.merge_with(fleet.run_query(host.name, query))
        elif isinstance(query.command, Shell):
            result = fleet.run_command(host.name, query.command)
            missing = missing.merge_with(query.parse(result.out))
    return missing


def _list_runbooks_for_host(host: Host) -> list[str]:
    """Return the runbooks for the tags of the host, without those that verify the tags.

    These are run, so they report themselves what they lack: `vpn check` needs only one of the
    programs that it knows.
    """
    verifying = list_verifying_checks(host)
    return [
        words
        for words, each in load_catalogue().items()
        if get_required_tag(each) in host.tags and words not in verifying
    ]


def _detect_root_access(fleet: Fleet, host: Host) -> str:
    """Return how commands that need root would run, with both logins if there are two."""
    if host.platform != "linux" or host.msa is not None or host.snmp is not None:
        fleet.run_query(host.name, build_contact_query(host))
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


def _get_sudo_access(has_rules: bool) -> str:  # noqa: FBT001 - the result of the query
    return "sudo" if has_rules else "none"


def _find_blocked_jump_host(fleet: Fleet, host: Host) -> str:
    """Return the first jump host that refuses the connection, or ""."""
    for jump in _list_jump_hosts(fleet.inventory, host):
        try:
            fleet.run_query(jump.name, _USER_ID_QUERY)
        except NoCommandsError:
            continue  # a jump host needs to forward connections only, not to run commands
        except (
            UnreachableError,
            HostKeyMismatchError,
            LoginError,
            WeakAlgorithmsError,
            SetupError,
        ):
            return jump.name
        except HostError:
            continue
    return ""


def _list_jump_hosts(inventory: Inventory, host: Host) -> list[Host]:
    if host.jump is None:
        return []
    jump = inventory[host.jump]
    return [*_list_jump_hosts(inventory, jump), jump]


def _only_forwards(inventory: Inventory, host: Host) -> bool:
    """Return whether other hosts are reached through a host that has no tag of a runbook."""
    is_jump = any(other.jump == host.name for other in inventory.hosts.values())
    return is_jump and not _list_runbooks_for_host(host)


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
        raise ParseError(
            f"`id -u` returned {answer[:80]!r}: check whether the login shell prints extra text"
        )
    return int(answer)

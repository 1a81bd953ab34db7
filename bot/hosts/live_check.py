"""Check the hosts of the inventory: reachable, host key, login, command, sudo, tags, BMC."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from bot.hosts.sudo_check import SudoCheck, build_sudo_query
from bot.hosts.sudo_rules import (
    group_grants_by_login,
    list_host_sudo_grants,
    select_host_runbooks,
)
from bot.model.request_form import (
    get_field_texts,
    get_required_tag,
    parse_request,
    split_words,
)
from connectors import msa
from connectors.command import DeviceCommand, Query, Shell, SnmpWalk
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
from connectors.inventory import Host, Inventory, Platform
from connectors.run_signed import query_enrolment
from connectors.signed_files import query_file, read_files
from runbooks import AnyRunbook, Check, Refused, load_usable_catalogue, read_report
from runbooks._bmc import read_machine
from runbooks.bmc_boot_once import SetBootOnce

# How many hosts are checked in parallel. Most of the time is waiting.
_MAX_PARALLEL_HOSTS = 32

_BMC_TAG = get_required_tag(SetBootOnce)
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
_DEVICES = tuple(each for each in get_args(Platform) if each not in {"linux", "snmp", "hp_msa"})
_VERSION_QUERY = Query(
    DeviceCommand(("show version",) * len(_DEVICES), platforms=_DEVICES),
    lambda answer: bool(answer.strip()),
)
# sysDescr of SNMPv2-MIB (RFC 3418).
_DESCRIPTION_QUERY = Query(SnmpWalk(("1.3.6.1.2.1.1.1",)), lambda answer: bool(answer.strip()))
# Over a connection of its own: one that was opened earlier outlives the host for a while.
_LOGIN_QUERY = Query(Shell(("true",), deadline=10, new_connection=True), lambda _answer: True)
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


Runbooks = Mapping[str, type[AnyRunbook]]
"""Runbooks by their words: hosts are checked for what these need."""


def check_hosts(fleet: Fleet, names: Sequence[str], runbooks: Runbooks) -> Iterator[HostCheck]:
    """Check hosts in parallel; yield each result when it is complete, in no order."""
    with ThreadPoolExecutor(min(_MAX_PARALLEL_HOSTS, len(names) or 1)) as pool:
        checks = [pool.submit(check_host, fleet, name, runbooks) for name in names]
        for known in as_completed(checks):
            yield known.result()


def check_host(fleet: Fleet, name: str, runbooks: Runbooks | None = None) -> HostCheck:
    """Check one host and its BMC, for all usable runbooks by default.

    Raises UnknownHostError if it is not in the inventory.
    """
    host = fleet.inventory[name]
    usable = load_usable_catalogue()[0] if runbooks is None else runbooks
    check = _check_login(fleet, host, select_host_runbooks(host, usable))
    return _check_bmc(fleet, host, check) if host.bmc or _BMC_TAG in host.tags else check


def build_contact_query(host: Host) -> Query[Any]:
    """Return a query that any host of this platform answers, to show that it answers now."""
    if host.msa is not None:
        return msa.query("system")
    if host.snmp is not None:
        return _DESCRIPTION_QUERY
    return _LOGIN_QUERY if host.platform == "linux" else _VERSION_QUERY


def _check_bmc(fleet: Fleet, host: Host, check: HostCheck) -> HostCheck:
    """Return the check with what is wrong with the BMC, or the power of an unreachable server."""
    try:
        machine = read_machine(fleet.run_query, host.name)
    except (HostError, Refused) as error:
        found = f"its BMC: {error}"
    else:
        found = "" if check.reachable else f"its BMC reports the server's power as {machine.power}"
    return replace(check, error="; ".join(filter(None, (check.error, found))))


def _check_login(fleet: Fleet, host: Host, runbooks: Runbooks) -> HostCheck:
    needed = _list_needed_runbooks(runbooks)
    name, build_check = host.name, partial(HostCheck, host.name, _format_address(host))
    try:
        root = _detect_root_access(fleet, host)
        rights = _check_sudo_rules(fleet, host, runbooks) if root == "sudo" else SudoCheck()
    except HostError as error:
        blocked = _find_blocked_jump_host(fleet, host) if host.jump else ""
        check = _build_failed_check(error, blocked, build_check)
        only_forwards = not needed and _is_jump_host(fleet.inventory, host)
        is_enough = isinstance(error, NoCommandsError) and only_forwards
        return replace(check, error="", advice=_FORWARDS_ONLY) if is_enough else check
    if root == "none":
        users = dict.fromkeys((host.for_reading.user, host.user))
        whose = " or ".join(users) + " has" if len(users) > 1 else f"the login {host.user} has"
        problems = [_NO_SUDO_MESSAGE.format(whose=whose, name=name)]
    else:
        problems = [*rights.list_problems(name, needed), *list_tag_problems(fleet, host, runbooks)]
        problems += _list_enrolment_problems(fleet, host)
    return build_check(
        reachable=True,
        key=True,
        login=True,
        answers=True,
        root=root,
        error="; ".join(problems),
        advice=rights.describe_unneeded_programs(needed),
    )


def _list_enrolment_problems(fleet: Fleet, host: Host) -> list[str]:
    """Return what a host that should check signatures lacks, and what to do."""
    if not host.signed:
        return []
    try:
        found = fleet.run_query(host.name, query_enrolment())
        if not found:
            return [*filter(None, [describe_signers(fleet, host), describe_floor(fleet, host)])]
    except HostError as error:
        found = [f"whether it is enrolled is not known: {error}"]
    fix = f"root installs what `keyturn host-files {host.name}` prints"
    return [f"{problem}; {fix}" for problem in found]


def describe_signers(fleet: Fleet, host: Host) -> str:
    """Return how the signers of an enrolled host differ from the policy; "" if they do not."""
    state = read_files(fleet.run_query, host.name)
    if not (state.surplus or state.missing):
        return ""
    surplus, missing = "; ".join(state.surplus) or "nothing", "; ".join(state.missing) or "nothing"
    return (
        f"its signers are not those of the policy. Only the host says: {surplus}. Only the policy "
        f"says: {missing}. Request `signers update {host.name}`"
    )


def describe_floor(fleet: Fleet, host: Host) -> str:
    """Return which commands an enrolled host does not run unsigned; "" if it runs all."""
    floor = fleet.run_query(host.name, query_file("/etc/keyturn/floor")) if host.unsigned else ""
    missing = [one for one in host.unsigned if f"unsigned {one}" not in floor.splitlines()]
    return (
        f"its floor does not let it run without signatures: {'; '.join(missing)}. Root adds the "
        f"line `unsigned {missing[0]}` to /etc/keyturn/floor"
        if missing
        else ""
    )


def _check_sudo_rules(fleet: Fleet, host: Host, runbooks: Runbooks) -> SudoCheck:
    """Test each sudo rule with its login."""
    missing = SudoCheck()
    grants = list_host_sudo_grants(host, runbooks)
    for user, granted in group_grants_by_login(host, grants).items():
        query = build_sudo_query(granted, host.settings)
        if user == host.for_reading.user:
            missing = missing.merge_with(fleet.run_query(host.name, query))
        elif isinstance(query.command, Shell):
            result = fleet.run_command(host.name, query.command)
            missing = missing.merge_with(query.parse(result.out))
    return missing


def _list_needed_runbooks(runbooks: Runbooks) -> list[str]:
    """Return which runbooks of a host are for its tags, without those that verify the tags.

    These are run, so they report themselves what they lack: `vpn check` needs only one of the
    programs that it knows.
    """
    verifying = list_verifying_checks(runbooks)
    return [
        words
        for words, each in runbooks.items()
        if get_required_tag(each) is not None and words not in verifying
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


def _is_jump_host(inventory: Inventory, host: Host) -> bool:
    """Return whether other hosts are reached through a host."""
    return any(other.jump == host.name for other in inventory.hosts.values())


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


def list_verifying_checks(
    runbooks: Mapping[str, type[AnyRunbook]],
) -> Mapping[str, type[Check[Any]]]:
    """Return those of the runbooks of a host that verify its tags, by their words."""
    return {
        words: runbook
        for words, runbook in runbooks.items()
        if issubclass(runbook, Check) and runbook.verifies_tag
    }


def list_tag_problems(
    fleet: Fleet, host: Host, runbooks: Mapping[str, type[AnyRunbook]]
) -> Iterator[str]:
    """Yield what the tags of a host promise and the host lacks, with what to do."""
    for words, runbook in list_verifying_checks(runbooks).items():
        if missing := _find_missing(fleet, _build_request(runbook, host.name)):
            yield f"it is tagged {get_required_tag(runbook)}, but `{words}` {missing}"


def _build_request(runbook: type[Check[Any]], host: str) -> Check[Any]:
    """Return a request for a host, with the values of the example in other required fields."""
    example = get_field_texts(parse_request(runbook, split_words(runbook.example)))
    required = [name for name, field in runbook.model_fields.items() if field.is_required()]
    return runbook.model_validate({**{name: example[name] for name in required}, "host": host})


def _find_missing(fleet: Fleet, check: Check[Any]) -> str:
    """Return why a check cannot be read or finds nothing; "" for what it finds, also problems."""
    try:
        report = read_report(check, fleet.run_query, check.report)
    except (HostError, Refused) as error:
        return f"fails: {error}"
    if report.healthy or report.table is not None:
        return ""
    return f"finds nothing: {report.findings[0]}"

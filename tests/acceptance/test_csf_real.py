"""The csf runbooks on a host with real iptables and a real sshd.

Only csf itself is stood in for. The feed comes over TLS from a server on this machine.
"""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from itertools import count
from pathlib import Path

import pytest

from connectors import csf, csf_list
from connectors.command import Query, Shell
from connectors.errors import CommandError, HostError, UnreachableError
from connectors.fleet import Fleet
from connectors.https import Fetcher
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import SshLimits
from runbooks import NoUndo, Plan, Refused
from runbooks.csf_allow import AllowAddress
from runbooks.csf_deny import DenyAddress
from runbooks.csf_pingdom_refresh import RefreshPingdom
from runbooks.csf_pingdom_show import ShowPingdom
from runbooks.csf_unblock import UnblockAddress
from tests.acceptance.direct_execution import execute_plan, make_plan, undo_plan
from tests.pingdom_feeds import BAD_FEEDS, FOURS, ODD_ITEMS, SIXES, build_feed
from tests.plans import list_work
from tests.playground.csf import ALLOW, CsfHost, explain_missing_support
from tests.playground.daemon import PATH
from tests.playground.fixed_response_server import FixedResponseServer, build_response
from tests.playground.probation import Probations, wait_until

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"no firewall can be had here: {_MISSING}"),
]

REFRESH = RefreshPingdom.model_validate({"host": "web1"})
SHOW = ShowPingdom.model_validate({"host": "web1"})
ALL = {*FOURS, *SIXES}
HELLO = Query(Shell(("echo", "hello")), str.strip)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[FixedResponseServer]:
    with FixedResponseServer(tmp_path) as mirror:
        mirror.replies["/feed"] = build_response(build_feed().encode())
        yield mirror


@pytest.fixture
def web1() -> Iterator[CsfHost]:
    with CsfHost() as host:
        host.restart()
        yield host


def fleet_of(host: CsfHost, mirror: FixedResponseServer) -> Fleet:
    settings = {
        "pingdom.feed": mirror.url("/feed"),
        "pingdom.feed_networks": "127.0.0.0/8,::1/128",
        "pingdom.feed_authority": mirror.authority.name,
        **host.settings,
    }
    entry = host.inventory_entry(area="infra", tags=["csf"], settings=settings)
    files = mirror.authority.parent
    return Fleet(
        Inventory.model_validate({"hosts": {"web1": entry}}),
        SshPool(files, limits=SshLimits(connect=0.5), fetcher=Fetcher(files, cache_seconds=0)),
    )


@pytest.fixture
def fleet(web1: CsfHost, mirror: FixedResponseServer) -> Iterator[Fleet]:
    with closing(fleet_of(web1, mirror)) as fleet:
        yield fleet


def list_kernel_allow_rules(host: CsfHost) -> set[str]:
    """Return whom the kernel lets in, in its own words."""
    printed = "".join(
        host.inside(*words)
        for words in (
            ("iptables", "-S", "ALLOWIN"),
            ("ip6tables", "-S", "ALLOWIN"),
            ("ipset", "save"),
        )
    )
    rules = re.findall(r"-A ALLOWIN -s (\S+)/(?:32|128) ! -i lo -j ACCEPT", printed)
    return {*rules, *re.findall(r"add chain_\w+ (\S+)", printed)} - {"198.51.100.7"}


def is_port_reachable(host: CsfHost) -> bool:
    try:
        socket.create_connection((host.address, host.port), timeout=0.3).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("sets", ["0", "1"], ids=["rules", "sets"])
def test_csf_refresh_allows_the_pingdom_probes_until_the_undo(
    web1: CsfHost, fleet: Fleet, mirror: FixedResponseServer, sets: str
):
    web1.configure(LF_IPSET=sets)
    web1.restart()
    assert not SHOW.report(SHOW.read(fleet.run_query)).healthy
    plan = execute_plan(fleet, REFRESH)
    assert list_kernel_allow_rules(web1) == ALL
    assert len(web1.own.read_text().splitlines()) == len(ALL) + 1
    assert (web1.etc / "csf.allow").read_text() == f"{ALLOW}Include {web1.own}\n"
    assert SHOW.report(SHOW.read(fleet.run_query)).healthy
    undo_plan(fleet, REFRESH, plan)
    assert list_kernel_allow_rules(web1) == set()
    assert web1.own.read_text() == ""


def test_csf_refresh_applies_only_the_changes_of_the_pingdom_feed(
    web1: CsfHost, fleet: Fleet, mirror: FixedResponseServer
):
    execute_plan(fleet, REFRESH)
    kept = web1.own.read_text()
    mirror.replies["/feed"] = build_response(build_feed((*FOURS[3:], "5.172.9.9")).encode())
    plan = execute_plan(fleet, REFRESH)
    assert plan.notes[:2] == ["Adds 1: 5.172.9.9.", f"Removes 3: {', '.join(FOURS[:3])}."]
    assert list_kernel_allow_rules(web1) == (ALL | {"5.172.9.9"}) - set(FOURS[:3])
    undo_plan(fleet, REFRESH, plan)
    assert web1.own.read_text() == kept


def test_csf_refresh_without_changes_writes_nothing(web1: CsfHost, fleet: Fleet):
    execute_plan(fleet, REFRESH)
    before = (web1.own.stat(), web1.restarts)
    plan = REFRESH.plan(REFRESH.read(fleet.run_query))
    assert plan == Plan("web1 allows all 140 addresses of Pingdom's probes")
    assert (web1.own.stat(), web1.restarts) == before


def test_flushed_csf_firewall_is_off_and_starts_only_with_start_firewall(
    web1: CsfHost, fleet: Fleet
):
    execute_plan(fleet, REFRESH)
    for table in ("iptables", "ip6tables"):
        for words in (("-P", "INPUT", "ACCEPT"), ("-F",), ("-X",)):
            web1.inside(table, *words)
    before = web1.restarts
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "The firewall of web1 is off: csf's rules are not loaded"
    with pytest.raises(Refused, match="start=firewall"):
        REFRESH.plan(REFRESH.read(fleet.run_query))
    assert web1.restarts == before
    plan = execute_plan(
        fleet, RefreshPingdom.model_validate({"host": "web1", "start": "firewall"})
    )
    assert plan.steps[1].title == "Replace Keyturn's list and turn the firewall on"
    assert list_kernel_allow_rules(web1) == ALL
    assert "-j LOCALINPUT" in web1.inside("iptables", "-S", "INPUT")
    assert SHOW.report(SHOW.read(fleet.run_query)).healthy


def test_csf_refresh_restores_flushed_allow_rules(web1: CsfHost, fleet: Fleet):
    execute_plan(fleet, REFRESH)
    web1.inside("iptables", "-F", "ALLOWIN")
    assert "40 of 140" in SHOW.report(SHOW.read(fleet.run_query)).summary
    plan = execute_plan(fleet, REFRESH)
    assert (
        plan.current_state == "The list is current, but 100 of its 140 addresses are not in force"
    )
    assert list_kernel_allow_rules(web1) == ALL


def test_invalid_pingdom_feeds_change_nothing_on_the_host(
    web1: CsfHost, fleet: Fleet, mirror: FixedResponseServer
):
    execute_plan(fleet, REFRESH)
    before = (web1.own.stat(), web1.own.read_text(), web1.restarts, list_kernel_allow_rules(web1))
    bad = [
        *(build_response(text.encode()) for text in BAD_FEEDS.values()),
        build_response(build_feed().encode(), status="500 Internal Server Error"),
        build_response(build_feed().encode(), kind="text/html"),
        build_response(build_feed().encode(), headers={"Content-Encoding": "gzip"}),
        build_response(build_feed().encode(), headers={"Content-Length": "999999"}),
        build_response(build_feed(FOURS[:79]).encode()),
        build_response(build_feed((*FOURS, *(f"5.173.1.{n}" for n in range(1, 52)))).encode()),
        build_response(b"\xef\xbb\xbf" + build_feed().encode("utf-16")),
        b"",
    ]
    assert len(bad) >= 40
    for document in bad:
        mirror.replies["/feed"] = document
        with pytest.raises((HostError, Refused)):
            REFRESH.plan(REFRESH.read(fleet.run_query))
    assert (
        web1.own.stat(),
        web1.own.read_text(),
        web1.restarts,
        list_kernel_allow_rules(web1),
    ) == before


def test_pingdom_feed_with_one_odd_item_changes_nothing_and_notes_it(
    web1: CsfHost, fleet: Fleet, mirror: FixedResponseServer
):
    execute_plan(fleet, REFRESH)
    # tests/connectors/test_pingdom.py reads every kind of odd item.
    for odd in list(ODD_ITEMS.values())[::8]:
        mirror.replies["/feed"] = build_response(build_feed(FOURS, SIXES, odd).encode())
        plan = REFRESH.plan(REFRESH.read(fleet.run_query))
        assert not plan.steps
        assert [note for note in plan.notes if "Skipped in Pingdom's feed: probe 101" in note]
    assert list_kernel_allow_rules(web1) == ALL


def run_steps(fleet: Fleet, plan: Plan, *numbers: int) -> None:
    for n in numbers:
        fleet.run_command("web1", plan.steps[n - 1].do)


def test_csf_change_that_locks_keyturn_out_is_restored_by_the_host(web1: CsfHost, fleet: Fleet):
    """Somebody has taken port 22 out of csf.conf and not restarted csf: loading our list does."""
    web1.configure(TCP_IN="80,443")
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    assert not is_port_reachable(web1)
    assert fleet.run_query("web1", HELLO) == "hello", (
        "the warm connection would have noticed nothing"
    )
    with pytest.raises(UnreachableError):
        run_steps(fleet, plan, 3)
    web1.probations.let_time_run_out("csf")
    assert is_port_reachable(web1)
    assert web1.own.read_text() == ""
    assert not web1.probations.is_armed("csf")
    assert list(web1.probations.hooks.iterdir()) == []
    assert list_work(make_plan(fleet, REFRESH)) == list_work(plan)


def test_without_a_new_connection_a_locking_csf_change_is_kept(web1: CsfHost, fleet: Fleet):
    web1.configure(TCP_IN="80,443")
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    process, keep = web1.probations.get_timer("csf"), plan.steps[2].do
    assert isinstance(keep, Shell)
    fleet.run_command("web1", replace(keep, new_connection=False))
    wait_until(lambda: not Path(f"/proc/{process}").exists())
    assert not is_port_reachable(web1)


def _entries(host: CsfHost) -> list[str]:
    rules = host.inside("iptables", "-S", "ALLOWIN") + host.inside("iptables", "-S", "DENYIN")
    return [
        *re.findall(r"-s 203.0.113.9/32 ! -i lo -j (\w+)", rules),
        *(f.suffix for f in host.etc.glob("csf.*") if "\n203.0.113.9 " in f.read_text()),
    ]


def test_address_is_denied_unblocked_and_allowed_in_csf_each_with_an_undo(
    web1: CsfHost, fleet: Fleet
):
    values = {"host": "web1", "address": "203.0.113.9"}
    deny, allow = DenyAddress.model_validate(values), AllowAddress.model_validate(values)
    undo_plan(fleet, allow, execute_plan(fleet, allow))
    assert _entries(web1) == []
    execute_plan(fleet, deny)
    assert _entries(web1) == ["DROP", ".deny"]
    with pytest.raises(Refused, match="request csf unblock first"):
        make_plan(fleet, allow)
    unblock = UnblockAddress.model_validate(values)
    plan = execute_plan(fleet, unblock)
    assert _entries(web1) == []
    undo_plan(fleet, unblock, plan)
    assert _entries(web1) == ["DROP", ".deny"]
    own = DenyAddress.model_validate(
        {"host": "web1", "address": web1.inside("hostname", "-I").split()[0]}
    )
    with pytest.raises(Refused, match="of this host itself"):
        make_plan(fleet, own)


def test_unconfirmed_csf_denial_is_restored_and_other_entries_stay(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, DenyAddress.model_validate({"host": "web1", "address": "203.0.113.9"}))
    for step in plan.steps[:2]:
        fleet.run_command("web1", fleet.resolve_command("web1", step.do))
    with (web1.etc / "csf.deny").open("a") as file:
        file.write("203.0.113.77 # lfd: meanwhile\n")
    assert _entries(web1) == ["DROP", ".deny"]
    web1.probations.let_time_run_out("csf")
    assert _entries(web1) == []
    assert "203.0.113.77 # lfd: meanwhile" in (web1.etc / "csf.deny").read_text()


def test_confirmed_csf_list_outlasts_its_probation(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    process = web1.probations.get_timer("csf")
    run_steps(fleet, plan, 3)
    wait_until(lambda: not Path(f"/proc/{process}").exists())
    assert list_kernel_allow_rules(web1) == ALL
    assert web1.restarts == 2


def test_csf_list_confirmed_too_late_is_restored_and_reported(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    web1.probations.let_time_run_out("csf")
    for step in (3, 2):
        with pytest.raises(CommandError, match="has restored what was"):
            run_steps(fleet, plan, step)
    assert list_kernel_allow_rules(web1) == set()
    assert web1.own.read_text() == ""


def test_csf_probation_timer_restores_the_list(mirror: FixedResponseServer):
    with CsfHost(probation=1) as host, closing(fleet_of(host, mirror)) as fleet:
        host.restart()
        run_steps(fleet, make_plan(fleet, REFRESH), 1)
        wait_until(lambda: host.restarts == 2 and not host.probations.is_armed("csf"))


def test_csf_change_is_refused_while_another_is_on_probation(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    with pytest.raises(CommandError, match="on probation already"):
        run_steps(fleet, plan, 1)
    run_steps(fleet, plan, 3)
    assert not REFRESH.plan(REFRESH.read(fleet.run_query)).steps


def test_csf_boot_hook_restores_the_list_after_a_reboot(web1: CsfHost, fleet: Fleet):
    run_steps(fleet, make_plan(fleet, REFRESH), 1, 2)
    os.kill(web1.probations.get_timer("csf"), signal.SIGKILL)
    web1.probations.set_end("csf", 10**9, boot="of-before")
    (hook,) = web1.probations.hooks.iterdir()
    when, user, *command = hook.read_text().split()
    assert (when, user) == ("@reboot", "root")
    web1.inside(*command)
    assert list_kernel_allow_rules(web1) == set()
    assert web1.own.read_text() == ""
    assert not web1.probations.is_armed("csf")
    assert not hook.exists()


def test_half_finished_csf_refresh_can_be_undone(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1, 2)
    for step in reversed(plan.steps[:2]):
        assert not isinstance(step.undo, NoUndo)
        fleet.run_command("web1", step.undo)
    assert list_kernel_allow_rules(web1) == set()
    assert list_work(make_plan(fleet, REFRESH)) == list_work(plan)


def test_truncated_csf_list_is_not_loaded(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1)
    load = plan.steps[1].do
    assert isinstance(load, Shell)
    with pytest.raises(CommandError, match="the list differs from the approved one"):
        fleet.run_command("web1", replace(load, stdin=load.stdin[:300]))
    assert web1.own.read_text() == ""
    assert web1.restarts == 1


def test_csf_disabled_during_the_run_fails_the_step(web1: CsfHost, fleet: Fleet):
    plan = make_plan(fleet, REFRESH)
    run_steps(fleet, plan, 1)
    (web1.etc / "csf.disable").touch()
    with pytest.raises(CommandError, match="run csf -e first"):
        run_steps(fleet, plan, 2)
    with pytest.raises(Refused, match="csf is disabled"):
        REFRESH.plan(REFRESH.read(fleet.run_query))


def test_host_without_csf_is_reported_with_the_setting(web1: CsfHost, fleet: Fleet):
    web1.program.unlink()
    with pytest.raises(CommandError, match=r"csf does not exist: correct csf\.program"):
        REFRESH.read(fleet.run_query)


def test_csf_check_warns_of_cpanel_and_global_lists(web1: CsfHost, fleet: Fleet):
    web1.configure(GLOBAL_ALLOW="https://example.com/allow.txt")
    web1.cpanel.mkdir()
    execute_plan(fleet, REFRESH)
    warned = SHOW.report(SHOW.read(fleet.run_query))
    assert "GLOBAL_ALLOW" in warned.findings[0]
    assert "commondomains does not list pingdom.com" in warned.findings[1]
    web1.configure()
    (web1.cpanel / "commondomains").write_text("example.com\nPingdom.com\n")
    assert SHOW.report(SHOW.read(fleet.run_query)).healthy


# What could leave a part of a list behind: all that touches files, and beginning a program.
_CALLS = (
    "write,openat,close,dup2,rename,renameat2,fsync,sync,execve,clone,vfork,fcntl,flock,unlink"
)


def test_killed_csf_list_writer_leaves_the_old_or_the_new_list(tmp_path: Path):
    """Kill it at its first system call, its second, and so on, until it ends by itself."""
    old = csf_list.format_list([ip_address(four) for four in FOURS[:10]], "pingdom")
    new = csf_list.format_list([ip_address(each) for each in ALL], "pingdom")
    (tmp_path / "csf.conf").touch()
    own = tmp_path / "keyturn.allow"
    own.write_text(old)
    settings = {"csf.directory": str(tmp_path), "csf.program": "/bin/true"}
    probations = Probations(tmp_path / "root")
    settings |= probations.settings
    begin, load = (
        command.resolve(settings, sudo=False)
        for command in (
            csf_list.PROBATION.arm("0" * 16),
            csf_list.load_list(new, restart="-r"),
        )
    )
    environment = {"PATH": PATH, "LC_ALL": "C"}
    subprocess.run(begin.words, env=environment, check=True)
    contents = set[str]()
    try:
        for n in count(1):
            own.write_text(old)
            trace, inject = f"--trace={_CALLS}", f"--inject={_CALLS}:signal=SIGKILL:when={n}"
            done = subprocess.run(
                (*("strace", "-f", "-qq", "-o", "/dev/null"), trace, inject, *load.words),
                input=load.stdin.encode(),
                env=environment,
                capture_output=True,
            )
            contents.add(own.read_text())
            assert contents <= {old, new}, f"killed at call {n}"
            if done.returncode == 0:
                assert n > 10
                break
        assert contents == {old, new}
    finally:
        os.kill(probations.get_timer("csf"), signal.SIGKILL)


def test_without_the_atomic_rename_a_killed_writer_leaves_a_partial_list(tmp_path: Path):
    """The twin of the one above: a list written in its place is a short one for a while."""
    old, new = "old\n", "new\n" * 50_000
    own = tmp_path / "keyturn.allow"
    contents = set[str]()
    for n in range(1, 40):
        own.write_text(old)
        subprocess.run(
            (
                *("strace", "-f", "-qq", "-o", "/dev/null", "--trace=write"),
                f"--inject=write:signal=SIGKILL:when={n}",
                *("sh", "-c", 'cat >"$1"', "keyturn", str(own)),
            ),
            input=new.encode(),
            env={"PATH": PATH, "LC_ALL": "C"},
            capture_output=True,
        )
        contents.add(own.read_text())
    assert contents - {old, new}


def test_real_csf_output_matches_the_recorded_answers(web1: CsfHost, fleet: Fleet):
    firewall = fleet.run_query("web1", csf.query_firewall())
    assert {ip_address("127.0.0.1"), ip_address(web1.address)} <= firewall.own_addresses
    assert firewall.include_line == f"Include {web1.own}"
    assert firewall.is_included
    assert firewall.allow["tcp|in|d=443|s=198.51.100.12"] == (
        "web only - Sat Nov 21 08:19:33 2026"
    )

"""The abusers runbooks against a real HAProxy, without SSH: only the dialect is tested."""

import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from connectors import haproxy as dialect
from connectors import haproxy_limits
from connectors.command import NO_HOOKS, Answer, QueryCommand, RunHooks, Shell
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.haproxy_limits import TableLimit, parse_limits
from connectors.inventory import Host
from connectors.stick_table import InvalidKeyError, TableHead, parse_entry, parse_heads
from runbooks import NoUndo, Refused, Step
from runbooks._lists import LISTS
from runbooks.abusers_bulk import ClearAbusers, MarkAbusers
from runbooks.abusers_clear import ClearAbuser
from runbooks.abusers_mark import MarkAbuser
from runbooks.abusers_show import ShowAbusers
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.plans import list_work
from tests.playground.daemon import Daemon, find_program
from tests.playground.haproxy import HAPROXY, Haproxy, Level
from tests.runbooks.declared import load_check
from tests.scripted_fleet import build_inventory

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
# Root may open any socket, so it becomes somebody else for that.
NO_USER = 65534 if os.geteuid() == 0 else None
HTTP = TableHead("http", "ip", 204800, 0)
SHOW = ShowAbusers.model_validate({"host": "lb1"})
CLEAR = ClearAbuser.model_validate({"host": "lb1", "address": ABUSER})
MARK = MarkAbuser.model_validate({"host": "lb1", "address": ABUSER})


class Here:
    """Runs commands on this machine, where a fleet would run them on a host."""

    def __init__(self, user: int | None = None) -> None:
        self._user = user

    def run(
        self,
        host: Host,  # noqa: ARG002 - it is here
        command: QueryCommand,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002 - and reached through nobody
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - nothing listens
    ) -> Answer:
        assert isinstance(command, Shell)
        done = subprocess.run(
            command.words,
            input=command.stdin.encode(),
            capture_output=True,
            timeout=30,
            check=False,
            user=self._user,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def begin(self, *_: object, through: tuple[Host, ...] = ()) -> None:
        """Begin nothing that is not waited for."""

    def close(self) -> None:
        pass


def fleet_at(path: str, config: str = "/nonexistent", *, user: int | None = None) -> Fleet:
    settings = {"haproxy.socket": path, "haproxy.config": config}
    inventory = build_inventory("lb1")
    host = inventory["lb1"].model_copy(update={"settings": settings})
    return Fleet(inventory.model_copy(update={"hosts": {"lb1": host}}), Here(user))


def fleet_of(haproxy: Haproxy, level: Level = "operator") -> Fleet:
    return fleet_at(haproxy.socket(level), str(haproxy.config))


def test_haproxy_limits_are_parsed_from_the_configuration(haproxy: Haproxy):
    limits = (
        TableLimit("http", "gpc0", 1, "frontend http"),
        TableLimit("www", "conn_rate", 43, "backend www"),
        TableLimit("www", "bytes_out_rate", 20_000_001, "backend www"),
    )
    assert parse_limits(haproxy.config.read_text()) == limits
    assert haproxy_limits.read_limits(fleet_of(haproxy).run_query, "lb1").limits == limits


def test_every_haproxy_stick_table_is_listed(haproxy: Haproxy):
    tables = load_check("abusers tables").model_validate({"host": "lb1"})
    report = tables.report(tables.read(fleet_of(haproxy).run_query))
    assert report.table is not None
    assert {row[0] for row in report.table.rows} == {"http", "www", "tbl-string", "tbl-ipv6"}


def test_blocked_haproxy_client_is_shown_with_rate_limit_and_expiry(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    assert SHOW.report(SHOW.read(fleet.run_query)).summary == "No client is marked in http on lb1"
    haproxy.get("198.51.100.7")
    haproxy.abuse(ABUSER)
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "1 client is blocked in http on lb1"
    (finding,) = report.findings
    assert re.fullmatch(
        r"203\.0\.113\.9 is blocked for (10 min|9 min \d+ s) more: "
        r"43 connections in 100 s at www \(limit 42\)",
        finding,
    )


def test_stick_table_without_the_mark_counter_is_refused(haproxy: Haproxy):
    www = ShowAbusers.model_validate({"host": "lb1", "table": "www"})
    with pytest.raises(Refused, match="www has no gpc0"):
        www.read(fleet_of(haproxy).run_query)


def test_empty_stick_table_with_counter_arrays_has_no_marked_clients(arrays: "Arrays"):
    for mark in ("gpc0", "gpc2"):
        show = ShowAbusers.model_validate({"host": "lb1", "mark": mark})
        assert (
            show.report(show.read(arrays.fleet.run_query)).summary
            == "No client is marked in http on lb1"
        )


def test_haproxy_rates_are_shown_without_limits_when_the_config_is_missing(haproxy: Haproxy):
    haproxy.abuse(ABUSER)
    report = SHOW.report(SHOW.read(fleet_at(haproxy.socket("operator")).run_query))
    assert "43 connections in 100 s at www" in report.findings[0]
    assert "set haproxy.config" in report.findings[1]


def test_several_haproxy_clients_are_marked_and_cleared_in_one_plan(
    haproxy: Haproxy,
):
    fleet = fleet_of(haproxy)
    values = {"host": "lb1", "addresses": "203.0.113.9,203.0.113.64/31"}
    listed = ("203.0.113.9", "203.0.113.64", "203.0.113.65")
    haproxy.abuse(ABUSER)
    mark, clear = MarkAbusers.model_validate(values), ClearAbusers.model_validate(values)
    plan = execute_plan(fleet, mark)
    assert len(plan.steps) == 2
    assert "expires: 10 min from now" in plan.notes[0]
    assert all(map(haproxy.marked, listed))
    cleared = execute_plan(fleet, clear)
    assert not any(map(haproxy.marked, listed))
    undo_plan(fleet, clear, cleared)
    assert all(map(haproxy.marked, listed))


def test_cleared_abuser_is_marked_again_by_the_undo(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    haproxy.abuse(ABUSER)
    plan = CLEAR.plan(CLEAR.read(fleet.run_query))
    (step,) = plan.steps
    assert any("blocked again" in note for note in plan.notes)
    fleet.run_command("lb1", step.do)
    assert not haproxy.marked(ABUSER)
    assert not CLEAR.plan(CLEAR.read(fleet.run_query)).steps
    assert not isinstance(step.undo, NoUndo)
    fleet.run_command("lb1", step.undo)
    assert haproxy.marked(ABUSER)
    assert list_work(CLEAR.plan(CLEAR.read(fleet.run_query))) == list_work(plan)


def test_cleared_abuser_above_the_limit_is_blocked_again(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    haproxy.abuse(ABUSER)
    (step,) = CLEAR.plan(CLEAR.read(fleet.run_query)).steps
    fleet.run_command("lb1", step.do)
    assert haproxy.get(ABUSER) == 503
    assert haproxy.marked(ABUSER)


def test_marked_abuser_is_blocked_until_the_undo(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    assert haproxy.get(ABUSER) == 200
    (step,) = MARK.plan(MARK.read(fleet.run_query)).steps
    fleet.run_command("lb1", step.do)
    assert haproxy.get(ABUSER) == 503
    assert not MARK.plan(MARK.read(fleet.run_query)).steps
    assert not isinstance(step.undo, NoUndo)
    fleet.run_command("lb1", step.undo)
    assert haproxy.get(ABUSER) == 200
    assert MARK.plan(MARK.read(fleet.run_query)).steps


def test_ipv6_client_is_marked_and_cleared_in_haproxy(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    for address in ("2001:db8::7", "::1.2.3.4", "::ffff:192.0.2.2"):
        values = {"host": "lb1", "address": address, "table": "tbl-ipv6"}
        mark, clear = MarkAbuser.model_validate(values), ClearAbuser.model_validate(values)
        fleet.run_command("lb1", mark.plan(mark.read(fleet.run_query)).steps[0].do)
        assert not mark.plan(mark.read(fleet.run_query)).steps
        fleet.run_command("lb1", clear.plan(clear.read(fleet.run_query)).steps[0].do)
        assert not clear.plan(clear.read(fleet.run_query)).steps


def test_string_keys_of_a_stick_table_are_read(haproxy: Haproxy):
    table = fleet_of(haproxy).run_query("lb1", dialect.query_table("tbl-string"))
    assert {entry.key for entry in table.entries} == {"alice", "bob smith", "x=1 key=evil", "été"}


def test_stick_table_entry_with_an_open_connection_is_not_cleared_and_reported(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    with _open_connection(haproxy):
        haproxy.runtime(f"set table http key {ABUSER} data.gpc0 1")
        plan = CLEAR.plan(CLEAR.read(fleet.run_query))
        assert any("a connection open" in note for note in plan.notes)
        with pytest.raises(CommandError, match="a connection of this client is open"):
            fleet.run_command("lb1", plan.steps[0].do)
        assert haproxy.marked(ABUSER)


@contextmanager
def _open_connection(haproxy: Haproxy) -> Generator[None]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(haproxy.directory / "proxied.sock"))
        connection.sendall(f"PROXY TCP4 {ABUSER} 127.0.0.1 50000 80\r\nGET".encode())
        end = time.monotonic() + 10
        while " use=1 " not in haproxy.runtime(f"show table http key {ABUSER}"):
            assert time.monotonic() < end
        yield


NOBODY = str(IPv4Address(0))

# What HAProxy 2.6 takes each of them for, if nobody guards it.
COERCED = {
    "999.1.1.1": "231.1.1.1",
    "10.1": "10.1.0.0",
    "1": "1.0.0.0",
    "203.0.113.9/32": "203.0.113.9",
    "203.0.113.9x": "203.0.113.9",
    "2001:db8::1": "1.0.0.0",
    "::1": NOBODY,
    "localhost": NOBODY,
    "www.example.com": NOBODY,
    "0x7f000001": NOBODY,
    "-x": NOBODY,
    "２０３.0.113.9": NOBODY,
}


@pytest.mark.parametrize("key", COERCED)
def test_key_that_haproxy_coerces_to_another_is_rejected(haproxy: Haproxy, key: str):
    with pytest.raises(InvalidKeyError):
        dialect.mark_entry(HTTP, key, "gpc0", 1)
    # The twin: said as it is, HAProxy marks somebody else, or nobody, or refuses it (3.x).
    answer = haproxy.runtime(f"set table http key {key} data.gpc0 1")
    marked = {
        entry.key for entry in dialect.query_table("http").parse(haproxy.table("http")).entries
    }
    assert answer == "Invalid key\n\n" or (answer == "\n" and marked == {COERCED[key]})


@pytest.mark.parametrize("between", ["; ", "\n"])
def test_key_that_smuggles_a_second_haproxy_command_is_rejected(haproxy: Haproxy, between: str):
    smuggled = f"{ABUSER}{between}disable server www/origin"
    with pytest.raises(InvalidKeyError):
        dialect.clear_entry(HTTP, smuggled)
    users = TableHead("tbl-string", "string", 1, 1)
    with pytest.raises(InvalidKeyError):
        dialect.clear_entry(users, smuggled)
    assert haproxy.get("198.51.100.7") == 200
    # The twin: said as it is, the server is taken away.
    haproxy.runtime(f"clear table http key {smuggled}")
    assert haproxy.get("198.51.100.7") == 503


def test_random_stick_table_keys_mark_only_the_named_client(haproxy: Haproxy):
    haproxy.get("198.51.100.7")
    servers, others = _list_servers(haproxy), haproxy.table("tbl-ipv6").split("\n")
    dice = random.Random(20231124)  # noqa: S311 - a seed makes a failure repeatable
    marked = 0
    for _ in range(10_000):
        key = "".join(dice.choices("0123456789.;\\ :/", k=dice.randrange(3, 16)))
        if dice.random() < 0.1:
            key = str(IPv4Address(dice.randrange(2**32)))
        try:
            line = dialect.mark_entry(HTTP, key, "gpc0", 1).stdin.removesuffix("\n")
        except InvalidKeyError:
            continue
        assert haproxy.runtime(line) == "\n"
        entry = parse_entry(haproxy.runtime(f"show table http key {key}"), key)
        assert entry is not None
        assert entry.counters["gpc0"] == 1
        marked += 1
    assert 500 < marked < 9_000
    head = dialect.find_table_head("http", parse_heads(haproxy.tables()))
    assert head.used == marked + 1  # the client that asked for a page
    assert _list_servers(haproxy) == servers
    assert len(haproxy.table("tbl-ipv6").split("\n")) == len(others)


def _list_servers(haproxy: Haproxy) -> list[list[str]]:
    """Return each server's name, whether it is up, and whether somebody took it away."""
    lines = haproxy.runtime("show servers state").splitlines()[2:]
    return [line.split()[3:7] for line in lines if line]


def test_haproxy_command_without_its_newline_fails_the_step(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    haproxy.runtime(f"set table http key {ABUSER} data.gpc0 1")
    clear = dialect.clear_entry(HTTP, ABUSER)
    cut = Shell(
        clear.argv,
        stdin=clear.stdin.rstrip(),
        error_pattern=clear.error_pattern,
        hints=clear.hints,
    )
    with pytest.raises(CommandError, match="changed nothing"):
        fleet.run_command("lb1", cut)
    assert haproxy.marked(ABUSER)
    # The twin: by the status alone it would have been done.
    assert fleet.run_command("lb1", Shell(cut.argv, stdin=cut.stdin)) == Answer(0, "")


def test_haproxy_socket_without_operator_level_is_an_error(haproxy: Haproxy):
    haproxy.runtime(f"set table http key {ABUSER} data.gpc0 1")
    fleet = fleet_of(haproxy, "user")
    with pytest.raises(CommandError, match="level operator"):
        SHOW.read(fleet.run_query)
    with pytest.raises(CommandError, match="is read-only"):
        fleet.run_command("lb1", dialect.clear_entry(HTTP, ABUSER))
    assert haproxy.marked(ABUSER)


def test_stopped_haproxy_is_reported(haproxy: Haproxy):
    haproxy.stop()
    with pytest.raises(CommandError, match="HAProxy is stopped"):
        SHOW.read(fleet_of(haproxy).run_query)


def test_missing_haproxy_socket_is_reported(tmp_path: Path):
    with pytest.raises(CommandError, match="HAProxy has no such socket"):
        SHOW.read(fleet_at(str(tmp_path / "admin.sock")).run_query)


def test_haproxy_socket_without_permission_is_reported(haproxy: Haproxy):
    Path(haproxy.socket("operator")).chmod(0)
    fleet = fleet_at(haproxy.socket("operator"), user=NO_USER)
    with pytest.raises(CommandError, match="the login may not open HAProxy's socket"):
        SHOW.read(fleet.run_query)


def test_haproxy_socket_setting_with_an_ordinary_file_does_not_write_to_it(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    with pytest.raises(CommandError):
        SHOW.read(fleet_at(str(precious)).run_query)
    assert precious.read_text() == "mine\n"
    # The twin: socat opens a bare path as whatever it is, and appends to it.
    subprocess.run(["socat", "stdio", str(precious)], input=b"show table\n", check=True)
    assert precious.read_text() == "mine\nshow table\n"


class Arrays(Daemon):
    """A HAProxy whose table keeps its counters as arrays."""

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        config = self.directory / "haproxy.cfg"
        config.write_text(
            f"global\n stats socket {self.directory}/operator.sock level operator\n"
            "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n"
            f"frontend http\n bind unix@{self.directory}/http.sock\n"
            " stick-table type ip size 1k expire 10m store gpc(3),gpt(2)\n"
        )
        return [find_program(HAPROXY, package="haproxy"), "-db", "-f", str(config)]

    def _answers(self) -> bool:
        try:
            self.fleet.run_query("lb1", dialect.query_tables())
        except CommandError:
            return False
        return True

    @property
    def fleet(self) -> Fleet:
        return fleet_at(str(self.directory / "operator.sock"))


def test_marked_haproxy_clients_are_offered_as_form_options(arrays: Arrays):
    fleet, where = arrays.fleet, {"table": "http", "mark": "gpc0"}
    assert list(LISTS["abusers"](fleet.run_query, "lb1", where)) == []
    (step,) = MARK.plan(MARK.read(fleet.run_query)).steps
    fleet.run_command("lb1", step.do)
    assert list(LISTS["abusers"](fleet.run_query, "lb1", where)) == [ABUSER]
    with pytest.raises(Refused, match="gpc7"):
        LISTS["abusers"](fleet.run_query, "lb1", where | {"mark": "gpc7"})


@pytest.fixture
def arrays() -> Iterator[Arrays]:
    with Arrays() as balancer:
        yield balancer


def test_first_counter_of_a_haproxy_array_marks_and_clears(arrays: Arrays):
    fleet = arrays.fleet
    for step in _mark_and_clear_client(fleet):
        assert not isinstance(step.undo, NoUndo)
        fleet.run_command("lb1", step.undo)
        assert CLEAR.plan(CLEAR.read(fleet.run_query)).steps


def _mark_and_clear_client(fleet: Fleet) -> Iterator[Step]:
    (step,) = MARK.plan(MARK.read(fleet.run_query)).steps
    fleet.run_command("lb1", step.do)
    assert SHOW.report(SHOW.read(fleet.run_query)).summary == "1 client is marked in http on lb1"
    (step,) = CLEAR.plan(CLEAR.read(fleet.run_query)).steps
    fleet.run_command("lb1", step.do)
    assert not CLEAR.plan(CLEAR.read(fleet.run_query)).steps
    yield step

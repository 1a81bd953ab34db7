import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors import haproxy_limits
from connectors.errors import CommandError
from connectors.haproxy_limits import TableLimits
from connectors.haproxy_peers import Peer
from connectors.stick_table import TableEntry, TableHead
from runbooks import NoUndo, Plan, Refused
from runbooks.abusers_empty import EmptyTable, MarkedClients
from tests.plans import list_work
from tests.runbooks.balancer import (
    LIMITS,
    UNREADABLE,
    build_balancer_fleet,
    build_table_output,
    get_sent_line,
    get_sent_lines,
)

EMPTY = EmptyTable.model_validate({"host": "lb1"})
HTTP = TableHead("http", "ip", 204800, 1234)
ASK_MARKED = "show table http data.gpc0 ge 1"
ASK_FAST = "show table www data.conn_rate ge 43"
ASK_LOUD = "show table www data.bytes_out_rate ge 5000001"
KEPT = {
    f"show table www data.{name} gt 9223372036854775807": build_table_output("www")
    for name in ("conn_rate", "bytes_out_rate")
}


def make_entry(number: int, *, gpc0: int = 1, use: int = 0) -> TableEntry:
    return TableEntry(f"203.0.113.{number}", use, 578_000, counters={"gpc0": gpc0})


def make_state(
    *entries: TableEntry,
    busy: dict[str, str] | None = None,
    limits: TableLimits = LIMITS,
    peer: str = "",
) -> MarkedClients:
    sharing = [Peer(peer, "mesh", is_connected=True)] if peer else []
    return MarkedClients(HTTP, entries, limits, busy or {}, sharing)


def test_abusers_empty_clears_the_table_without_undo():
    plan = EMPTY.plan(make_state(make_entry(9, gpc0=57), make_entry(8)))
    (step,) = plan.steps
    assert plan.current_state == "2 of 1,234 entries of http are marked"
    assert get_sent_line(step.do) == "clear table http\n"
    assert isinstance(step.undo, NoUndo)
    assert not plan.is_reversible
    assert plan.notes[0] == (
        "Marked (gpc0): 203.0.113.9 (57, for 9 min 38 s more), 203.0.113.8 (1, for 9 min 38 s "
        "more)."
    )
    assert any("`abusers clear`" in note for note in plan.notes)


def test_abusers_empty_names_the_most_marked_clients():
    plan = EMPTY.plan(
        make_state(*(make_entry(number, gpc0=number) for number in range(19, 0, -1)))
    )
    assert plan.notes[0].startswith("Marked (gpc0): 203.0.113.19 (19,")
    assert plan.notes[0].endswith(" and 14 more.")


def test_abusers_empty_without_marked_clients_plans_no_steps():
    assert EMPTY.plan(make_state()) == Plan("no client is marked in http (1,234 entries)")


def test_abusers_empty_plans_no_steps_when_all_marked_clients_are_above_a_limit():
    busy = {"203.0.113.9": "43 connections in 100 s at www"}
    plan = EMPTY.plan(make_state(make_entry(9), busy=busy))
    assert not plan.steps
    assert plan.current_state == (
        "all marked clients of http are above a limit now and will be marked again on their next "
        "request: "
        "203.0.113.9 (43 connections in 100 s at www)"
    )
    both = EMPTY.plan(make_state(make_entry(9), make_entry(8), busy=busy))
    assert both.steps
    assert any(note.startswith("1 of them is above a limit") for note in both.notes)


def test_abusers_empty_plan_is_not_stale_when_only_counters_move():
    shown = EMPTY.plan(make_state(make_entry(9)))
    later = EMPTY.plan(make_state(make_entry(9, gpc0=99, use=2), make_entry(7)))
    assert list_work(later) == list_work(shown)


def test_abusers_empty_notes_open_connections_and_copies_on_peers():
    notes = EMPTY.plan(make_state(make_entry(9, use=1), peer="lb2")).notes
    assert any("1 of them have an open connection" in note for note in notes)
    assert any(note.startswith("lb2 has a copy of http") for note in notes)
    quiet = EMPTY.plan(make_state(make_entry(9))).notes
    assert not any("open connection" in note or "copy of http" in note for note in quiet)


def test_abusers_empty_notes_limits_that_could_not_be_read():
    notes = EMPTY.plan(
        make_state(make_entry(9), limits=TableLimits(error="the login may not read it"))
    ).notes
    assert any(
        note.endswith("the limits could not be read (the login may not read it).")
        for note in notes
    )


def test_abusers_empty_filters_marked_and_fast_clients_on_haproxy():
    entry = "203.0.113.9 use=0 exp=9 gpc0=57"
    other = "203.0.113.8 use=0 exp=9 gpc0=1"
    fast = "203.0.113.9 use=0 exp=98000 conn_rate(100000)=43"
    calm = "198.51.100.1 use=0 exp=98000 conn_rate(100000)=99"
    fleet = build_balancer_fleet(
        {
            ASK_MARKED: build_table_output("http", entry, other),
            **KEPT,
            ASK_FAST: build_table_output("www", fast, calm),
            ASK_LOUD: build_table_output("www"),
        }
    )
    state = EMPTY.read(fleet.run_query)
    assert [one.key for one in state.releasable] == ["203.0.113.8"]
    assert state.excesses == {"203.0.113.9": "43 connections in 100 s at www"}
    assert "show table www" not in get_sent_lines(fleet)


def test_abusers_empty_ignores_a_limit_on_a_counter_that_no_table_stores():
    unknown = dict.fromkeys(KEPT, "Data type not stored in this table\n\n")
    fleet = build_balancer_fleet(
        {
            ASK_MARKED: build_table_output(
                "http", *(f"203.0.113.{n} use=0 exp=9 gpc0={n}" for n in (8, 9, 7))
            ),
            **unknown,
        }
    )
    state = EMPTY.read(fleet.run_query)
    assert state.excesses == {}
    assert [entry.counters["gpc0"] for entry in state.marked] == [9, 8, 7]


def test_abusers_empty_queries_no_other_table_without_marked_clients():
    fleet = build_balancer_fleet({ASK_MARKED: build_table_output("http")})
    assert not EMPTY.plan(EMPTY.read(fleet.run_query)).steps
    assert not any("www" in line for line in get_sent_lines(fleet))


def test_abusers_empty_works_when_the_configuration_is_unreadable():
    fleet = build_balancer_fleet(
        {ASK_MARKED: build_table_output("http", "203.0.113.9 use=0 exp=9 gpc0=1")}
    )
    fleet.script("lb1", haproxy_limits.query_limits().command, UNREADABLE)
    assert EMPTY.plan(EMPTY.read(fleet.run_query)).steps


def test_abusers_empty_refuses_a_table_without_the_marking_counter():
    values = {"host": "lb1", "table": "www"}
    unknown = {
        f"show table www data.{spelling} gt 9223372036854775807": "Unknown data type\n\n"
        for spelling in ("gpc0", "gpc[0]", "gpc")
    }
    all_of_it = build_table_output("www", "203.0.113.9 use=0 exp=98000 conn_rate(100000)=43")
    fleet = build_balancer_fleet({**unknown, "show table www": all_of_it})
    with pytest.raises(Refused, match="www has no gpc0"):
        EmptyTable.model_validate(values).read(fleet.run_query)


def test_abusers_empty_reports_a_missing_table_with_the_tables():
    missing = EmptyTable.model_validate({"host": "lb1", "table": "nosuch"})
    with pytest.raises(CommandError, match="HAProxy has no table nosuch; its tables: "):
        missing.read(build_balancer_fleet().run_query)


@pytest.mark.parametrize(
    "table",
    [
        "http;",
        "http key 1.2.3.4",
        "http\n",
        "http\0",
        "http data.gpc0 gt 0",
        "a/b/c",
        "http\\",
        "<<",
        "",
        "-x",
        "ｈttp",
        "x" * 200,
        7,
    ],
)
def test_abusers_empty_refuses_an_invalid_table_name(table: object):
    with pytest.raises(ValidationError):
        EmptyTable.model_validate({"host": "lb1", "table": table})


@pytest.mark.parametrize(
    "mark",
    [
        "gpc0 1",
        "gpc",
        "conn_rate",
        "gpc[0]",
        "gpc٣",
        "gpc100",
        "-x",
        "",
        "gpc0;",
        "gpc0\n",
        "*",
        0,
    ],
)
def test_abusers_empty_refuses_an_invalid_marking_counter(mark: object):
    with pytest.raises(ValidationError):
        EmptyTable.model_validate({"host": "lb1", "mark": mark})


def test_abusers_empty_is_parsed_as_its_usage_shows():
    assert request_form.format_usage(EmptyTable) == "abusers empty HOST [table=http] [mark=gpc0]"
    assert request_form.parse_request(EmptyTable, ["lb1"]) == EMPTY

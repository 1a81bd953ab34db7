from collections.abc import Mapping
from ipaddress import ip_address

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from bot.model import request_form
from connectors import haproxy_limits
from connectors.command import Answer
from connectors.errors import CommandError
from connectors.haproxy_limits import TableLimits
from connectors.haproxy_peers import Peer
from connectors.stick_table import Rate, TableEntry
from runbooks import NoUndo, Plan, Refused
from runbooks.abusers_clear import Abuser, ClearAbuser
from tests.plans import list_work
from tests.runbooks.balancer import (
    HTTP,
    LIMITS,
    SIX,
    UNREADABLE,
    build_balancer_fleet,
    build_table_output,
    get_sent_line,
    get_sent_lines,
)
from tests.scripted_fleet import Replies

CLEAR = ClearAbuser.model_validate({"host": "lb1", "address": "203.0.113.9"})
FAST = TableEntry("203.0.113.9", 0, 98_000, rates={"conn_rate": Rate(43, 100_000)})
SLOW = TableEntry("203.0.113.9", 0, 98_000, rates={"conn_rate": Rate(3, 100_000)})


def make_entry(
    *, gpc0: int = 57, use: int = 0, expires_ms: int = 578_000, **counters: int
) -> TableEntry:
    return TableEntry("203.0.113.9", use, expires_ms, counters={"gpc0": gpc0, **counters})


def make_state(
    entry: TableEntry | None,
    *,
    spelling: Mapping[str, str] | None = None,
    limits: TableLimits = LIMITS,
    elsewhere: Mapping[str, TableEntry] | None = None,
) -> Abuser:
    return Abuser(HTTP, entry, spelling or {"gpc0": "gpc0"}, limits, elsewhere or {})


def test_abusers_clear_removes_a_mark_and_undo_sets_it_again():
    plan = CLEAR.plan(make_state(make_entry()))
    (step,) = plan.steps
    assert plan.current_state == "203.0.113.9 is marked for 9 min 38 s more"
    assert get_sent_line(step.do) == "clear table http key 203.0.113.9\n"
    assert get_sent_line(step.undo) == "set table http key 203.0.113.9 data.gpc0 57\n"
    assert (step.before, step.after) == ("marked (gpc0)", "not in http")
    assert any("the remaining time and all rates start over" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("entry", "because"),
    [
        (None, "203.0.113.9 is not in table http"),
        (
            make_entry(gpc0=0),
            "203.0.113.9 is in http but not marked: gpc0 is 0, and it is marked from 1",
        ),
    ],
)
def test_abusers_clear_of_an_unmarked_client_plans_no_steps(
    entry: TableEntry | None, because: str
):
    assert CLEAR.plan(make_state(entry)) == Plan(because)


def test_abusers_clear_counts_a_mark_from_the_limit_of_the_configuration():
    limits = TableLimits((haproxy_limits.TableLimit("http", "gpc0", 10, "frontend http"),))
    assert not CLEAR.plan(make_state(make_entry(gpc0=9), limits=limits)).steps
    assert CLEAR.plan(make_state(make_entry(gpc0=10), limits=limits)).steps


def test_abusers_clear_plan_is_not_stale_when_only_counters_move():
    shown = CLEAR.plan(make_state(make_entry(), elsewhere={"www": FAST}))
    later = CLEAR.plan(
        make_state(make_entry(gpc0=99, use=2, expires_ms=1), elsewhere={"www": SLOW})
    )
    assert list_work(later) == list_work(shown)


def test_abusers_clear_plan_is_stale_when_the_mark_has_expired():
    assert list_work(CLEAR.plan(make_state(None))) != list_work(
        CLEAR.plan(make_state(make_entry()))
    )


def test_abusers_clear_notes_that_a_client_above_a_limit_is_blocked_again():
    plan = CLEAR.plan(make_state(make_entry(), elsewhere={"www": FAST}))
    assert (
        "It will be blocked again on its next request unless it slows down: "
        "43 connections in 100 s at www (limit 42)."
    ) in plan.notes
    assert not any("blocked again" in note for note in CLEAR.plan(make_state(make_entry())).notes)


def test_abusers_clear_notes_peers_that_have_a_copy_of_the_table():
    peers = (Peer("lb2", "mesh", is_connected=True), Peer("lb3", "mesh", is_connected=False))
    notes = CLEAR.plan(Abuser(HTTP, make_entry(), {"gpc0": "gpc0"}, LIMITS, {}, peers)).notes
    assert any(
        note.startswith("lb2 and lb3 (not connected) have copies of http") and "@tag" in note
        for note in notes
    )
    assert not any("copies" in note for note in CLEAR.plan(make_state(make_entry())).notes)


def test_abusers_clear_notes_limits_that_could_not_be_read():
    plan = CLEAR.plan(
        make_state(make_entry(), limits=TableLimits(error="the login may not read it"))
    )
    assert plan.notes[-1].endswith("the limits could not be read (the login may not read it).")


def test_abusers_clear_notes_open_connections_of_the_client():
    assert any(
        "2 connections open" in note for note in CLEAR.plan(make_state(make_entry(use=2))).notes
    )


def test_abusers_clear_notes_counters_that_undo_cannot_restore():
    plan = CLEAR.plan(make_state(make_entry(gpc1=4)))
    assert any("Undo cannot restore gpc1" in note for note in plan.notes)


def test_abusers_clear_has_no_undo_for_an_array_counter():
    array = ClearAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "mark": "gpc2"})
    (step,) = array.plan(make_state(make_entry(gpc2=1))).steps
    assert isinstance(step.undo, NoUndo)
    assert not array.plan(make_state(make_entry(gpc2=1))).is_reversible


def test_abusers_clear_refuses_a_table_without_the_marking_counter():
    with pytest.raises(Refused, match="http has no gpc0"):
        CLEAR.plan(make_state(FAST))


def test_abusers_clear_reads_table_entry_and_rates():
    fleet = build_balancer_fleet(
        {
            "show table http key 203.0.113.9": build_table_output(
                "http", "203.0.113.9 use=0 exp=9 gpc0=57"
            ),
            "show table www key 203.0.113.9": build_table_output(
                "www", "203.0.113.9 use=0 exp=98000 conn_rate(100000)=43"
            ),
        }
    )
    assert CLEAR.read(fleet.run_query) == Abuser(
        HTTP, make_entry(expires_ms=9), {"gpc0": "gpc0"}, LIMITS, {"www": FAST}
    )


def test_abusers_clear_queries_an_absent_client_once():
    fleet = build_balancer_fleet({"show table http key 203.0.113.9": "\n"})
    assert CLEAR.read(fleet.run_query) == Abuser(HTTP, None, {}, LIMITS, {})
    assert get_sent_lines(fleet) == ["show table", "show table http key 203.0.113.9"]


def test_abusers_clear_works_when_the_configuration_is_unreadable():
    fleet = build_balancer_fleet(
        {
            "show table http key 203.0.113.9": build_table_output(
                "http", "203.0.113.9 use=0 exp=9 gpc0=57"
            )
        }
    )
    fleet.script("lb1", haproxy_limits.query_limits().command, UNREADABLE)
    plan = CLEAR.plan(CLEAR.read(fleet.run_query))
    assert len(plan.steps) == 1
    assert "cannot read" in plan.notes[-1]


def test_abusers_clear_normalises_an_ipv6_address():
    six = ClearAbuser.model_validate(
        {"host": "lb1", "address": "2001:DB8:0::00ff", "table": "six"}
    )
    fleet = build_balancer_fleet(
        {
            "show table six key 2001:db8::ff": build_table_output(
                "six", "2001:db8::ff use=0 exp=9 gpc0=1"
            ),
            "show table six data.gpc0 gt 9223372036854775807": build_table_output("six"),
        }
    )
    abuser = six.read(fleet.run_query)
    assert abuser.head == SIX
    assert get_sent_line(six.plan(abuser).steps[0].do) == "clear table six key 2001:db8::ff\n"


@pytest.mark.parametrize(
    ("address", "table", "words"),
    [
        ("::1", "http", "'::1' is not an IPv4 address: table http has nothing else"),
        ("::ffff:203.0.113.9", "http", "write it as 203.0.113.9"),
        ("203.0.113.9", "six", "is not an IPv6 address"),
        ("203.0.113.9", "blobs", "has binary keys, which HAProxy can only show"),
    ],
)
def test_abusers_clear_refuses_an_address_of_another_family_before_sending(
    address: str, table: str, words: str
):
    tables = "# table: http, type: ip, size:9, used:0\n# table: six, type: ipv6, size:9, used:0\n"
    tables += "# table: blobs, type: binary, size:9, used:0\n\n"
    fleet = build_balancer_fleet({"show table": tables})
    clear = ClearAbuser.model_validate({"host": "lb1", "address": address, "table": table})
    with pytest.raises(Refused, match=words):
        clear.read(fleet.run_query)
    assert get_sent_lines(fleet) == ["show table"]


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_abusers_clear_refuses_an_invalid_address_before_anything_is_sent(address: object):
    with pytest.raises(ValidationError) as refused:
        ClearAbuser.model_validate({"host": "lb1", "address": address})
    (problem,) = refused.value.errors()
    words = problem["msg"]
    assert "enter one IP address, such as 203.0.113.9" in words or "address " in words


@pytest.mark.parametrize(
    "table", ["http; disable server b/s1", "http key", "http\n", "a/b/c", "", "-x", "t" * 65, "hé"]
)
def test_abusers_clear_refuses_an_invalid_table_name(table: str):
    with pytest.raises(ValidationError):
        ClearAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "table": table})


@pytest.mark.parametrize("mark", ["gpc0 1", "gpc", "conn_rate", "gpc[0]", "gpc٣", "gpc100", "-x"])
def test_abusers_clear_refuses_an_invalid_marking_counter(mark: str):
    with pytest.raises(ValidationError):
        ClearAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "mark": mark})


def test_abusers_clear_is_parsed_as_its_usage_shows():
    assert (
        request_form.format_usage(ClearAbuser)
        == "abusers clear HOST ADDRESS [table=http] [mark=gpc0]"
    )
    typed = request_form.parse_request(ClearAbuser, ["lb1", "203.0.113.9"])
    assert typed == CLEAR
    assert typed.model_dump(mode="json")["address"] == "203.0.113.9"
    assert ClearAbuser.model_validate(typed.model_dump(mode="json")) == CLEAR
    assert (
        ClearAbuser.model_validate({"host": "lb1", "address": ip_address("203.0.113.9")}) == CLEAR
    )


def test_abusers_clear_explains_an_invalid_address():
    with pytest.raises(
        request_form.RequestSyntaxError,
        match=r"'203\.0\.113\.9/32' is not valid: enter one IP addr",
    ):
        request_form.parse_request(ClearAbuser, ["lb1", "203.0.113.9/32"])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Entry currently in use, cannot remove\n\n", "try again then"),
        ("Permission denied\n\n", "level operator"),
        ("", "changed nothing"),
    ],
)
def test_abusers_clear_fails_when_haproxy_does_not_clear_the_entry(answer: Replies, words: str):
    fleet = build_balancer_fleet({"clear table http key 203.0.113.9": answer})
    (step,) = CLEAR.plan(make_state(make_entry())).steps
    with pytest.raises(CommandError, match=words):
        fleet.run_command("lb1", step.do)


def test_abusers_clear_succeeds_with_an_empty_line():
    fleet = build_balancer_fleet({"clear table http key 203.0.113.9": "\n"})
    (step,) = CLEAR.plan(make_state(make_entry())).steps
    assert fleet.run_command("lb1", step.do) == Answer(0, "\n")

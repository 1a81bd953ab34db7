from ipaddress import IPv4Address

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from connectors import haproxy_limits
from connectors.errors import CommandError
from connectors.haproxy_limits import TableLimit, TableLimits
from connectors.stick_table import TableEntry
from runbooks import Plan, Refused
from runbooks.abusers_mark import ClientEntry, MarkAbuser
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

EVERY = str(IPv4Address(0))
MARK = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9"})


def make_state(
    gpc0: int | None = None, *, limits: TableLimits = LIMITS, spelling: str = "gpc0"
) -> ClientEntry:
    entry = None if gpc0 is None else TableEntry("203.0.113.9", 0, 9, counters={"gpc0": gpc0})
    return ClientEntry(HTTP, entry, spelling, limits)


@pytest.mark.parametrize("gpc0", [None, 0])
def test_abusers_mark_sets_a_mark_and_undo_removes_it(gpc0: int | None):
    (step,) = MARK.plan(make_state(gpc0)).steps
    assert get_sent_line(step.do) == "set table http key 203.0.113.9 data.gpc0 1\n"
    assert get_sent_line(step.undo) == "set table http key 203.0.113.9 data.gpc0 0\n"
    assert (step.before, step.after) == ("not marked", "marked (gpc0)")


def test_abusers_mark_of_a_marked_client_plans_no_steps():
    assert MARK.plan(make_state(1)) == Plan("203.0.113.9 is marked")
    assert MARK.plan(make_state(57)) == Plan("203.0.113.9 is marked")


def test_abusers_mark_plan_is_not_stale_when_the_client_gets_an_entry():
    assert list_work(MARK.plan(make_state(0))) == list_work(MARK.plan(make_state(None)))


def test_abusers_mark_sets_the_counter_to_the_limit_of_the_configuration():
    limits = TableLimits((TableLimit("http", "gpc0", 10, "frontend http"),))
    (step,) = MARK.plan(make_state(3, limits=limits)).steps
    assert get_sent_line(step.do) == "set table http key 203.0.113.9 data.gpc0 10\n"
    assert get_sent_line(step.undo) == "set table http key 203.0.113.9 data.gpc0 3\n"


def test_abusers_mark_sets_an_array_counter_in_the_spelling_of_haproxy():
    (step,) = MARK.plan(make_state(spelling="gpc[0]")).steps
    assert get_sent_line(step.do) == "set table http key 203.0.113.9 data.gpc[0] 1\n"


def test_abusers_mark_notes_that_no_condition_uses_the_mark():
    assert not any("block" in note for note in MARK.plan(make_state()).notes)
    assert "may block no one" in MARK.plan(make_state(limits=TableLimits())).notes[-1]
    unknown = MARK.plan(make_state(limits=TableLimits(error="it is not there")))
    assert unknown.notes[-1].endswith("the limits could not be read (it is not there).")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "::1"])
def test_abusers_mark_notes_a_private_address(address: str):
    mine = MarkAbuser.model_validate({"host": "lb1", "address": address})
    client = ClientEntry(SIX if ":" in address else HTTP, None, "gpc0", LIMITS)
    assert any("is a private address" in note for note in mine.plan(client).notes)
    assert not any("is a private address" in note for note in MARK.plan(make_state()).notes)


@pytest.mark.parametrize("address", [EVERY, "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_abusers_mark_refuses_an_address_of_no_single_client_before_any_query(address: str):
    fleet = build_balancer_fleet()
    with pytest.raises(Refused, match="not the address of one client"):
        MarkAbuser.model_validate({"host": "lb1", "address": address}).read(fleet.run_query)
    assert fleet.asked == []


def test_abusers_mark_reads_entry_and_limits():
    fleet = build_balancer_fleet({"show table http key 203.0.113.9": "\n"})
    assert MARK.read(fleet.run_query) == make_state()
    fleet = build_balancer_fleet(
        {
            "show table http key 203.0.113.9": build_table_output(
                "http", "203.0.113.9 use=0 exp=9 gpc0=1"
            )
        }
    )
    fleet.script("lb1", haproxy_limits.query_limits().command, UNREADABLE)
    client = MARK.read(fleet.run_query)
    assert client.entry == make_state(1).entry
    assert "cannot read" in client.limits.error


def test_abusers_mark_refuses_an_address_of_another_family_before_sending():
    fleet = build_balancer_fleet()
    with pytest.raises(Refused, match="'::1' is not an IPv4 address"):
        MarkAbuser.model_validate({"host": "lb1", "address": "::1"}).read(fleet.run_query)
    assert get_sent_lines(fleet) == ["show table"]


def test_abusers_mark_refuses_a_table_without_the_marking_counter():
    unknown = {
        f"show table www data.{spelling} gt 9223372036854775807": "Unknown data type\n\n"
        for spelling in ("gpc0", "gpc[0]", "gpc")
    }
    www = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "table": "www"})
    with pytest.raises(Refused, match="www has no gpc0 that this HAProxy can set"):
        www.read(
            build_balancer_fleet({"show table www key 203.0.113.9": "\n", **unknown}).run_query
        )


def test_abusers_mark_reports_a_missing_table_with_the_tables():
    nowhere = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "table": "w"})
    with pytest.raises(CommandError, match="its tables: http, other, six, users, www"):
        nowhere.read(build_balancer_fleet().run_query)


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_abusers_mark_refuses_an_invalid_address_before_any_query(address: object):
    with pytest.raises(ValidationError):
        MarkAbuser.model_validate({"host": "lb1", "address": address})

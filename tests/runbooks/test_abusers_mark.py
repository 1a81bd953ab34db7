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
from tests.plans import work_of
from tests.runbooks.balancer import HTTP, LIMITS, SIX, UNREADABLE, balancer, rows, sent, sent_line

EVERY = str(IPv4Address(0))
MARK = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9"})


def known(
    gpc0: int | None = None, *, limits: TableLimits = LIMITS, spelling: str = "gpc0"
) -> ClientEntry:
    entry = None if gpc0 is None else TableEntry("203.0.113.9", 0, 9, counters={"gpc0": gpc0})
    return ClientEntry(HTTP, entry, spelling, limits)


@pytest.mark.parametrize("gpc0", [None, 0])
def test_a_client_is_marked_and_can_be_unmarked(gpc0: int | None):
    (step,) = MARK.plan(known(gpc0)).steps
    assert sent_line(step.do) == "set table http key 203.0.113.9 data.gpc0 1\n"
    assert sent_line(step.undo) == "set table http key 203.0.113.9 data.gpc0 0\n"
    assert (step.before, step.after) == ("not marked", "marked (gpc0)")


def test_a_client_that_is_marked_needs_nothing():
    assert MARK.plan(known(1)) == Plan("203.0.113.9 is marked")
    assert MARK.plan(known(57)) == Plan("203.0.113.9 is marked")


def test_a_client_that_comes_to_be_known_meanwhile_does_not_make_the_plan_stale():
    assert work_of(MARK.plan(known(0))) == work_of(MARK.plan(known(None)))


def test_a_mark_is_as_high_as_the_configuration_asks_for():
    limits = TableLimits((TableLimit("http", "gpc0", 10, "frontend http"),))
    (step,) = MARK.plan(known(3, limits=limits)).steps
    assert sent_line(step.do) == "set table http key 203.0.113.9 data.gpc0 10\n"
    assert sent_line(step.undo) == "set table http key 203.0.113.9 data.gpc0 3\n"


def test_a_counter_of_an_array_is_set_as_this_haproxy_spells_it():
    (step,) = MARK.plan(known(spelling="gpc[0]")).steps
    assert sent_line(step.do) == "set table http key 203.0.113.9 data.gpc[0] 1\n"


def test_a_mark_that_nothing_asks_for_may_block_no_one():
    assert not any("block" in note for note in MARK.plan(known()).notes)
    assert "may block no one" in MARK.plan(known(limits=TableLimits())).notes[-1]
    unknown = MARK.plan(known(limits=TableLimits(error="it is not there")))
    assert unknown.notes[-1].endswith("the limits could not be read (it is not there).")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "::1"])
def test_to_block_ones_own_networks_takes_a_second_look(address: str):
    mine = MarkAbuser.model_validate({"host": "lb1", "address": address})
    client = ClientEntry(SIX if ":" in address else HTTP, None, "gpc0", LIMITS)
    assert any("is a private address" in note for note in mine.plan(client).notes)
    assert not any("is a private address" in note for note in MARK.plan(known()).notes)


@pytest.mark.parametrize("address", [EVERY, "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_invalid_client_address_is_refused_before_anything_is_sent(address: str):
    fleet = balancer()
    with pytest.raises(Refused, match="not the address of one client"):
        MarkAbuser.model_validate({"host": "lb1", "address": address}).read(fleet.run_query)
    assert fleet.asked == []


def test_everything_that_the_decision_needs_is_read():
    fleet = balancer({"show table http key 203.0.113.9": "\n"})
    assert MARK.read(fleet.run_query) == known()
    fleet = balancer(
        {"show table http key 203.0.113.9": rows("http", "203.0.113.9 use=0 exp=9 gpc0=1")}
    )
    fleet.script("lb1", haproxy_limits.query_limits().command, UNREADABLE)
    client = MARK.read(fleet.run_query)
    assert client.entry == known(1).entry
    assert "cannot read" in client.limits.error


def test_an_address_of_another_family_is_refused_before_it_is_sent():
    fleet = balancer()
    with pytest.raises(Refused, match="'::1' is not an IPv4 address"):
        MarkAbuser.model_validate({"host": "lb1", "address": "::1"}).read(fleet.run_query)
    assert sent(fleet) == ["show table"]


def test_a_table_that_keeps_no_such_counter_is_refused():
    unknown = {
        f"show table www data.{spelling} gt 9223372036854775807": "Unknown data type\n\n"
        for spelling in ("gpc0", "gpc[0]", "gpc")
    }
    www = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "table": "www"})
    with pytest.raises(Refused, match="www has no gpc0 that this HAProxy can set"):
        www.read(balancer({"show table www key 203.0.113.9": "\n", **unknown}).run_query)


def test_a_table_that_is_not_there_is_an_error_that_names_the_others():
    nowhere = MarkAbuser.model_validate({"host": "lb1", "address": "203.0.113.9", "table": "w"})
    with pytest.raises(CommandError, match="its tables: http, other, six, users, www"):
        nowhere.read(balancer().run_query)


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_invalid_address_is_refused_before_any_query(address: object):
    with pytest.raises(ValidationError):
        MarkAbuser.model_validate({"host": "lb1", "address": address})

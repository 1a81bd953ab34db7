from collections.abc import Sequence
from ipaddress import ip_network

import pytest
from pydantic import ValidationError

from connectors import haproxy
from connectors.errors import ParseError
from connectors.haproxy_limits import TableLimits, parse_config
from connectors.stick_table import TableEntry, TableHead
from runbooks import Plan, Refused
from runbooks._abusers import format_mark_end
from runbooks.abusers_bulk import ClearAbusers, MarkAbusers, MarkedTable
from tests.runbooks.balancer import (
    HTTP,
    LIMITS,
    SIX,
    build_balancer_fleet,
    build_table_output,
    get_sent_line,
)

LISTED = "203.0.113.9,203.0.113.64/30,203.0.113.9"


def mark(addresses: str = LISTED) -> MarkAbusers:
    return MarkAbusers.model_validate({"host": "lb1", "addresses": addresses})


def clear(addresses: str = LISTED) -> ClearAbusers:
    return ClearAbusers.model_validate({"host": "lb1", "addresses": addresses})


def make_state(
    marks: dict[str, int],
    *,
    head: TableHead = HTTP,
    limits: TableLimits = LIMITS,
    protected: Sequence[str] = (),
) -> MarkedTable:
    entries = {key: TableEntry(key, 0, 9, counters={"gpc0": n}) for key, n in marks.items()}
    return MarkedTable(head, entries, "gpc0", limits, [ip_network(each) for each in protected])


def test_abusers_bulk_marks_each_address_in_its_own_step():
    plan = mark().plan(make_state({"203.0.113.65": 3, "203.0.113.99": 1}))
    assert mark().addresses == "203.0.113.9,203.0.113.64/30"
    assert plan.current_state == "4 of 5 addresses are not marked in http"
    assert [get_sent_line(step.do) for step in plan.steps] == [
        f"set table http key 203.0.113.{last} data.gpc0 1\n" for last in (9, 64, 66, 67)
    ]
    assert get_sent_line(plan.steps[0].undo) == "set table http key 203.0.113.9 data.gpc0 0\n"


def test_abusers_bulk_unblocks_only_marked_clients_of_the_networks():
    state = make_state({"203.0.113.67": 9, "203.0.113.65": 1, "203.0.113.99": 1})
    plan = clear("203.0.113.0/26,203.0.113.64/29").plan(state)
    assert [get_sent_line(step.do) for step in plan.steps] == [
        f"set table http key 203.0.113.{last} data.gpc0 0\n" for last in (65, 67)
    ]
    assert get_sent_line(plan.steps[1].undo) == "set table http key 203.0.113.67 data.gpc0 1\n"
    assert (plan.steps[0].before, plan.steps[0].after) == ("marked (gpc0)", "not marked")


def test_abusers_bulk_plans_no_steps_when_nothing_changes():
    assert mark("203.0.113.9").plan(make_state({"203.0.113.9": 1})) == Plan(
        "203.0.113.9 is marked in http"
    )
    assert clear("203.0.113.9").plan(make_state({"203.0.113.8": 1})) == Plan(
        "none of 203.0.113.9 is marked in http"
    )


@pytest.mark.parametrize(
    ("addresses", "state", "reason"),
    [
        ("203.0.113.0/25", make_state({}), "more than 64 addresses"),
        ("2000::/3", make_state({}, head=SIX), "more than 64 addresses"),
        ("203.0.113.8/31", make_state({}, protected=["203.0.113.9"]), "haproxy.never_mark has"),
        ("2001:db8::9", make_state({}), "not an IPv4 address"),
        ("224.0.0.1", make_state({}), "not the address of one client"),
    ],
)
def test_abusers_bulk_refuses_addresses_that_must_not_be_marked(
    addresses: str, state: MarkedTable, reason: str
):
    with pytest.raises(Refused, match=reason):
        mark(addresses).plan(state)


def test_abusers_bulk_refuses_to_unblock_too_many_clients():
    many = make_state({f"203.0.113.{last}": 1 for last in range(65)})
    with pytest.raises(Refused, match="65 marked clients"):
        clear("203.0.113.0/24").plan(many)


def test_abusers_bulk_notes_private_addresses():
    assert any("private" in note for note in mark("10.0.0.1").plan(make_state({})).notes)
    assert not any("private" in note for note in mark().plan(make_state({})).notes)


@pytest.mark.parametrize(
    "addresses",
    [
        *("", ",", "203.0.113.9,", "203.0.113.9, 203.0.113.8", "203.0.113.9/24", "x", 9),
        *("fe80::1%eth0", "1.2.3.4;", "0x7f000001", ",".join(["203.0.113.9"] * 65)),
    ],
)
def test_abusers_bulk_refuses_an_invalid_network_list(addresses: object):
    with pytest.raises(ValidationError, match="addresses and networks, with commas"):
        MarkAbusers.model_validate({"host": "lb1", "addresses": addresses})


def test_abusers_bulk_reads_all_marks_with_one_query():
    fleet = build_balancer_fleet(
        {
            "show table http data.gpc0 ge 1": build_table_output(
                "http", "203.0.113.9 use=0 exp=9 gpc0=2"
            )
        }
    )
    state = clear().read(fleet.run_query)
    assert list(state.entries) == ["203.0.113.9"]
    assert len(clear().plan(state).steps) == 1
    users = MarkAbusers.model_validate({"host": "lb1", "addresses": "::1", "table": "users"})
    with pytest.raises(Refused, match="string keys, not addresses"):
        users.read(fleet.run_query)


def test_protected_networks_are_read_from_the_inventory():
    parse = haproxy.query_protected_networks().parse
    assert parse("10.0.0.0/8,2001:db8::7") == (
        ip_network("10.0.0.0/8"),
        ip_network("2001:db8::7"),
    )
    assert parse("") == ()
    with pytest.raises(ParseError, match="sets haproxy"):
        parse("10.0.0.1/8")


def test_end_of_a_mark_is_read_from_the_expire_setting_of_its_table():
    config = "backend http\n  stick-table type ip size 1m expire 10m store gpc0\n"
    peers = "peers mesh\n  table t1 type ip size 1m expire 5m\n  table t2 type ip size 1m\n"
    limits = parse_config(config + peers)
    assert limits.expiries == {"http": 600, "mesh/t1": 300}
    assert "10 min from now" in format_mark_end(limits, "http")
    for word, text in (("5400000", "1 h 30 min"), ("45s", "45 s"), ("2d", "2 days")):
        config = f"backend www\n  stick-table type ip size 1m expire {word} store gpc0\n"
        assert f"expires: {text} from now" in format_mark_end(parse_config(config), "www")
    assert format_mark_end(limits, "www") == "The mark ends when the entry of www expires."

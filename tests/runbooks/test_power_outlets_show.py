from connectors.pdu import Outlet
from tests.runbooks.declared import load_check

ShowOutlets = load_check("power outlets show")

SHOW = ShowOutlets.model_validate({"host": "pdu1"})
OUTLETS = tuple(
    Outlet(number, f"name {number}", state, "PDU2-MIB", f"1.{number}")
    for number, state in (("1", "on"), ("2", "off"), ("3", "state 11"))
)


def test_power_outlets_are_listed_with_what_is_behind_them():
    report = SHOW.report((OUTLETS, {"1": ("web1/psu1", "db1"), "3": ()}))
    assert (report.summary, report.healthy) == ("pdu1 has 1 of 3 outlets on", True)
    assert report.table is not None
    assert report.table.rows == [
        ("1", "on", "name 1", "web1/psu1, db1"),
        ("2", "off", "name 2", "not in the inventory"),
        ("3", "state 11", "name 3", "nothing"),
    ]


def test_power_outlet_that_only_the_inventory_has_is_a_finding():
    report = SHOW.report((OUTLETS, {"9": ("web1",)}))
    assert not report.healthy
    assert report.findings == ["power.outlets of pdu1 names outlet 9, which it does not have."]

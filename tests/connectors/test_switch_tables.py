"""Parsers of neighbours, MAC addresses and port errors, with recorded output of each platform."""

from pathlib import Path

import pytest

from connectors import switch_tables
from connectors.command import DeviceCommand, Query
from connectors.errors import ParseError
from connectors.switch_tables import LearnedAddress, Neighbour, PortErrors

ANSWERS = Path(__file__).parent / "answers" / "network"


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("cisco", 4, Neighbour("Fa0/13", "S2", "Gi0/13", "LLDP", frozenset("B"))),
        ("arista", 2, Neighbour("Et2", "arista2", "Ethernet2", "LLDP")),
        ("junos", 2, Neighbour("ge-0/0/1", "vmx2", "ge-0/0/1", "LLDP")),
        ("hp", 3, Neighbour("1", "11215p-swi006-g...", "1", "LLDP")),
    ],
)
def test_lldp_neighbours_of_each_platform_are_parsed(name: str, count: int, first: Neighbour):
    neighbours = switch_tables.parse_lldp_neighbours(answer(f"{name}-lldp-neighbours"))
    assert (len(neighbours), neighbours[0]) == (count, first)


@pytest.mark.parametrize(
    ("name", "cut"),
    [("cisco", "S2   "), ("arista", "Et2"), ("hp", "  1         |")],
)
def test_lldp_table_without_neighbours_is_empty_and_a_cut_off_one_an_error(name: str, cut: str):
    head = answer(f"{name}-lldp-neighbours").partition(cut)[0]
    empty = head + "\nTotal entries displayed: 0\n" * (name == "cisco")
    assert switch_tables.parse_lldp_neighbours(empty) == ()
    with pytest.raises(ParseError):
        switch_tables.parse_lldp_neighbours(head[:40])


def test_neighbours_are_switches_by_their_capabilities():
    cdp = switch_tables.parse_cdp_neighbours(answer("cisco-cdp-neighbours"))
    assert [each.name for each in cdp if each.is_switch] == ["router.domain.local"]
    lldp = switch_tables.parse_lldp_neighbours(answer("cisco-lldp-neighbours"))
    # One that does not say what it is counts as a switch.
    assert all(each.is_switch for each in lldp)
    for letters in ("T", "B,T", "W", "S"):
        capabilities = frozenset(letters.split(","))
        assert not Neighbour("Gi1/0/1", "x", "", "LLDP", capabilities).is_switch


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("cisco", 6, LearnedAddress("30a3.30a3.a1c3", "666", "Te1/30", "dynamic")),
        ("arista", 4, LearnedAddress("0012.3694.03ec", "3", "Et7", "static")),
        ("junos", 2, LearnedAddress("bc:ac:0a:ca:ca:30", "2", "ae3.0", "dynamic")),
        ("hp", 2, LearnedAddress("500000-260000", "17", "Trk1", "")),
        ("dell", 5, LearnedAddress("00:08:e3:ff:fc:28", "5", "g48", "dynamic")),
    ],
)
def test_mac_addresses_of_each_platform_are_parsed(name: str, count: int, first: LearnedAddress):
    addresses = switch_tables.parse_addresses(answer(f"{name}-addresses"))
    assert (len(addresses), addresses[0]) == (count, first)


def test_port_errors_of_cisco_and_hp_are_parsed():
    text = answer("cisco-interfaces").replace(
        "0 input errors, 0 CRC", "17 input errors, 12 CRC", 1
    )
    first, second = switch_tables.parse_errors(text)
    assert first == PortErrors("TwentyFiveGigE2/0/32", 17, 12, 0)
    assert (first.total, second.total) == (17, 0)
    counts = {
        each.port: each.total for each in switch_tables.parse_errors(answer("hp-interfaces"))
    }
    assert counts == {"1": 0, "3": 0, "4": 6700, "10": 0}


@pytest.mark.parametrize(
    "query",
    [
        switch_tables.query_lldp_neighbours(),
        switch_tables.query_cdp_neighbours(),
        switch_tables.query_addresses(),
        switch_tables.query_errors(),
    ],
)
@pytest.mark.parametrize("text", ["", "% Invalid input detected\n", "nothing of the kind\n"])
def test_invalid_switch_table_is_a_parse_error(query: Query[object], text: str):
    assert isinstance(query.command, DeviceCommand)
    with pytest.raises(ParseError):
        query.parse(text)

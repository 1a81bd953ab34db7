"""Parsers of the bonding driver, ip, ping and sysfs, with recorded output."""

import subprocess
from pathlib import Path
from typing import TypeVar

import pytest

from connectors import bond
from connectors.bond import ACTIVE_BACKUP, LACP, ROUND_ROBIN, Bond, BondMember
from connectors.command import Answer, Query, Shell, find_failure
from connectors.errors import ParseError, SettingError
from tests.connectors.understanding import is_understood
from tests.scripted_fleet import ScriptedFleet, build_inventory

T = TypeVar("T")

ANSWERS = Path(__file__).parent / "answers" / "network"


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_lacp_bond_read_as_root_is_parsed_with_its_partner():
    state = bond.parse_bond("bond0", answer("bond-8023ad"))
    assert (state.mode, state.is_up, state.is_monitored) == (LACP, True, True)
    assert (state.aggregator, state.port_count, state.partner) == (1, 4, "52:54:00:00:02:01")
    assert not state.is_lacp_hidden
    assert not state.is_without_partner
    assert state.members[1] == BondMember(
        "eth1",
        "up",
        1000,
        "full",
        0,
        aggregator=1,
        partner="52:54:00:00:02:01",
        state=63,
        partner_state=63,
    )
    assert [member.refusing_end for member in state.members] == [""] * 4


def test_lacp_bond_read_without_root_hides_its_partner():
    state = bond.parse_bond("bond0", answer("bond-8023ad-not-root"))
    assert state.is_lacp_hidden
    assert len(state.members) == 4
    assert (state.aggregator, state.partner) == (None, None)
    assert [member.aggregator for member in state.members] == [1] * 4


@pytest.mark.parametrize(
    ("name", "mode", "up", "watched", "links"),
    [
        ("bond-rr", ROUND_ROBIN, True, True, ["up"] * 4),
        ("bond-rr-one-down", ROUND_ROBIN, True, True, ["up", "down", "up", "up"]),
        ("bond-rr-no-members", ROUND_ROBIN, False, True, []),
        ("bond-backup", ACTIVE_BACKUP, True, True, ["up", "up"]),
        ("bond-fail-over-mac", ACTIVE_BACKUP, True, True, ["up", "up"]),
        ("bond-arp", ACTIVE_BACKUP, True, True, ["up", "going down"]),
        ("bond-unwatched", ROUND_ROBIN, True, False, ["up"]),
    ],
)
def test_every_bonding_mode_is_parsed(
    name: str, mode: str, up: bool, watched: bool, links: list[str]
):
    state = bond.parse_bond("bond0", answer(name))
    assert (state.mode, state.is_up, state.is_monitored) == (mode, up, watched)
    assert [member.link_state for member in state.members] == links


def test_active_backup_bond_is_parsed_with_active_and_primary_member():
    state = bond.parse_bond("bond0", answer("bond-backup"))
    assert (state.active_member, state.primary_member) == ("eth0", "eth0")
    assert bond.parse_bond("bond0", answer("bond-arp")).primary_member == ""


@pytest.mark.parametrize("policy", ["active", "follow"])
def test_active_backup_bond_is_recognised_with_each_fail_over_mac_policy(policy: str):
    text = answer("bond-fail-over-mac").replace("fail_over_mac active", f"fail_over_mac {policy}")
    state = bond.parse_bond("bond0", text)
    assert state.mode == ACTIVE_BACKUP
    assert (state.active_member, state.primary_member) == ("ib1", "ib0")


def test_lacp_bond_without_an_active_aggregator_carries_nothing():
    head, member = answer("bond-8023ad").split("Active Aggregator Info:\n", 1)
    _, _, members = member.partition("\n\n")
    text = f"{head}bond bond0 has no active aggregator\n\n{members}"
    state = bond.parse_bond("bond0", text)
    assert (state.aggregator, state.port_count, state.is_lacp_hidden) == (0, 0, False)
    assert not any(map(state.is_carrying, state.members))


def test_lacp_member_without_an_aggregator_carries_nothing():
    first, second, *others = answer("bond-8023ad").split("Slave Interface: ")
    second = second.replace("Aggregator ID: 1", "Aggregator ID: N/A")
    state = bond.parse_bond("bond0", "Slave Interface: ".join((first, second, *others)))
    assert [state.is_carrying(member) for member in state.members] == [False, True, True, True]


def test_bond_member_with_failures_is_up_when_its_link_is_up():
    eth2 = bond.parse_bond("bond0", answer("bond-rr-one-down")).members[2]
    assert (eth2.link_state, eth2.failure_count) == ("up", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cat: something\n",
        answer("bond-backup-cut-off"),
        answer("bond-8023ad").replace("Bonding Mode", "Modus"),
        answer("bond-8023ad").replace("Aggregator ID: 1", "Aggregator ID: one"),
        answer("bond-rr").replace("MII Status: up", "", 1),
    ],
)
def test_bond_status_that_is_cut_off_or_unknown_is_not_understood(text: str):
    assert not is_understood(lambda: bond.parse_bond("bond0", text))


def test_links_of_iproute2_are_parsed_with_their_counters():
    links = bond.parse_links(answer("iproute2-6.1-link"))
    assert links["eth0"].mtu == 1400
    assert links["lo"].sent_bytes == links["lo"].received_bytes > 0
    assert links["lo"].error_count == 0


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"ifname": "eth0"}]', "Device not found"])
def test_invalid_links_of_iproute2_are_a_parse_error(text: str):
    with pytest.raises(ParseError):
        bond.parse_links(text or "x")


def test_drivers_of_network_cards_are_parsed():
    assert bond.parse_drivers(answer("sysfs-drivers")) == {"eth0": "virtio_net"}
    assert bond.parse_drivers("") == {}
    assert not is_understood(lambda: bond.parse_drivers("grep: no\n"))


@pytest.mark.parametrize(("name", "whole"), [("ping-whole", True), ("ping-too-big", False)])
def test_ping_reports_whether_every_packet_returned(name: str, whole: bool):
    assert bond.parse_ping(answer(name)) is whole


def test_ping_without_a_summary_is_a_parse_error():
    with pytest.raises(ParseError):
        bond.parse_ping("PING nowhere\n")


def test_mtu_ping_is_as_large_as_the_mtu_less_its_headers():
    for peer, size in (("10.9.0.2", "8972"), ("2001:db8::2", "8952")):
        command = bond.query_packet_fits(bond_address(peer), 9000).command
        assert isinstance(command, Shell)
        assert command.words[command.words.index("-s") + 1] == size
        assert command.words[-2:] == ("--", peer)


def bond_address(text: str) -> bond.IPv4Address | bond.IPv6Address:
    return bond.IPv4Address(text) if "." in text else bond.IPv6Address(text)


def test_bond_is_sampled_twice_by_one_command(tmp_path: Path):
    """The script runs here, with a recorded bond of the loopback interface."""
    file = tmp_path / "bond0"
    file.write_text(answer("bond-rr").replace("eth0", "lo").split("Slave Interface: eth1")[0])
    command = bond.query_samples("bond0", seconds=1).command
    assert isinstance(command, Shell)
    words = [str(file) if word.startswith("/proc/net") else word for word in command.words]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    first, second = bond.parse_samples("bond0", output)
    assert 1 <= second.uptime - first.uptime < 5
    assert first.bond == second.bond
    assert second.links["lo"].sent_bytes >= first.links["lo"].sent_bytes


@pytest.mark.parametrize(
    "text", ["", "== 1.0\n", f"{answer('bond-rr')}\n[]\n== 1.0\n", "x\n[]\n== 1\ny\n[]\n== 2\n"]
)
def test_fewer_than_two_bond_samples_are_a_parse_error(text: str):
    with pytest.raises(ParseError):
        bond.parse_samples("bond0", text)


def test_bond_samples_without_links_of_a_member_are_a_parse_error():
    look = f"{answer('bond-rr')}{answer('iproute2-6.1-link')}== 1.0\n"
    with pytest.raises(ParseError, match="does not list members of bond0: eth1, eth2, eth3"):
        bond.parse_samples("bond0", look * 2)


def test_missing_bond_or_bonding_driver_is_reported():
    query = bond.query_bond("bond9")
    failure = Answer(1, "", "cat: /proc/net/bonding/bond9: No such file or directory\n")
    assert "no bond of that name" in str(find_failure(query.command, failure, query.statuses))
    failure = Answer(2, "", "ls: cannot access '/proc/net/bonding': No such file or directory\n")
    assert "driver is not loaded" in str(
        find_failure(bond.query_bonds().command, failure, frozenset({0}))
    )


def test_switch_lag_of_a_bond_is_read_from_the_inventory():
    query = bond.query_switch_lag("bond0")
    assert _resolve_setting(query, {"bond0.switch": "sw1 port-channel1"}) == (
        "sw1",
        "port-channel1",
    )
    assert _resolve_setting(query, {}) is None


@pytest.mark.parametrize(
    "word", ["sw1", "sw1 1", "sw1 po1; reload", "-n sw1 po1", "sw1 po1 x", ""]
)
def test_bond_switch_setting_without_a_port_channel_is_refused(word: str):
    with pytest.raises(SettingError, match=r"bond0\.switch"):
        _resolve_setting(bond.query_switch_lag("bond0"), {"bond0.switch": word})


def test_switch_ports_of_a_bond_are_read_from_the_inventory():
    query = bond.query_switch_ports("bond0")
    known = _resolve_setting(query, {"bond0.ports": "sw1:Gi1/0/1 sw2:g2"})
    assert known == (("sw1", "Gi1/0/1"), ("sw2", "g2"))
    assert _resolve_setting(query, {}) == ()


@pytest.mark.parametrize(
    "word", ["sw1", "sw1:", "sw1:Gi1;reload", "-n sw1:Gi1", "sw1:Gi1,sw1:Gi2", "", "sw1 :Gi1"]
)
def test_bond_ports_setting_that_names_no_port_is_refused(word: str):
    with pytest.raises(SettingError, match=r"bond0\.ports"):
        _resolve_setting(bond.query_switch_ports("bond0"), {"bond0.ports": word})


def _resolve_setting(query: Query[T], settings: dict[str, str]) -> T:
    host = build_inventory("web1")["web1"].model_copy(update={"settings": settings})
    inventory = build_inventory("web1").model_copy(update={"hosts": {"web1": host}})
    return ScriptedFleet(inventory=inventory).run_query("web1", query)


def test_lacp_member_names_the_end_that_refuses_the_aggregation():
    member = BondMember("eth0", "up", 1000, "full", 0, state=63, partner_state=63)
    assert member.refusing_end == ""
    for state, partner_state, who in ((7, 63, "this host"), (63, 7, "the switch")):
        kept = BondMember("eth0", "up", 1000, "full", 0, state=state, partner_state=partner_state)
        assert kept.refusing_end == who


def test_bond_without_monitoring_is_parsed():
    assert isinstance(bond.parse_bond("bond0", answer("bond-unwatched")), Bond)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Ip: Forwarding ReasmReqds ReasmOKs\nIp: 1 14 2\nIcmp: InMsgs\nIcmp: 4\n", 2),
        ("Ip6InReceives                   \t41\nIp6ReasmOKs                     \t3\n", 3),
    ],
)
def test_reassembled_packets_are_counted(text: str, count: int):
    assert bond.parse_reassembled(text) == count


@pytest.mark.parametrize("text", ["", "Ip: ReasmOKs\n", "Ip: ReasmOKs\nIp: x\n", "Ip: A\nIp: 1\n"])
def test_invalid_reassembly_counters_are_a_parse_error(text: str):
    with pytest.raises(ParseError):
        bond.parse_reassembled(text)


def test_reassembly_counters_of_the_running_kernel_are_parsed():
    file = Path("/proc/net/snmp6")
    assert bond.parse_reassembled(Path("/proc/net/snmp").read_text()) >= 0
    assert not file.exists() or bond.parse_reassembled(file.read_text()) >= 0

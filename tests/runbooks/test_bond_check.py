from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from bot.model import request_form
from connectors.bond import ACTIVE_BACKUP, LACP, Bond, LinkCounters, parse_bond, parse_links
from connectors.command import Answer, QueryCommand
from connectors.errors import CommandError, ParseError, UnreachableError
from connectors.switch import Lag, LagMember, SwitchPort
from runbooks import EarlierReport, Refused, Report, Table
from runbooks.bond_check import BondCheck, BondState, CableEnd, SwitchSide
from tests.runbooks.network import build_network_fleet, recorded
from tests.scripted_fleet import Replies, ScriptedFleet

CHECK = BondCheck.model_validate({"host": "nas1"})
FILE = "/proc/net/bonding/bond0"
CARDS = ("eth0", "eth1", "eth2", "eth3")
UEVENTS = " ".join(f"/sys/class/net/{card}/device/uevent" for card in CARDS)
DRIVERS = "".join(f"/sys/class/net/{card}/device/uevent:DRIVER=virtio_net\n" for card in CARDS)
MAC = "52:54:00:00:02:01"
NOBODY = "00:00:00:00:00:00"


def links(**mtus: int) -> str:
    """Return the output of ip for these cards, from the recording of one."""
    (one,) = [
        each for each in recorded("iproute2-6.1-link").split(',{"ifindex"') if '"eth0"' in each
    ]
    listed = (
        f'{{"ifindex"{one}'.replace('"eth0"', f'"{name}"').replace('"mtu":1400', f'"mtu":{mtu}')
        for name, mtu in mtus.items()
    )
    return f"[{','.join(text.rstrip().rstrip(']') for text in listed)}]"


def make_route(interface: str, more: str = "") -> str:
    """Return the output of `ip -j route get`, as iproute2 6.1 prints it."""
    return (
        f'[{{"dst":"10.9.0.2","dev":"{interface}","prefsrc":"10.9.0.1","flags":[],"uid":0,'
        f'"cache":[]{more}}}]'
    )


ROUTE = "ip -j route get 10.9.0.2"
LINKS = links(bond0=9000, eth0=9000, eth1=9000, eth2=9000, eth3=9000)


def host(
    bond: str = "bond-8023ad",
    *,
    more: Mapping[str, Replies] | None = None,
    lag: Replies | None = None,
    ports: Sequence[str] = (),
    user: str = "root",
) -> ScriptedFleet:
    sudo = "" if user == "root" else "sudo -n -- "
    answers: dict[tuple[str, str | QueryCommand], Replies] = {
        ("nas1", "ls -1 /proc/net/bonding"): "bond0\n",
        ("nas1", f"cat {FILE}"): recorded(bond),
        ("nas1", "ip -j -s link show"): LINKS,
        ("nas1", f"grep -sH '^DRIVER=' -- {UEVENTS}"): Answer(2, DRIVERS),
        ("nas1", "true"): "",
        ("nas1", ROUTE): make_route("bond0"),
        ("sw1", "show interfaces status"): recorded("cisco-interfaces-status"),
        **{("nas1", words.replace("SUDO ", sudo)): reply for words, reply in (more or {}).items()},
    }
    if lag is not None:
        answers["sw1", "show etherchannel summary"] = lag
    settings = {"bond0.switch": "sw1 port-channel1"} if lag is not None else {}
    settings |= {"bond0.ports": " ".join(f"sw1:{port}" for port in ports)} if ports else {}
    platforms = {"nas1": "linux", "sw1": "cisco_ios"}
    return build_network_fleet(answers, platforms=platforms, settings=settings, user=user)


def healthy(name: str = "bond-8023ad") -> BondState:
    bond = parse_bond("bond0", recorded(name))
    return BondState(bond, parse_links(LINKS), {})


def findings(state: BondState) -> list[str]:
    report = CHECK.report(state)
    return list(report.findings)


def with_member(state: BondState, /, **changed: object) -> BondState:
    """Return the state with its second member changed."""
    first, second, *rest = state.bond.members
    members = (first, replace(second, **changed), *rest)  # type: ignore[arg-type]  # as the test says
    return replace(state, bond=replace(state.bond, members=members))


def test_healthy_lacp_bond_has_no_findings():
    report = CHECK.report(CHECK.read(host().run_query))
    settings = f"{LACP}, hash policy layer3+4, LACP rate fast, MTU 9000"
    assert report.summary == f"bond0 on nas1 ({settings}) has 4 of 4 members up"
    assert (report.healthy, list(report.findings)) == (True, [])
    assert report.table is not None
    assert report.table.rows[0] == (
        *("eth0", "up", "1000", "full", "0", f"{MAC} (1)", "0", "virtio_net"),
    )


def test_bond_check_names_the_vlans_of_a_bond():
    """`ip -j link` prints the lower device as `link`: ip-link(8)."""
    vlan = links(bond0=9000).replace('"bond0"', '"bond0.7","link":"bond0"').strip("[]")
    state = replace(healthy(), links=parse_links(f"{LINKS.rstrip(']')},{vlan}]"))
    assert "MTU 9000, VLANs bond0.7) has" in CHECK.report(state).summary


def test_bond_check_uses_no_sudo_without_lacp():
    asked = host("bond-rr", user="keyturn")
    CHECK.read(asked.run_query)
    assert not [words for _, words in asked.asked if "sudo" in words]


def test_bond_check_reads_lacp_details_as_root():
    more: dict[str, Replies] = {f"SUDO cat {FILE}": recorded("bond-8023ad")}
    asked = host("bond-8023ad-not-root", more=more, user="keyturn")
    assert CHECK.report(CHECK.read(asked.run_query)).findings == []


def test_bond_check_reports_lacp_as_unknown_without_root():
    refusal = Answer(1, "", "sudo: a password is required\n")
    asked = host("bond-8023ad-not-root", more={f"SUDO cat {FILE}": refusal}, user="keyturn")
    report = CHECK.report(CHECK.read(asked.run_query))
    (note,) = report.findings
    assert "it is unknown whether the switch uses LACP: the login may not run this" in note
    assert report.healthy
    assert report.table is not None
    assert {row[5] for row in report.table.rows} == {"unknown (1)"}


def test_bond_members_in_different_aggregators_are_found_without_root():
    state = with_member(healthy("bond-8023ad-not-root"), aggregator=2)
    assert findings(state)[0].startswith(
        "the members are in different aggregators (eth0 1, eth1 2"
    )


def test_bond_check_refuses_a_missing_bond_and_names_the_others():
    other = BondCheck.model_validate({"host": "nas1", "bond": "bond9"})
    with pytest.raises(Refused, match="nas1 has no bond9: it has bond0"):
        other.read(host().run_query)
    none = host(
        more={"ls -1 /proc/net/bonding": Answer(2, "", "ls: cannot access '/proc/net/bonding'")}
    )
    with pytest.raises(CommandError, match="bonding driver is not loaded"):
        CHECK.read(none.run_query)


def test_bond_that_ip_does_not_list_is_a_parse_error():
    with pytest.raises(ParseError, match="ip does not list it"):
        CHECK.read(host(more={"ip -j -s link show": recorded("iproute2-6.1-link")}).run_query)


# --- a channel that is dead although every link is up ---


def test_bond_without_an_lacp_partner_is_a_finding():
    state = healthy()
    bond = replace(state.bond, port_count=1, partner=NOBODY)
    problems = findings(replace(state, bond=bond))
    assert problems == [
        "bond0 has no LACP partner: the switch's ports are in no LACP group, so at most one "
        "member carries traffic, although every link is up"
    ]


def test_bond_without_an_lacp_partner_claims_no_link_that_is_down():
    state = with_member(healthy(), link_state="down")
    bond = replace(state.bond, port_count=1, partner=NOBODY)
    first, second = findings(replace(state, bond=bond))
    assert first.endswith("most one member carries traffic, although 3 links are up")
    assert second.startswith("eth1 has no link")


def test_bond_member_in_another_aggregator_is_a_finding():
    state = with_member(healthy(), aggregator=2)
    problems = findings(replace(state, bond=replace(state.bond, port_count=3)))
    assert problems == [
        "3 of the 4 members that are up are in LACP's active aggregation",
        "eth1 is in aggregator 2, but the active one is 1: it carries no traffic. Check whether "
        "its cable is in another switch or group",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"partner": "52:54:00:00:09:09"},
            "eth1 has the partner 52:54:00:00:09:09, but the others have",
        ),
        ({"is_churned": True}, "eth1 is kept out of the aggregation by one of its ends"),
        ({"partner_state": 7}, "eth1 is kept out of the aggregation by the switch"),
        ({"state": 7}, "eth1 is kept out of the aggregation by this host"),
        ({"duplex": "half"}, "eth1 runs in half duplex"),
        ({"speed": 100}, "the members have different speeds: eth0 1000, eth1 100, eth2 1000"),
        ({"speed": None}, "the members have different speeds: eth0 1000, eth1 unknown"),
        ({"link_state": "down"}, "eth1 has no link"),
        ({"link_state": "going down"}, "eth1 is going down"),
        ({"link_state": "going back"}, "eth1 is going back"),
    ],
)
def test_bond_member_that_carries_no_traffic_is_a_finding(changed: dict[str, object], words: str):
    report = CHECK.report(with_member(healthy(), **changed))
    assert not report.healthy
    assert any(finding.startswith(words) for finding in report.findings), report.findings


# --- other modes ---


def test_bond_check_explains_round_robin():
    report = CHECK.report(CHECK.read(host("bond-rr").run_query))
    assert report.healthy
    assert report.findings[0].startswith("round-robin gives one connection")


@pytest.mark.parametrize(
    ("ports", "is_fine"),
    [
        (["Gi1/0/2", "gi1/0/4", "Gi1/0/5", "Po1"], []),
        (["Gi1/0/2", "Gi1/0/6", "Gi1/0/5", "Po1"], ["sw1: Gi1/0/2 and Gi1/0/6 share VLAN 8, so"]),
        (["Gi1/0/2", "Gi1/0/4", "Gi9", "Po1"], ["sw1 has no port Gi9, which is in the inventory"]),
        (["Gi1/0/2", "Gi1/0/4"], ["the inventory has 2 ports, but the bond has 4 members"]),
        (["Gi1/0/1", "Gi1/0/2", "Gi1/0/5", "Po1"], ["sw1: Gi1/0/1 is down"]),
        (["Gi1/0/2", "Gi1/0/4", "Gi1/0/16", "Po1"], ["sw1: Gi1/0/16 is err-disabled"]),
    ],
)
def test_round_robin_ports_in_one_vlan_are_a_finding(ports: list[str], is_fine: list[str]):
    report = CHECK.report(CHECK.read(host("bond-rr", ports=ports).run_query))
    assert report.healthy is not bool(is_fine)
    assert len(report.findings) == len(is_fine)
    assert all(one.startswith(words) for one, words in zip(report.findings, is_fine, strict=True))


def test_unreadable_switch_ports_of_a_bond_are_reported_once():
    silent: Replies = UnreachableError("sw1 is down")
    build_network_fleet = host("bond-rr", ports=["Gi1", "Gi2", "Gi3", "Gi4"])
    build_network_fleet.script("sw1", "show interfaces status", silent)
    assert CHECK.report(CHECK.read(build_network_fleet.run_query)).findings == [
        "the switch ports of the cables could not be read: sw1 is down"
    ]
    sockets = [CableEnd("sw2", f"g{n}", SwitchPort(f"g{n}", "up")) for n in (1, 2, 3, 4)]
    state = replace(healthy("bond-rr"), cable_ends=sockets)
    assert findings(state)[0] == "sw2 does not show the VLAN of g1"


def test_bond_check_queries_no_switch_ports_without_round_robin():
    asked = host(ports=["Gi1/0/2", "Gi1/0/6"])
    assert CHECK.report(CHECK.read(asked.run_query)).healthy
    assert not [name for name, _ in asked.asked if name == "sw1"]


# --- since last time ---

AT = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def add_earlier_report(state: BondState, **failures: int) -> BondState:
    """Return the state with an earlier report of these failure counts."""
    members = tuple(
        replace(each, failure_count=failures[each.name])
        for each in state.bond.members
        if each.name in failures
    )
    before = replace(state, bond=replace(state.bond, members=members), earlier=None)
    return replace(state, earlier=EarlierReport(AT, CHECK.report(before)))


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (3, 1, "eth1 lost its link 2 times since the last check at 2026-03-01 08:00 UTC"),
        (2, 1, "eth1 lost its link once since the last check at 2026-03-01 08:00 UTC"),
        # It joined anew meanwhile, and counts from zero.
        (1, 7, "eth1 lost its link once since"),
    ],
)
def test_bond_links_lost_since_the_last_check_are_a_finding(now: int, before: int, words: str):
    state = with_member(healthy(), failure_count=now)
    report = CHECK.report(add_earlier_report(state, eth0=0, eth1=before, eth2=0, eth3=0))
    assert not report.healthy
    assert report.findings[0].startswith(words)


def test_member_that_the_bond_had_at_the_last_check_is_missed():
    state = add_earlier_report(healthy(), eth0=0, eth1=0, eth2=0, eth3=0)
    left = state.bond.members[:3]
    report = CHECK.report(replace(state, bond=replace(state.bond, members=left, port_count=3)))
    assert not report.healthy
    assert report.findings[0].startswith(
        "eth3 is no member any more: it was one at the last check"
    )


def test_bond_links_lost_before_the_last_check_are_no_problem():
    state = with_member(healthy(), failure_count=5)
    report = CHECK.report(add_earlier_report(state, eth0=0, eth1=5, eth2=0, eth3=0))
    assert report.healthy
    assert "eth1 5 times, none since the last check;" in report.findings[-1]


def test_bond_check_ignores_new_members_and_earlier_reports_of_another_form():
    state = with_member(healthy(), failure_count=5)
    assert CHECK.report(add_earlier_report(state, eth0=0)).healthy
    other = EarlierReport(AT, Report("it was well", table=Table(("Member",), [("eth1",)])))
    report = CHECK.report(replace(state, earlier=other))
    assert report.healthy
    assert "none since" not in report.findings[-1]


def test_bond_links_that_were_lost_once_are_reported_without_a_problem():
    state = healthy("bond-rr-one-down")
    report = CHECK.report(state)
    assert report.findings[0].startswith("eth1 has no link")
    assert "eth1 once, eth2 once" in report.findings[-1]
    up = with_member(state, link_state="up")
    assert CHECK.report(up).healthy


def test_bond_with_no_members_or_one_member_is_a_finding():
    report = CHECK.report(CHECK.read(host("bond-rr-no-members").run_query))
    assert report.findings[0] == "bond0 has no members: it carries no traffic"
    lonely = findings(healthy("bond-unwatched"))
    assert lonely[0] == "bond0 has only one member, eth2: no redundancy"
    assert lonely[1].startswith("the links of bond0 are not monitored (miimon is 0)")


def test_active_backup_bond_on_its_secondary_member_is_a_finding():
    state = healthy("bond-backup")
    assert findings(state) == []
    moved = replace(state, bond=replace(state.bond, active_member="eth1"))
    assert findings(moved) == ["eth1 is active although eth0 is the primary"]
    assert moved.bond.mode == ACTIVE_BACKUP


def test_bond_that_is_down_is_a_finding():
    state = healthy("bond-rr")
    assert findings(replace(state, bond=replace(state.bond, is_up=False)))[0].startswith(
        "bond0 is down"
    )


# --- sizes of packets ---

PEER = BondCheck.model_validate({"host": "nas1", "peer": "10.9.0.2"})
BIG = "ping -n -M do -s 8972 -c 2 -W 2 -- 10.9.0.2"
SMALL = "ping -n -M do -s 56 -c 2 -W 2 -- 10.9.0.2"


COUNT = "cat /proc/net/snmp"


def counted(*numbers: int) -> Replies:
    """Return the kernel's counters of reassembled packets, one answer for each reading."""
    lines = "Ip: Forwarding ReasmReqds ReasmOKs ReasmFails\nIp: 2 {} {} 0\nIcmp: InMsgs\nIcmp: 9\n"
    return [lines.format(number * 7, number) for number in numbers]


@pytest.mark.parametrize(
    ("big", "small", "words"),
    [
        ("ping-whole", "", ""),
        (
            "ping-too-big",
            "ping-whole",
            "10.9.0.2 answers small packets but not packets of 9000 bytes",
        ),
        ("ping-too-big", "ping-too-big", "10.9.0.2 does not answer pings"),
    ],
)
def test_bond_peer_that_does_not_answer_mtu_sized_packets_is_a_finding(
    big: str, small: str, words: str
):
    more: dict[str, Replies] = {BIG: Answer(int(big != "ping-whole"), recorded(big))}
    more[COUNT] = counted(5, 5, 5, 5)
    if small:
        more[SMALL] = Answer(int(small != "ping-whole"), recorded(small))
    report = PEER.report(PEER.read(host(more=more).run_query))
    assert report.healthy is not bool(words)
    assert not words or report.findings[0].startswith(words)


@pytest.mark.parametrize(
    ("counts", "healthy", "words"),
    [
        (
            (5, 7, 7, 7),
            False,
            "packets of 9000 bytes reach 10.9.0.2, but its answers are fragmented: the MTU "
            "of 10.9.0.2, or of a router on the way back, is smaller",
        ),
        # One packet of somebody else's meanwhile.
        ((5, 6), True, None),
        # Others come in pieces all the time.
        (
            (5, 9, 9, 14),
            True,
            "it is unknown whether the peer's answers are fragmented: this host receives other "
            "fragmented packets at the same time",
        ),
    ],
)
def test_bond_peer_with_fragmented_answers_is_a_finding(
    counts: Sequence[int], healthy: bool, words: str | None
):
    more: dict[str, Replies] = {BIG: recorded("ping-whole"), SMALL: recorded("ping-whole")}
    more[COUNT] = counted(*counts)
    report = PEER.report(PEER.read(host(more=more).run_query))
    assert (report.healthy, list(report.findings)) == (healthy, [words] if words else [])


def make_stacked_links() -> str:
    """Return what ip lists with a VLAN of 1500 bytes on the bond, and a card that is apart."""
    vlan = links(**{"bond0.7": 1500}).replace('"ifname"', '"link":"bond0","ifname"')
    apart = links(eth9=1500)
    return f"{LINKS.rstrip(']')},{vlan.strip('[]')},{apart.strip('[]')}]"


def check_route(route: Replies, size: int) -> tuple[Sequence[str], ScriptedFleet]:
    """Return the findings and notes for a peer that answers packets of this size only."""
    ping = BIG.replace("8972", str(size - 28))
    more: dict[str, Replies] = {"ip -j -s link show": make_stacked_links(), ROUTE: route}
    more |= {ping: recorded("ping-whole"), COUNT: counted(5, 5)}
    fleet = host(more=more)
    return PEER.report(PEER.read(fleet.run_query)).findings, fleet


@pytest.mark.parametrize(
    ("route", "size", "words"),
    [
        (make_route("bond0"), 9000, []),
        # The peer is behind a VLAN of the bond with a smaller MTU.
        (
            make_route("bond0.7"),
            1500,
            [
                "the peer was tested with packets of 1500 bytes, the MTU of the route through "
                "bond0.7"
            ],
        ),
        (
            make_route("bond0", ',"metrics":[{"mtu":4000}]'),
            4000,
            ["the peer was tested with packets of 4000 bytes, the MTU of the route through bond0"],
        ),
        # The kernel has learned that the path is narrow: that is what is to be found.
        (make_route("bond0", ',"expires":597,"metrics":[{"mtu":1400}]'), 9000, []),
        (
            make_route("eth9"),
            1500,
            [
                "packets to 10.9.0.2 leave through eth9, not through bond0: enter a peer behind "
                "the bond",
                "the peer was tested with packets of 1500 bytes, the MTU of the route through "
                "eth9",
            ],
        ),
    ],
)
def test_peer_is_tested_with_packets_of_its_route(route: str, size: int, words: Sequence[str]):
    assert check_route(route, size)[0] == words


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (
            Answer(2, "", "RTNETLINK answers: Network is unreachable\n"),
            "the MTU of the path to 10.9.0.2 is unknown: the host has no route to this peer",
        ),
        (make_route("vrf0"), "unknown: ip does not list vrf0, the interface of its route"),
        ("{}", "unknown: ip printed '{}' instead of a route"),
    ],
)
def test_rest_of_the_bond_is_reported_when_the_route_of_the_peer_is_unknown(
    route: Replies, words: str
):
    fleet = host(more={ROUTE: route})
    report = PEER.report(PEER.read(fleet.run_query))
    assert words in report.findings[0]
    assert report.table is not None
    assert len(report.table.rows) == len(CARDS)


def test_bond_members_with_another_mtu_are_a_finding():
    state = replace(
        healthy(), links={**healthy().links, "eth2": LinkCounters("eth2", 1500, 0, 0, 0)}
    )
    assert findings(state) == ["bond0 has an MTU of 9000, but some members differ: eth2 1500"]


# --- the other end ---


def test_bond_check_reports_host_and_switch_side_together():
    report = CHECK.report(CHECK.read(host(lag=recorded("cisco-etherchannel")).run_query))
    assert (report.healthy, list(report.findings)) == (True, [])


def test_bond_check_reports_the_host_side_when_the_switch_is_unreachable():
    report = CHECK.report(CHECK.read(host(lag=UnreachableError("sw1 is down")).run_query))
    assert list(report.findings) == [
        "the other end, port-channel1 on sw1, could not be read: sw1 is down"
    ]


@pytest.mark.parametrize(
    ("lag", "words"),
    [
        (None, "sw1 has no Po1, which the inventory sets as the end of bond0"),
        (Lag("Po1", False, "LACP", ()), "sw1: Po1 is down"),
        (
            Lag("Po1", True, "LACP", (LagMember("Gi1", "bundled"), LagMember("Gi2", "suspended"))),
            "sw1: Gi2 is not bundled into Po1: suspended",
        ),
        (
            Lag("Po1", True, "LACP", (LagMember("Gi1", "bundled"), LagMember("Gi2", "bundled"))),
            "2 ports are bundled on sw1, but 4 members are up here",
        ),
        (
            Lag("Po1", True, "", tuple(LagMember(f"Gi{n}", "bundled") for n in range(4))),
            "sw1 does not use LACP on Po1, but the mode here is IEEE 802.3ad",
        ),
    ],
)
def test_bond_and_switch_lag_that_differ_are_a_finding(lag: Lag | None, words: str):
    report = CHECK.report(replace(healthy(), switch_side=SwitchSide("sw1", "Po1", lag)))
    assert not report.healthy
    assert report.findings[0].startswith(words)


def test_switch_lag_with_unknown_members_is_noted_and_healthy():
    far = SwitchSide("sw2", "ch1", Lag("ch1", True, "", None))
    state = replace(healthy(), switch_side=far)
    assert findings(state) == ["sw2 does not show which ports are in ch1: they were not checked"]
    assert CHECK.report(state).healthy


# --- what may be asked ---


@pytest.mark.parametrize(
    "name",
    [
        *("../../etc/shadow", "bond0/../x", "bond0; reboot", "bond0\n", "-a", ".", "..", ""),
        *("bond 0", "bond0\0", "bond0\u200b", "$(id)", "b" * 16, "*", "bond0'", "ｂond0"),
    ],
)
def test_invalid_bond_name_is_refused(name: str):
    with pytest.raises(ValidationError):
        BondCheck.model_validate({"host": "nas1", "bond": name})


@pytest.mark.parametrize("peer", [peer for peer in HOSTILE_ADDRESSES if peer is not None])
def test_invalid_bond_peer_address_is_refused(peer: object):
    with pytest.raises(ValidationError):
        BondCheck.model_validate({"host": "nas1", "peer": peer})


def test_bond_check_is_parsed_with_host_and_peer():
    assert request_form.parse_request(BondCheck, ["nas1"]) == CHECK
    assert request_form.parse_request(BondCheck, ["nas1", "peer=10.9.0.2"]) == PEER
    assert isinstance(CHECK.report(healthy()).summary, str)
    assert Bond("bond0", LACP, is_up=True, is_monitored=True, members=()).is_lacp_hidden is False

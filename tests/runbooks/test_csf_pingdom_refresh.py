from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors import csf_list
from connectors.command import Shell
from connectors.csf import Firewall
from connectors.errors import ParseError
from connectors.pingdom import ProbeFeed
from runbooks import NoUndo, Plan, Refused
from runbooks.csf_pingdom_refresh import ProbeState, RefreshPingdom
from tests.pingdom_feeds import BAD_FEEDS, FOURS, SIXES
from tests.plans import list_work
from tests.runbooks.firewall import ALL, INCLUDE, build_firewall, build_firewall_fleet, probes

REFRESH = RefreshPingdom.model_validate({"host": "web1"})
ACCEPTING = RefreshPingdom.model_validate({"host": "web1", "accept_size_change": True})
NEW = "5.173.1.1"


def plan(state: Firewall, feed: ProbeFeed, *, runbook: RefreshPingdom = REFRESH) -> Plan:
    return runbook.plan(ProbeState(state, feed))


def list_of(step_do: object) -> Sequence[str]:
    assert isinstance(step_do, Shell)
    return sorted(str(address) for address in csf_list.parse_list(step_do.stdin))


def test_pingdom_list_is_loaded_on_probation_and_kept():
    made = plan(build_firewall(), probes())
    assert made.current_state == "Pingdom's probes have 140 new addresses, and 0 were removed"
    (load,) = made.steps
    assert REFRESH.get_probation() == csf_list.PROBATION
    assert load.do == csf_list.load_list(_stdin(load.do), restart="-r")
    assert list_of(load.do) == sorted(ALL)
    assert (load.before, load.after) == ("0 addresses", "140 addresses")


def test_pingdom_refresh_refuses_a_firewall_that_is_off():
    off = build_firewall(ALL, in_force=[], loaded=())
    for feed in (probes(), probes((*ALL[1:], NEW))):
        with pytest.raises(Refused, match=r"turn it on\. .* start=firewall"):
            plan(off, feed)
        with pytest.raises(Refused, match="not loaded into ip6tables"):
            plan(build_firewall(ALL, loaded=["iptables"]), feed)


def test_pingdom_refresh_turns_the_firewall_on_when_requested():
    starting = RefreshPingdom.model_validate({"host": "web1", "start": "firewall"})
    made = plan(build_firewall(ALL, in_force=[], loaded=()), probes(), runbook=starting)
    assert made.current_state.startswith("The firewall is off")
    assert made.steps[0].title == "Replace Keyturn's list and turn the firewall on"
    assert (made.steps[0].before, made.steps[0].after) == (
        "the firewall is off, 140 addresses",
        "the firewall is on, 140 addresses",
    )
    assert made.notes[0].startswith("This turns the firewall on")
    # Where it is on, the word changes nothing.
    assert not plan(build_firewall(ALL), probes(), runbook=starting).steps


def _stdin(command: object) -> str:
    assert isinstance(command, Shell)
    return command.stdin


def test_pingdom_refresh_undo_loads_the_previous_list():
    state = build_firewall(ALL)
    made = plan(state, probes((*ALL[1:], NEW)))
    undone = [step.undo for step in reversed(made.steps)]
    assert state.own_list is not None
    assert undone == [csf_list.load_list(state.own_list, restart="-r")]
    assert not any(isinstance(step.undo, NoUndo) for step in made.steps)


def test_pingdom_list_that_is_current_and_in_force_plans_no_steps():
    made = plan(build_firewall(ALL), probes())
    assert made == Plan("web1 allows all 140 addresses of Pingdom's probes")


def test_pingdom_list_that_is_current_and_not_in_force_is_loaded():
    made = plan(build_firewall(ALL, in_force=ALL[7:]), probes())
    assert made.current_state == "The list is current, but 7 of its 140 addresses are not in force"
    assert len(made.steps) == 1


def test_pingdom_refresh_names_added_and_removed_addresses():
    made = plan(build_firewall(ALL), probes((*ALL[2:], NEW)))
    assert list(made.notes[:2]) == [f"Adds 1: {NEW}.", f"Removes 2: {ALL[0]}, {ALL[1]}."]


RESTING = "probe 141 has the unknown state 'Resting'"


def test_pingdom_refresh_keeps_an_address_while_its_feed_item_is_invalid():
    odd = replace(
        probes(ALL[1:]), skip_reasons=[RESTING], skipped_addresses=frozenset({ip_address(ALL[0])})
    )
    kept = (
        "Keeps 1 addresses that may belong to skipped items, until the feed is correct again: "
        f"{ALL[0]}."
    )
    # By itself it changes nothing.
    assert plan(build_firewall(ALL), odd) == Plan(
        "web1 allows all 139 addresses of Pingdom's probes",
        notes=(f"Skipped in Pingdom's feed: {RESTING}.", kept),
    )
    # And it stays where others come and go.
    moved = replace(odd, addresses=frozenset(map(ip_address, (*ALL[2:], NEW))))
    made = plan(build_firewall(ALL), moved)
    assert list_of(made.steps[0].do) == sorted((ALL[0], *ALL[2:], NEW))
    assert list(made.notes[:4]) == [
        f"Adds 1: {NEW}.",
        f"Removes 1: {ALL[1]}.",
        f"Skipped in Pingdom's feed: {RESTING}.",
        kept,
    ]
    # Where it is not on the list, it is not put there.
    first = plan(build_firewall(), odd)
    assert list_of(first.steps[0].do) == sorted(ALL[1:])


def test_pingdom_refresh_removes_nothing_while_an_invalid_item_is_unreadable():
    odd = replace(
        probes(ALL[3:]),
        skip_reasons=["probe 138 holds '5.172'"],
        unreadable_versions=frozenset({4}),
    )
    made = plan(build_firewall(ALL), odd)
    assert not made.steps
    assert made.notes[-1].startswith("Keeps 3 addresses that may belong to skipped items")
    six = replace(
        probes(ALL[:-3]),
        skip_reasons=["probe 138 holds '5.172'"],
        unreadable_versions=frozenset({4}),
    )
    assert list_of(plan(build_firewall(ALL), six).steps[0].do) == sorted(ALL[:-3])


def test_pingdom_refresh_refuses_a_shrunk_feed_with_invalid_items():
    odd = replace(
        probes(FOURS[21:]),
        skip_reasons=["probe 80 holds '5.172'"],
        unreadable_versions=frozenset({4}),
    )
    with pytest.raises(Refused, match="lacks 21 of the 100 IPv4 addresses"):
        plan(build_firewall(FOURS), replace(odd, addresses=odd.addresses | {ip_address(NEW)}))


def test_pingdom_refresh_counts_addresses_beyond_the_named_ones():
    (added, *_) = plan(build_firewall(), probes()).notes
    assert added.startswith("Adds 140: 5.172.0.1, ")
    assert added.endswith(" and 100 more.")


def test_pingdom_plan_is_not_stale_when_only_the_feed_date_changes():
    shown = plan(build_firewall(ALL[1:]), probes(built="Mon, 1 Nov 2027 10:00:00 +0000"))
    later = plan(
        build_firewall(ALL[1:]), probes(built="Mon, 1 Nov 2027 11:00:00 +0000", inactive=3)
    )
    assert list_work(later) == list_work(shown)
    assert any("dated Mon, 1 Nov 2027 11:00" in note for note in later.notes)
    assert any("3 more probes that are not active" in note for note in later.notes)


def test_pingdom_plan_is_stale_when_the_feed_has_other_addresses():
    shown = plan(build_firewall(ALL), probes((*ALL, NEW)))
    later = plan(build_firewall(ALL), probes((*ALL, "5.173.1.2")))
    assert list_work(later) != list_work(shown)


def test_pingdom_list_has_no_ipv6_when_csf_does_not_filter_it():
    four = build_firewall(settings={"IPV6": "0"})
    made = plan(four, probes())
    assert list_of(made.steps[0].do) == sorted(FOURS)
    assert "csf does not filter IPv6 here: 40 addresses are skipped." in made.notes


def test_pingdom_list_is_loaded_with_sf_when_lfd_restarts_csf():
    made = plan(build_firewall(settings={"LFDSTART": "1"}), probes())
    for step in made.steps:
        assert isinstance(step.do, Shell)
        assert "-sf" in step.do.words


@pytest.mark.parametrize(
    ("had", "has", "refused"),
    [
        (FOURS, FOURS[20:], False),
        (FOURS, FOURS[21:], True),
        (FOURS, [*FOURS, *(f"5.173.1.{n}" for n in range(50))], False),
        (FOURS, [*FOURS, *(f"5.173.1.{n}" for n in range(51))], True),
        # As many as before, and a fifth of them others.
        (FOURS, [*FOURS[20:], *(f"5.173.1.{n}" for n in range(20))], False),
        (FOURS, [*FOURS[21:], *(f"5.173.1.{n}" for n in range(21))], True),
        # Each kind by itself.
        (ALL, [*FOURS, *SIXES[8:]], False),
        (ALL, [*FOURS, *SIXES[9:]], True),
        (ALL, FOURS, True),
        # Where there were none, there is nothing to compare with.
        (FOURS, ALL, False),
        ((), ALL, False),
    ],
)
def test_pingdom_list_with_a_large_size_change_needs_acceptance(
    had: Sequence[str], has: Sequence[str], refused: bool
):
    if not refused:
        assert plan(build_firewall(had), probes(has)).steps
        return
    with pytest.raises(Refused, match="request it with accept_size_change=true"):
        plan(build_firewall(had), probes(has))
    accepted = plan(build_firewall(had), probes(has), runbook=ACCEPTING)
    assert accepted.steps
    assert accepted.notes[-1].startswith("Accepted: Pingdom's feed ")


def test_pingdom_refresh_accepts_fewer_addresses_after_ipv6_is_disabled():
    made = plan(build_firewall(ALL, settings={"IPV6": "0"}), probes())
    assert list_of(made.steps[0].do) == sorted(FOURS)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(build_firewall(), is_enabled=False), "csf is disabled on this host"),
        (build_firewall(settings={"TESTING": "1"}), 'set TESTING = "0" in csf.conf first'),
        (
            replace(build_firewall(), is_included=False),
            f"touch /etc/csf/keyturn.allow and .*“{INCLUDE}”",
        ),
        (replace(build_firewall(), own_list=None), "csf does not read Keyturn's list yet"),
        (replace(build_firewall(), own_list="8.8.8.8 # by hand, Jo\n"), "Move it to csf.allow"),
        (build_firewall(mine=[ALL[0]]), f"lists {ALL[0]}, which is this host itself"),
        (
            build_firewall(deny={"5.172.0.0/24": "abuser - Sat Nov 21 08:20:11 2026"}),
            "csf.deny has 5.172.0.0/24 .abuser",
        ),
    ],
)
def test_pingdom_refresh_refuses_a_host_whose_csf_is_not_ready(state: Firewall, words: str):
    with pytest.raises(Refused, match=words):
        plan(state, probes())


def test_pingdom_refresh_notes_entries_by_hand_and_lfd_blocks():
    state = build_firewall(
        allow={ALL[0]: "by hand", "tcp|in|d=443|s=5.172.0.2": "web"},
        deny={ALL[1]: "lfd: (sshd) Failed SSH login", "192.0.2.0/24": "abuser"},
    )
    notes = plan(state, probes()).notes
    assert any(note.startswith("1 entries of csf.allow also allow some of them") for note in notes)
    assert f"lfd has blocked {ALL[1]} of them: csf allows them all the same." in notes


def test_pingdom_refresh_notes_that_every_port_is_open_to_probes():
    assert any("every port" in note for note in plan(build_firewall(), probes()).notes)


def test_pingdom_refresh_reads_the_feed_and_the_firewall():
    hosts = build_firewall_fleet()
    reading = REFRESH.read(hosts.run_query)
    assert len(reading.feed.addresses) == len(ALL)
    assert reading.firewall.is_included
    assert hosts.asked[0] == ("web1", "GET https://my.pingdom.com/probes/feed")


@pytest.mark.parametrize("bad", BAD_FEEDS.values(), ids=BAD_FEEDS.keys())
def test_pingdom_refresh_does_not_query_the_host_with_a_bad_feed(bad: str):
    hosts = build_firewall_fleet()
    hosts.script("web1", "GET https://my.pingdom.com/probes/feed", bad)
    with pytest.raises(ParseError):
        REFRESH.read(hosts.run_query)
    assert len(hosts.asked) == 1
    assert hosts.tried == []


def test_pingdom_refresh_is_parsed_as_its_usage_shows():
    assert (
        request_form.format_usage(RefreshPingdom)
        == "csf pingdom refresh HOST [accept_size_change=false] [start=no]"
    )
    assert request_form.parse_request(RefreshPingdom, ["web1"]) == REFRESH
    typed = request_form.parse_request(RefreshPingdom, ["web1", "accept_size_change=true"])
    assert typed == ACCEPTING


@pytest.mark.parametrize(
    "value",
    ["maybe", "2", "true; id", "true\n", "-x", "", " ", "тrue", [], {}, "1e0", "yes please"],
)
def test_invalid_accept_size_change_is_refused(value: object):
    with pytest.raises(ValidationError):
        RefreshPingdom.model_validate({"host": "web1", "accept_size_change": value})


@pytest.mark.parametrize(
    "host",
    [
        *("web1; id", "web1\n", "-oProxyCommand=id", "../web1", "WEB1", "", "wеb1", "web1 web2"),
        *("web1/", "$(id)", "a" * 64, "web_1", None, 1),
    ],
)
def test_pingdom_refresh_refuses_an_invalid_host(host: object):
    with pytest.raises(ValidationError):
        RefreshPingdom.model_validate({"host": host})

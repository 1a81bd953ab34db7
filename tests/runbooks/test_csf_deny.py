from ipaddress import ip_address

import pytest

from connectors import csf, csf_entry, csf_grep
from connectors.csf_grep import CsfEntries
from runbooks import Plan, Refused
from runbooks._csf import CsfAddress
from runbooks.csf_deny import DenyAddress
from tests.runbooks.firewall import STATE, build_firewall, csf_address
from tests.scripted_fleet import ScriptedFleet

NOTHING_FOUND = "\nTable  Chain   num   pkts bytes target\nNo matches found for X in iptables\n"


def deny(address: str = "203.0.113.9") -> DenyAddress:
    return DenyAddress.model_validate({"host": "web1", "address": address})


def test_csf_deny_adds_an_address_and_undo_removes_it():
    (step,) = deny().plan(csf_address(build_firewall())).steps
    address = ip_address("203.0.113.9")
    assert step.do == csf_entry.change_entry("deny", address)
    assert step.undo == csf_entry.change_entry("undeny", address)
    assert (step.before, step.after) == ("not in csf.deny", "in csf.deny")


def test_csf_deny_of_a_denied_address_plans_no_steps():
    entries = CsfEntries(deny="203.0.113.9 # abuser", is_denied=True)
    assert deny().plan(csf_address(build_firewall(), entries)) == Plan(
        "csf blocks 203.0.113.9 (csf.deny: 203.0.113.9 # abuser)"
    )
    with pytest.raises(Refused, match="no rule is in force: run csf -r"):
        deny().plan(csf_address(build_firewall(), CsfEntries(deny="203.0.113.9 # abuser")))


@pytest.mark.parametrize(
    ("address", "state", "reason"),
    [
        ("203.0.113.9", csf_address(build_firewall(), source="203.0.113.9"), "would lock it out"),
        ("10.1.2.3", csf_address(build_firewall()), "is a private address"),
        ("fd00::1", csf_address(build_firewall()), "is a private address"),
        (
            *("203.0.113.9", csf_address(build_firewall(allow={"203.0.113.0/24": "office"}))),
            r"csf allows 203.0.113.9 \(203.0.113.0/24\)",
        ),
        (
            *("203.0.113.9", csf_address(build_firewall(in_force=["203.0.113.9"]))),
            "a rule in force",
        ),
    ],
)
def test_csf_deny_refuses_an_address_that_must_stay_reachable(
    address: str, state: CsfAddress, reason: str
):
    with pytest.raises(Refused, match=reason):
        deny(address).plan(state)


@pytest.mark.parametrize("entry", ["203.0.113.9", "203.0.113.0/24"])
def test_csf_deny_refuses_what_csf_ignores_or_an_included_file_allows(entry: str):
    with pytest.raises(Refused, match=r"csf.ignore, or a file that it includes, has 203"):
        deny().plan(csf_address(build_firewall(ignore={entry: "office"})))
    grep = "\nTable  Chain            num   pkts\n\nPermanent Allows (csf.allow): {} # included\n"
    found = csf_grep.parse_matches(grep.format(entry))
    entries = csf_grep.parse_entries(found, ip_address("203.0.113.9"))
    with pytest.raises(Refused, match="what it allows it never blocks"):
        deny().plan(csf_address(build_firewall(), entries))


def test_csf_deny_counts_no_entries_that_csf_keeps():
    deny_list = {"192.0.2.1": "DO NOT DELETE", "192.0.2.2": ""}
    kept = build_firewall(settings={"DENY_IP_LIMIT": "2"}, deny=deny_list)
    assert "the oldest" not in deny().plan(csf_address(kept)).notes[0]


def test_csf_deny_notes_that_a_full_list_drops_its_oldest_entry():
    full = build_firewall(settings={"DENY_IP_LIMIT": "2"}, deny={"192.0.2.1": "", "192.0.2.2": ""})
    assert "the oldest" in deny().plan(csf_address(full)).notes[0]
    assert "the oldest" not in deny().plan(csf_address(build_firewall())).notes[0]


def read(state: str, address: str = "203.0.113.9") -> CsfAddress:
    runbook = deny(address)
    matches = csf_grep.query_matches(ip_address(address)).command
    fleet = ScriptedFleet(
        {
            ("web1", csf.query_firewall().command): state,
            ("web1", matches): NOTHING_FOUND,
            ("web1", csf_entry.query_own_source().command): "192.0.2.1 4000 192.0.2.10 22\n",
        }
    )
    return runbook.read(fleet.run_query)


def test_csf_deny_reads_the_source_address_of_keyturn():
    assert read(STATE).source == ip_address("192.0.2.1")


@pytest.mark.parametrize(
    ("state", "address", "reason"),
    [
        (STATE.replace("loaded iptables\n", ""), "203.0.113.9", "the firewall is off"),
        (STATE.replace('TESTING = "0"', 'TESTING = "1"'), "203.0.113.9", "TESTING mode"),
        (STATE.replace('IPV6 = "1"', 'IPV6 = "0"'), "2001:db8::9", "does not filter IPv6"),
        (STATE, "192.0.2.10", "an address of this host itself"),
        (STATE, "224.0.0.1", "not the address of one machine"),
    ],
)
def test_csf_deny_refuses_when_the_firewall_is_off_or_cannot_deny_the_address(
    state: str, address: str, reason: str
):
    with pytest.raises(Refused, match=reason):
        read(state, address)

"""Entries of csf -g for one address are distinguished from those for wider networks."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from connectors import csf_entry, csf_grep
from connectors.command import Answer
from connectors.csf_grep import CsfEntries
from connectors.errors import CommandError, ParseError
from tests.scripted_fleet import ScriptedFleet

ANSWERS = Path(__file__).parent / "answers"
ADDRESS = ip_address("203.0.113.6")
HEAD = "\nTable  Chain            num   pkts bytes target     prot opt in     out     source\n"
DENY = csf_entry.change_entry("deny", ADDRESS)
FOR_ROOT = (
    *(csf_entry.change_entry(change, ADDRESS) for change in ("allow", "undeny", "unblock")),
    csf_entry.change_entry("block", ip_address("2001:db8::9")),
)


def entries(*lines: str) -> CsfEntries:
    return csf_grep.parse_entries(csf_grep.parse_matches(HEAD + "\n".join(lines) + "\n"), ADDRESS)


def test_csf_entry_of_an_address_is_distinguished_from_wider_networks():
    answer = csf_grep.parse_matches((ANSWERS / "csf-grep-rules.txt").read_text())
    entries_found = csf_grep.parse_entries(answer, ip_address("198.51.100.7"))
    assert entries_found.allow == "198.51.100.7 # Pingdom probe - Sat Nov 21 08:19:24 2026"
    assert not csf_grep.parse_entries(answer, ip_address("198.51.100.0")).allow
    wide = entries("Permanent Denies (csf.deny): 203.0.113.0/24 # a range")
    assert (wide.deny, [match.text for match in wide.wider]) == ("", ["203.0.113.0/24 # a range"])


@pytest.mark.parametrize(
    "line",
    [
        "filter DENYIN           1        0     0 DROP       0    --  !lo    *       203.0.113.6"
        "          0.0.0.0/0",
        "IPSET: Set:chain_DENY Match:203.0.113.6 Setting: File:/etc/csf/csf.deny",
    ],
)
def test_csf_denial_is_in_force_by_a_rule_or_an_ipset(line: str):
    assert entries(line, "csf.deny: 203.0.113.6 # abuser").is_denied
    assert not entries("csf.deny: 203.0.113.6 # abuser").is_denied


def test_csf_blocklist_set_counts_as_a_wider_block():
    entries_found = entries("IPSET: Set:bl_SPAMDROP Match:203.0.113.6 Setting: BLOCKLIST")
    assert [match.place for match in entries_found.wider] == ["set bl_SPAMDROP"]
    assert not entries_found.is_denied


def test_csf_temporary_block_belongs_to_one_address():
    entries_found = entries(
        "Temporary Blocks: IP:203.0.113.6 Port: Dir:in TTL:3600 (lfd - (sshd) Failed)"
    )
    assert entries_found.temporary_block == "Port: Dir:in TTL:3600 (lfd - (sshd) Failed)"
    assert not entries_found.has_temporary_allow
    assert entries("Temporary Allows: IP:203.0.113.6 Port:22 Dir:in TTL:9").has_temporary_allow
    assert entries("Temporary Blocks: IP:203.0.113.60 Port: Dir:in TTL:3600") == CsfEntries()


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("deny failed: 203.0.113.6 is in the allow file /etc/csf/csf.allow", "deny failed"),
        ("csf: 203.0.113.6 not found in csf.deny", "not found"),
        ("iptables: No chain/target/match by that name.", "csf's rules are not loaded"),
        ("csf and lfd have been disabled, use 'csf -e' to enable", "run csf -e"),
    ],
)
def test_csf_error_with_exit_status_0_is_a_failure(output: str, meaning: str):
    status = 1 if "disabled" in output else 0
    with pytest.raises(CommandError, match=meaning):
        ScriptedFleet({("web1", DENY): Answer(status, output)}).run_command("web1", DENY)


def test_source_address_of_keyturn_is_parsed_from_ssh_connection():
    text = "198.18.0.1 40022 198.18.0.2 22\n"
    assert csf_entry.parse_own_source(text) == ip_address("198.18.0.1")
    assert str(csf_entry.parse_own_source("fe80::1%eth0 1 fe80::2%eth0 22")) == "fe80::1"
    with pytest.raises(ParseError):
        csf_entry.parse_own_source("UNKNOWN 65535 198.18.0.2 22")


def test_csf_advanced_rule_covers_no_address():
    rules = ["tcp|in|d=22|s=203.0.113.6", "2001:db8::/32", "203.0.113.0/24"]
    assert csf_entry.find_covering(rules, ADDRESS) == "203.0.113.0/24"
    assert csf_entry.find_covering(rules[:2], ADDRESS) == ""

"""What csf 15.00 said when it was asked for an address."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from connectors import csf_grep
from connectors.command import Answer
from connectors.csf_grep import CsfMatch
from connectors.errors import CommandError, ParseError
from tests.scripted_fleet import ScriptedFleet

ANSWERS = Path(__file__).parent / "answers"


def recorded(name: str) -> str:
    return (ANSWERS / f"csf-grep-{name}.txt").read_text()


def test_rules_and_files_are_distinguished():
    finds = csf_grep.parse_matches(recorded("rules"))
    assert finds[0] == CsfMatch("filter ALLOWIN", "ACCEPT 198.51.100.7 to 0.0.0.0/0")
    assert finds[4] == CsfMatch("filter ALLOWOUT", "ACCEPT 0.0.0.0/0 to 198.51.100.0/25")
    assert finds[6] == CsfMatch(
        "csf.allow", "198.51.100.7 # Pingdom probe - Sat Nov 21 08:19:24 2026"
    )
    assert [find.place for find in finds[7:]] == ["csf.allow", "csf.allow"]


def test_a_rule_about_a_port_says_so():
    (first, *_) = csf_grep.parse_matches(recorded("port"))
    assert first == CsfMatch("filter ALLOWIN", "ACCEPT 198.51.100.12 to 0.0.0.0/0 tcp dpt:443")


def test_a_member_of_a_set_is_found_though_csf_says_that_nothing_matches():
    assert "No matches found" in recorded("ipset")
    assert csf_grep.parse_matches(recorded("ipset")) == [
        CsfMatch("set chain_ALLOW", "198.51.100.7"),
        CsfMatch("csf.allow", "198.51.100.7 # Pingdom probe - Sat Nov 21 08:20:54 2026"),
    ]


def test_an_entry_without_a_rule_is_seen_as_that():
    assert {find.place for find in csf_grep.parse_matches(recorded("flushed"))} == {"csf.allow"}


def test_colours_make_no_difference():
    coloured = recorded("rules").replace("ACCEPT", "\x1b[1;92mACCEPT\x1b[0m")
    assert csf_grep.parse_matches(coloured) == csf_grep.parse_matches(recorded("rules"))


def test_what_is_not_known_is_passed_on():
    output = (
        recorded("nothing") + "Temporary Allows: IP:198.51.100.7 Port: Dir:inout TTL:300 (x)\n"
    )
    assert csf_grep.parse_matches(output)[-1].place == "csf"


@pytest.mark.parametrize("answer", ["", "\n", "csf: v15.00 (generic)\n"])
def test_an_answer_without_a_table_is_not_taken_for_nothing(answer: str):
    with pytest.raises(ParseError, match="instead of a table of rules"):
        csf_grep.parse_matches(answer)


def test_csf_that_is_disabled_says_what_to_do():
    query = csf_grep.query_matches(ip_address("198.51.100.7"))
    fleet = ScriptedFleet({("web1", query.command): Answer(1, recorded("disabled"))})
    with pytest.raises(CommandError, match="run csf -e first"):
        fleet.run_query("web1", query)

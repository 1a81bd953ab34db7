"""Parser of csf -g, with recorded output of csf 15.00."""

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


def test_csf_grep_distinguishes_rules_from_files():
    finds = csf_grep.parse_matches(recorded("rules"))
    assert finds[0] == CsfMatch("filter ALLOWIN", "ACCEPT 198.51.100.7 to 0.0.0.0/0")
    assert finds[4] == CsfMatch("filter ALLOWOUT", "ACCEPT 0.0.0.0/0 to 198.51.100.0/25")
    assert finds[6] == CsfMatch(
        "csf.allow", "198.51.100.7 # Pingdom probe - Sat Nov 21 08:19:24 2026"
    )
    assert [find.place for find in finds[7:]] == ["csf.allow", "csf.allow"]


def test_csf_grep_rule_for_a_port_names_the_port():
    (first, *_) = csf_grep.parse_matches(recorded("port"))
    assert first == CsfMatch("filter ALLOWIN", "ACCEPT 198.51.100.12 to 0.0.0.0/0 tcp dpt:443")


def test_csf_grep_finds_ipset_members_under_no_matches_found():
    assert "No matches found" in recorded("ipset")
    assert csf_grep.parse_matches(recorded("ipset")) == [
        CsfMatch("set chain_ALLOW", "198.51.100.7"),
        CsfMatch("csf.allow", "198.51.100.7 # Pingdom probe - Sat Nov 21 08:20:54 2026"),
    ]


def test_csf_grep_after_a_flush_finds_only_entries_in_files():
    assert {find.place for find in csf_grep.parse_matches(recorded("flushed"))} == {"csf.allow"}


def test_csf_grep_ignores_terminal_colours():
    coloured = recorded("rules").replace("ACCEPT", "\x1b[1;92mACCEPT\x1b[0m")
    assert csf_grep.parse_matches(coloured) == csf_grep.parse_matches(recorded("rules"))


def test_csf_grep_keeps_lines_that_it_does_not_know():
    output = (
        recorded("nothing") + "Temporary Allows: IP:198.51.100.7 Port: Dir:inout TTL:300 (x)\n"
    )
    assert csf_grep.parse_matches(output)[-1].place == "csf"


@pytest.mark.parametrize("answer", ["", "\n", "csf: v15.00 (generic)\n"])
def test_csf_grep_without_a_table_is_a_parse_error(answer: str):
    with pytest.raises(ParseError, match="instead of a table of rules"):
        csf_grep.parse_matches(answer)


def test_csf_grep_on_disabled_csf_says_what_to_do():
    query = csf_grep.query_matches(ip_address("198.51.100.7"))
    fleet = ScriptedFleet({("web1", query.command): Answer(1, recorded("disabled"))})
    with pytest.raises(CommandError, match="run csf -e first"):
        fleet.run_query("web1", query)

"""Keyturn's list for csf: its text, and the command that loads it."""

from ipaddress import ip_address

import pytest

from connectors import csf_list
from connectors.command import Answer
from connectors.errors import CommandError, ParseError
from tests.scripted_fleet import ScriptedFleet

ADDRESSES = {ip_address(each) for each in ("5.172.2.1", "2a01:7e00::a", "5.172.10.1")}
LISTING = csf_list.format_list(ADDRESSES, "pingdom")
LOAD = csf_list.load_list(LISTING, restart="-r")


def test_csf_list_has_a_header_and_a_line_for_each_address():
    header, *lines = LISTING.splitlines()
    assert header.startswith("# ")
    assert lines == ["5.172.2.1 # pingdom", "5.172.10.1 # pingdom", "2a01:7e00::a # pingdom"]


def test_csf_list_of_the_same_addresses_is_the_same_text():
    assert csf_list.format_list(sorted(ADDRESSES, key=str), "pingdom") == LISTING
    assert csf_list.parse_list(LISTING) == ADDRESSES
    assert csf_list.parse_list("") == frozenset()


@pytest.mark.parametrize("why", ["", "two words", "x\nInclude /etc/passwd", "Include", "#"])
def test_csf_list_refuses_a_comment_that_is_not_one_plain_word(why: str):
    with pytest.raises(ValueError, match="not a plain word"):
        csf_list.format_list(ADDRESSES, why)


@pytest.mark.parametrize(
    "line",
    [
        "5.172.2.1",
        "5.172.2.1 # by hand, for Jo",
        "5.172.2.0/24 # pingdom",
        "tcp|in|d=22|s=5.172.2.1",
        "Include /etc/csf/other.allow",
        "005.172.2.1 # pingdom",
        " 5.172.2.1 # pingdom",
        "5.172.2.1 # pingdom\r",
    ],
)
def test_csf_list_with_a_line_by_hand_is_a_parse_error(line: str):
    with pytest.raises(ParseError, match=r"did not write: .* Move it to csf\.allow"):
        csf_list.parse_list(f"{LISTING}{line}\n")


def test_csf_list_is_sent_on_stdin_and_not_as_arguments():
    assert "5.172" not in " ".join(LOAD.words)
    assert LOAD.root
    assert LOAD.stdin == LISTING


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(1, "csf and lfd have been disabled, use 'csf -e' to enable"), "run csf -e"),
        (
            Answer(1, "CSF and LFD have been \x1b[1;91mdisabled\x1b[0m! Use 'csf -e'"),
            "run csf -e",
        ),
        (Answer(11, "Error: csf is being restarted, try again in a moment"), "again in a minute"),
        (Answer(1, "", "nothing is on probation"), "has restored what was"),
        (Answer(1, "", "sha256sum: WARNING: 1 computed checksum did NOT match"), "was not used"),
        (Answer(0, "iptables: No chain/target/match by that name."), "output: iptables: No"),
        (Answer(0, "Error: it broke, at line 1"), "output: Error"),
        (Answer(0, "ipset v7.17: Set cannot be created"), "output: ipset"),
        (Answer(2, "", "sh: 1: cd: can't cd to /etc/csf"), "correct csf.directory"),
    ],
)
def test_csf_list_load_fails_when_csf_does_not_load_it(answer: Answer, words: str):
    fleet = ScriptedFleet({("web1", LOAD): answer})
    with pytest.raises(CommandError, match=words):
        fleet.run_command("web1", LOAD)


def test_csf_list_load_succeeds_with_warnings_of_csf():
    output = "*WARNING* RESTRICT_SYSLOG is disabled. See SECURITY WARNING in /etc/csf/csf.conf.\n"
    assert ScriptedFleet({("web1", LOAD): output}).run_command("web1", LOAD).status == 0

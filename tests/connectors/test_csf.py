"""What a host says of its firewall is understood, or not taken for anything."""

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from connectors import csf
from connectors.command import Answer, Shell
from connectors.errors import CommandError, ParseError, SettingError
from tests.scripted_fleet import ScriptedFleet, inventory_of

ANSWERS = Path(__file__).parent / "answers"
RULES = (ANSWERS / "csf-state-rules.txt").read_text()
SETS = (ANSWERS / "csf-state-sets.txt").read_text()

LET_IN = {"198.51.100.7/32", "5.172.196.188/32", "2a01:7e00::1/128"}


def test_a_host_with_rules_is_understood():
    state = csf.parse_firewall(RULES)
    assert state.settings["LF_IPSET"] == "0"
    assert state.include_line == "Include /etc/csf/keyturn.allow"
    assert state.is_included
    assert state.is_enabled
    assert not state.is_testing
    assert state.own_list is not None
    assert state.own_list.splitlines()[1:] == ["5.172.196.188 # pingdom", "2a01:7e00::1 # pingdom"]
    assert state.allow["198.51.100.7"].startswith("Manually allowed")
    assert state.deny["203.0.113.6"] == "abuser - Sat Nov 21 08:20:11 2026"
    assert state.allowed_networks == {ip_network(each) for each in LET_IN}
    assert ip_address("192.0.2.10") in state.own_addresses
    assert state.common_domains == {"example.com", ".ninja"}
    assert state.reload_option == "-r"


def test_a_host_with_sets_is_understood():
    assert csf.parse_firewall(SETS).allowed_networks == {ip_network(each) for each in LET_IN}


@pytest.mark.parametrize(
    ("lines", "ipv6", "off"),
    [
        ((), "1", ""),
        (("loaded iptables\n",), "1", "iptables"),
        (("loaded ip6tables\n",), "1", "ip6tables"),
        (("loaded ip6tables\n",), "0", ""),
        (("loaded iptables\n", "loaded ip6tables\n"), "1", "iptables and ip6tables"),
    ],
)
def test_rules_that_are_not_loaded_are_known(lines: tuple[str, ...], ipv6: str, off: str):
    answer = RULES.replace('IPV6 = "1"', f'IPV6 = "{ipv6}"')
    for line in lines:
        assert line in answer
        answer = answer.replace(line, "")
    assert csf.parse_firewall(answer).missing_tables == off


def test_a_set_that_no_rule_asks_lets_in_no_one():
    rule = "rule -A ALLOWIN -m set --match-set chain_ALLOW src -j ACCEPT\n"
    in_force = csf.parse_firewall(SETS.replace(rule, "")).allowed_networks
    assert in_force == {ip_network("2a01:7e00::1/128")}


@pytest.mark.parametrize(
    "rule",
    [
        "-A ALLOWIN -s 5.172.196.188/32 ! -i lo -p tcp -m tcp --dport 443 -j ACCEPT",
        "-A ALLOWIN -s 5.172.196.188/32 ! -i lo -j DROP",
        "-A ALLOWIN ! -s 5.172.196.188/32 ! -i lo -j ACCEPT",
    ],
)
def test_a_rule_that_asks_for_more_lets_in_no_one_for_all(rule: str):
    changed = RULES.replace("-A ALLOWIN -s 5.172.196.188/32 ! -i lo -j ACCEPT", rule)
    assert changed != RULES
    assert not csf.parse_firewall(changed).is_allowed(ip_address("5.172.196.188"))


def test_a_range_lets_in_all_of_it():
    state = csf.parse_firewall(RULES.replace("5.172.196.188/32 ", "5.172.196.0/24 "))
    assert state.is_allowed(ip_address("5.172.196.1"))
    assert not state.is_allowed(ip_address("5.172.197.1"))
    assert not state.is_allowed(ip_address("2a01:7e00::2"))


def test_without_ipv6_csf_knows_no_such_address():
    state = csf.parse_firewall(RULES.replace('IPV6 = "1"', 'IPV6 = "0"'))
    assert not state.can_filter(ip_address("2a01:7e00::1"))
    assert state.can_filter(ip_address("5.172.196.188"))


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        ("disabled", "is_enabled"),
        ('conf TESTING = "1"', "is_testing"),
    ],
)
def test_what_stands_in_the_way_is_seen(line: str, claim: str):
    before = csf.parse_firewall(RULES)
    after = csf.parse_firewall(
        RULES.replace('conf TESTING = "0"', line + '\nconf TESTING = "0"', 1)
    )
    if claim == "is_testing":
        after = csf.parse_firewall(RULES.replace('conf TESTING = "0"', line))
    assert getattr(after, claim) != getattr(before, claim)


@pytest.mark.parametrize(
    "line", ["# Include /etc/csf/keyturn.allow", "Include /etc/csf/other.allow", ""]
)
def test_a_list_that_csf_does_not_read_is_noticed(line: str):
    state = csf.parse_firewall(
        RULES.replace("allow Include /etc/csf/keyturn.allow", f"allow {line}")
    )
    assert not state.is_included


def test_a_file_that_is_not_there_is_no_empty_one():
    gone = RULES.replace("kept\n", "")
    gone = "".join(line for line in gone.splitlines(keepends=True) if not line.startswith("own"))
    assert csf.parse_firewall(gone).own_list is None
    assert csf.parse_firewall(gone.replace("cpanel\n", "cpanel\nkept\n")).own_list == ""
    assert csf.parse_firewall(RULES.replace("cpanel\n", "")).common_domains is None


def test_a_daemon_that_restarts_csf_some_time_is_gone_round():
    assert (
        csf.parse_firewall(RULES.replace('LFDSTART = "0"', 'LFDSTART = "1"')).reload_option
        == "-sf"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "end",
        RULES.removesuffix("end\n"),
        RULES[: len(RULES) // 2],
        "Welcome\n" + RULES,
        RULES.replace('conf TESTING = "0"\n', ""),
        RULES.replace("5.172.196.188/32", "5.172.196.188/33"),
        RULES.replace("mine 192.0.2.10/30", "mine eth0"),
    ],
)
def test_an_answer_that_is_not_whole_is_not_taken_for_anything(answer: str):
    with pytest.raises(ParseError):
        csf.parse_firewall(answer)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("sh: 1: cd: can't cd to /etc/csf", "csf's directory does not exist"),
        ("csf: not found", "csf does not exist: correct csf.program in"),
        ("sh: 1: ipset: not found", "a program that csf needs is missing"),
    ],
)
def test_a_host_that_cannot_say_it_says_why(message: str, words: str):
    fleet = ScriptedFleet({("web1", csf.query_firewall().command): Answer(2, "", message)})
    with pytest.raises(CommandError, match=words):
        fleet.run_query("web1", csf.query_firewall())


def test_it_needs_root():
    command = inventory_of("web1", user="keyturn")["web1"].resolve(shell())
    assert str(command).startswith("sudo -n -- sh -c ")


def shell() -> Shell:
    command = csf.query_firewall().command
    assert isinstance(command, Shell)
    return command


@pytest.mark.parametrize("name", ["csf.directory", "csf.program", "cpanel.directory"])
@pytest.mark.parametrize("value", ["etc/csf", "/etc/csf; id", "/etc/$(id)", "/a b", "-r", ""])
def test_a_setting_that_is_no_path_is_refused(name: str, value: str):
    with pytest.raises(SettingError):
        shell().resolve({name: value}, sudo=False)

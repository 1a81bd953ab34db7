"""The firewall state of csf is parsed, or refused."""

import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from connectors import csf
from connectors.command import Answer, Shell
from connectors.errors import CommandError, ParseError, SettingError
from connectors.script import Script
from tests.scripted_fleet import ScriptedFleet, build_inventory

ANSWERS = Path(__file__).parent / "answers"
RULES = (ANSWERS / "csf-state-rules.txt").read_text()
SETS = (ANSWERS / "csf-state-sets.txt").read_text()

LET_IN = {"198.51.100.7/32", "5.172.196.188/32", "2a01:7e00::1/128"}


def test_csf_firewall_with_iptables_rules_is_parsed():
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


def test_csf_firewall_with_ipsets_is_parsed():
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
def test_csf_firewall_names_the_tables_that_are_not_loaded(
    lines: tuple[str, ...], ipv6: str, off: str
):
    answer = RULES.replace('IPV6 = "1"', f'IPV6 = "{ipv6}"')
    for line in lines:
        assert line in answer
        answer = answer.replace(line, "")
    assert csf.parse_firewall(answer).missing_tables == off


def test_ipset_without_a_rule_allows_no_address():
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
def test_iptables_rule_with_more_conditions_allows_no_address(rule: str):
    changed = RULES.replace("-A ALLOWIN -s 5.172.196.188/32 ! -i lo -j ACCEPT", rule)
    assert changed != RULES
    assert not csf.parse_firewall(changed).is_allowed(ip_address("5.172.196.188"))


def test_allowed_network_allows_all_its_addresses():
    state = csf.parse_firewall(RULES.replace("5.172.196.188/32 ", "5.172.196.0/24 "))
    assert state.is_allowed(ip_address("5.172.196.1"))
    assert not state.is_allowed(ip_address("5.172.197.1"))
    assert not state.is_allowed(ip_address("2a01:7e00::2"))


def test_csf_without_ipv6_cannot_filter_ipv6_addresses():
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
def test_csf_that_is_disabled_or_in_testing_mode_is_recognised(line: str, claim: str):
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
def test_csf_allow_file_without_the_include_of_keyturn_is_recognised(line: str):
    state = csf.parse_firewall(
        RULES.replace("allow Include /etc/csf/keyturn.allow", f"allow {line}")
    )
    assert not state.is_included


def test_missing_csf_file_is_distinguished_from_an_empty_one():
    gone = RULES.replace("kept\n", "")
    gone = "".join(line for line in gone.splitlines(keepends=True) if not line.startswith("own"))
    assert csf.parse_firewall(gone).own_list is None
    assert csf.parse_firewall(gone.replace("cpanel\n", "cpanel\nkept\n")).own_list == ""
    assert csf.parse_firewall(RULES.replace("cpanel\n", "")).common_domains is None


def test_csf_is_reloaded_with_sf_when_lfd_restarts_it():
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
def test_incomplete_csf_answer_is_a_parse_error(answer: str):
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
def test_csf_query_errors_say_what_is_missing(message: str, words: str):
    fleet = ScriptedFleet({("web1", csf.query_firewall().command): Answer(2, "", message)})
    with pytest.raises(CommandError, match=words):
        fleet.run_query("web1", csf.query_firewall())


def test_csf_query_runs_under_sudo():
    command = build_inventory("web1", user="keyturn")["web1"].resolve(shell())
    assert str(command).startswith("sudo -n -- sh -c ")


def shell() -> Shell:
    command = csf.query_firewall().command
    assert isinstance(command, Shell)
    return command


@pytest.mark.parametrize("name", ["csf.directory", "csf.program", "cpanel.directory"])
@pytest.mark.parametrize("value", ["etc/csf", "/etc/csf; id", "/etc/$(id)", "/a b", "-r", ""])
def test_csf_setting_that_is_no_path_is_refused(name: str, value: str):
    with pytest.raises(SettingError):
        shell().resolve({name: value}, sudo=False)


def test_csf_entries_of_included_files_are_read(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    for name in ("iptables", "ip", "csf"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 1: lo inet 127.0.0.1/8\n")
        (tmp_path / "bin" / name).chmod(0o755)
    files = {
        "csf.conf": 'TESTING = "0"\n',
        "csf.allow": "Include more.allow\n",
        "csf.deny": f"192.0.2.1 # own\nInclude {tmp_path}/more.deny\n",
        "more.deny": "# a list\n192.0.2.2 # theirs\nInclude\tlast.deny\n",
        "last.deny": "192.0.2.3\nInclude last.deny\nInclude gone.deny\n",
        "csf.ignore": "192.0.2.4 # office\nInclude more.ignore\n",
        "more.ignore": "192.0.2.5\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = csf.query_firewall().command
    assert isinstance(command, Shell)
    script = next(word for word in command.argv if isinstance(word, Script))
    words = (
        "sh",
        "-c",
        script.text,
        "keyturn",
        str(tmp_path),
        str(tmp_path / "bin" / "csf"),
        "/x",
    )
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    answer = subprocess.run(words, check=True, capture_output=True, text=True, env={"PATH": path})
    firewall = csf.parse_firewall(answer.stdout)
    assert firewall.deny == {"192.0.2.1": "own"}
    assert firewall.included_deny == {"192.0.2.2": "theirs", "192.0.2.3": ""}
    assert firewall.ignore == {"192.0.2.4": "office", "192.0.2.5": ""}

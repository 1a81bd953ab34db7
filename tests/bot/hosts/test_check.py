"""The inventory check on real servers, and each way in which it fails."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.cli.inventory import format_checks
from bot.hosts import sudo_rules
from bot.hosts.live_check import HostCheck, check_host
from bot.hosts.sudo_check import build_sudo_query
from bot.hosts.sudo_rules import list_host_sudo_grants
from bot.model.request_form import get_required_tag
from connectors import carp, haproxy, openvpn, programs
from connectors.command import Answer, QueryCommand, Shell
from connectors.errors import (
    HostError,
    LoginError,
    NoCommandsError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
    WeakAlgorithmsError,
)
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Check, load_catalogue
from tests.cli_process import run_keyturn_with_policy
from tests.connectors import test_openvpn
from tests.connectors.test_carp import FREEBSD
from tests.playground.device import ScriptedDevice
from tests.playground.fleet import LoopbackFleet
from tests.playground.keys import make_key
from tests.runbooks.servers import build_server_fleet
from tests.scripted_fleet import Replies, ScriptedFleet, build_inventory

_HOST = build_inventory("h1", user="keyturn")["h1"]
_GRANTED = list_host_sudo_grants(_HOST)
_RIGHTS = build_sudo_query(_GRANTED, {}).command
_SUDO = "sudo Sudo version 1.9.13p3\n"
_ALL_THERE = f"{_SUDO}end\n"
_PERC = next(n for n, each in enumerate(_GRANTED) if "perccli" in str(each.rule.program))
_SYSCTL = next(n for n, each in enumerate(_GRANTED) if each.rule.program == "/usr/sbin/sysctl")

Entries = dict[str, dict[str, Any]]


def _edit_inventory(fleet: LoopbackFleet, edit: Callable[[Entries], None]) -> None:
    yaml = YAML(typ="safe", pure=True)
    data = yaml.load(fleet.inventory_file)
    edit(data["hosts"])
    yaml.dump(data, fleet.inventory_file)


def _check_real_host(fleet: LoopbackFleet, name: str) -> HostCheck:
    real = Fleet(fleet.inventory, SshPool(fleet.directory))
    try:
        return check_host(real, name)
    finally:
        real.close()


# --- as a person types it ---


@pytest.mark.real
def test_inventory_check_of_healthy_hosts_prints_a_table_and_exits_0(fleet: LoopbackFleet):
    _edit_inventory(fleet, lambda hosts: hosts["nas1"].update(tags=[]))
    result = run_keyturn_with_policy(fleet.directory, "inventory", "check")
    assert (result.returncode, result.stderr) == (0, "")
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == [
        *("HOST", "ADDRESS", "REACHABLE", "KEY", "LOGIN", "ANSWERS", "ROOT"),
    ]
    assert [row.split()[0] for row in rows[:4]] == ["db1", "lb1", "nas1", "web1"]
    assert all(row.split()[2:6] == ["yes"] * 4 for row in rows[:4])
    assert rows[-1] == "All 4 hosts are healthy."
    assert "\x1b" not in result.stdout


@pytest.mark.real
def test_inventory_check_of_an_unreachable_host_prints_the_fix_and_exits_1(fleet: LoopbackFleet):
    fleet.hosts["web1"].stop()
    _edit_inventory(fleet, lambda hosts: hosts["nas1"].update(tags=[]))
    result = run_keyturn_with_policy(fleet.directory, "inventory", "check")
    assert result.returncode == 1
    assert re.search(r"^web1 +127\.0\.0\.2:\d+ +NO +\? +\? +\? +\?$", result.stdout, re.MULTILINE)
    assert "refused the connection: check that sshd is running" in result.stdout
    assert result.stdout.endswith("1 of 4 hosts failed.\n")


@pytest.mark.real
def test_inventory_check_names_what_tags_promise_and_hosts_lack(fleet: LoopbackFleet):
    fleet.haproxy.stop()
    _edit_inventory(fleet, lambda hosts: hosts["db1"].update(tags=["database", "zfs", "bgp"]))
    result = run_keyturn_with_policy(fleet.directory, "inventory", "check")
    assert result.returncode == 1
    (balancer,) = re.findall(r"^lb1: .*", result.stdout, re.MULTILINE)
    assert balancer.startswith("lb1: it is tagged haproxy, but `abusers tables` fails: ")
    assert "nothing listens at HAProxy's socket: HAProxy is stopped" in balancer
    (database,) = re.findall(r"^db1: .*", result.stdout, re.MULTILINE)
    assert "it is tagged bgp, but `bgp check` fails: " in database
    assert "tagged zfs, but `zfs pools` f" in database  # fails, or finds nothing
    assert re.search(r"^lb1 +\S+ +yes +yes +yes +yes ", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("3 of 4 hosts failed.\n")


@pytest.mark.real
def test_inventory_check_contacts_only_the_named_hosts(fleet: LoopbackFleet):
    _edit_inventory(fleet, lambda hosts: hosts["nas1"].update(tags=[]))
    fleet.hosts["web1"].stop()
    result = run_keyturn_with_policy(
        fleet.directory, "inventory", "check", "nas1", "lb1", "nas1", "--json"
    )
    assert result.returncode == 0
    rows = json.loads(result.stdout)
    assert [(row["host"], row["healthy"], row["key"]) for row in rows] == [
        ("nas1", True, True),
        ("lb1", True, True),
    ]
    assert fleet.hosts["db1"].accepted == 0


@pytest.mark.real
def test_inventory_check_of_an_unknown_host_contacts_none_and_exits_3(fleet: LoopbackFleet):
    result = run_keyturn_with_policy(fleet.directory, "inventory", "check", "lb1", "lb7")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "keyturn: there is no host 'lb7' in the inventory: did you mean lb1?\n"
    assert fleet.hosts["lb1"].connections == 0


def test_inventory_check_without_a_policy_prints_one_line(tmp_path: Path):
    result = run_keyturn_with_policy(tmp_path, "inventory", "check")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "people.yaml: is missing" in result.stderr


def test_inventory_check_of_an_empty_inventory_exits_0(tmp_path: Path):
    assert run_keyturn_with_policy(tmp_path, "init", str(tmp_path / "policy")).returncode == 0
    result = run_keyturn_with_policy(tmp_path / "policy", "inventory", "check")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "No hosts.\n")


# --- what is found out ---


@pytest.mark.real
def test_host_key_mismatch_is_reported_before_any_login(fleet: LoopbackFleet):
    _edit_inventory(fleet, lambda hosts: hosts["db1"].update(host_key=make_key().public))
    check = _check_real_host(fleet, "db1")
    assert (check.reachable, check.key, check.login) == (True, False, None)
    assert "Find out whether the host was reinstalled" in check.error
    assert fleet.hosts["db1"].accepted == 0


@pytest.mark.real
def test_rejected_login_is_reported(fleet: LoopbackFleet):
    make_key().write(fleet.directory / "keys" / "other")
    _edit_inventory(fleet, lambda hosts: hosts["db1"].update(key="keys/other"))
    check = _check_real_host(fleet, "db1")
    assert (check.reachable, check.key, check.login, check.answers) == (True, True, False, None)
    assert "authorized_keys" in check.error


@pytest.mark.real
def test_missing_private_key_leaves_the_host_state_unknown(fleet: LoopbackFleet):
    _edit_inventory(fleet, lambda hosts: hosts["db1"].update(key="keys/none"))
    check = _check_real_host(fleet, "db1")
    assert (check.reachable, check.key, check.is_healthy) == (None, None, False)
    assert "put the private key there" in check.error


@pytest.mark.real
def test_error_of_a_host_behind_a_jump_host_is_reported_for_that_host(fleet: LoopbackFleet):
    _edit_inventory(
        fleet, lambda hosts: hosts["db1"].update(jump="lb1", host_key=make_key().public)
    )
    check = _check_real_host(fleet, "db1")
    assert (check.reachable, check.key) == (True, False)


@pytest.mark.real
def test_error_of_a_jump_host_is_not_reported_as_that_of_the_host_behind(fleet: LoopbackFleet):
    def edit(hosts: Entries) -> None:
        hosts["db1"]["jump"] = "lb1"
        hosts["lb1"]["host_key"] = make_key().public

    _edit_inventory(fleet, edit)
    check = _check_real_host(fleet, "db1")
    assert (check.reachable, check.key) == (False, None)
    assert "db1 is reached through lb1" in check.error


@pytest.mark.real
def test_network_device_is_checked_by_a_command_of_its_platform(tmp_path: Path):
    (tmp_path / "password").write_text("correct horse\n")
    (tmp_path / "password").chmod(0o600)
    with ScriptedDevice({"show version": "Cisco IOS Software"}) as device:
        entry = {
            **{"address": device.address, "port": device.port, "platform": "cisco_ios"},
            **{"password_file": "password", "host_key": device.host_key.public, "area": "net"},
        }
        fleet = Fleet(Inventory.model_validate({"hosts": {"sw1": entry}}), SshPool(tmp_path))
        try:
            check = check_host(fleet, "sw1")
        finally:
            fleet.close()
    assert check.is_healthy, check.error
    assert check.root == ""


@pytest.mark.parametrize(
    ("trouble", "claims"),
    [
        (UnreachableError("no"), (False, None, None, None)),
        (WeakAlgorithmsError("no"), (True, None, None, None)),
        (LoginError("no"), (True, True, False, None)),
        (NoCommandsError("no"), (True, True, True, False)),
        (SetupError("no"), (None, None, None, None)),
        (UnknownOutcomeError("no"), (True, True, True, False)),
    ],
)
def test_kind_of_host_error_determines_the_reached_stage(
    trouble: HostError, claims: tuple[bool | None, ...]
):
    check = check_host(ScriptedFleet({("h1", "id -u"): trouble}), "h1")
    assert (check.reachable, check.key, check.login, check.answers) == claims
    assert check.error == "no"


def _build_inventory(**entries: Mapping[str, object]) -> Inventory:
    """Return an inventory of these hosts, each with more fields of its entry."""
    entry = build_inventory("h1")["h1"].model_dump(exclude={"name"})
    return Inventory.model_validate(
        {"hosts": {n: {**entry, **more} for n, more in entries.items()}}
    )


_TABLES = haproxy.query_tables().command
_PEERS = haproxy.query_peers().command


def _check_tagged(tag: str, answers: Mapping[QueryCommand, Replies]) -> HostCheck:
    fleet = ScriptedFleet(
        {("h1", "id -u"): "0\n", **{("h1", each): reply for each, reply in answers.items()}},
        inventory=_build_inventory(h1={"tags": [tag, "web"]}),
    )
    return check_host(fleet, "h1")


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        (
            "# table: http, type: ip, size:1048576, used:1\n\n",
            "",
        ),
        (
            Answer(1, "", 'socat[7] E connect(5, AF=1 "/run/x", 20): No such file or directory'),
            "it is tagged haproxy, but `abusers tables` fails: HAProxy has no such socket",
        ),
        (
            Answer(1, "", 'socat[7] E connect(5, AF=1 "/run/x", 20): Permission denied'),
            "it is tagged haproxy, but `abusers tables` fails: the login may not open",
        ),
        (
            Answer(127, "", "timeout: failed to run command 'socat': No such file or directory"),
            "it is tagged haproxy, but `abusers tables` fails: install socat on the host",
        ),
        # HAProxy runs, without what the tag is for.
        (
            "# nothing\n",
            "it is tagged haproxy, but `abusers tables` ",
        ),
    ],
)
def test_what_a_tag_promises_is_read(tables: Replies, error: str):
    check = _check_tagged("haproxy", {_TABLES: tables, _PEERS: "\n"})
    assert check.answers
    assert check.error.startswith(error)
    assert check.is_healthy is not bool(error)


def test_tag_whose_check_finds_nothing_is_reported():
    check = _check_tagged("carp", {carp.query_groups().command: "lo0: flags=8049<UP>\n"})
    assert check.error.startswith("it is tagged carp, but `carp check` finds nothing: ")
    assert check.error.endswith("or remove the tag carp")


def test_tag_whose_check_finds_problems_is_as_promised():
    status = FREEBSD.replace("MASTER", "INIT")
    assert _check_tagged("carp", {carp.query_groups().command: status}).is_healthy


def test_tag_needs_only_one_of_the_programs_that_its_check_knows():
    """strongSwan is not needed where OpenVPN is what the tag promises."""
    inventory = _build_inventory(h1={"tags": ["vpn"], "user": "keyturn"})
    granted = list_host_sudo_grants(inventory["h1"])
    missing = [n for n, each in enumerate(granted) if str(each.rule.program).endswith("swanctl")]
    assert missing
    fleet = ScriptedFleet(
        {("h1", "id -u"): "998\n", ("h1", "sudo -n -l"): "    (root) NOPASSWD: /usr/bin/x\n"},
        inventory=inventory,
    )
    rules = build_sudo_query(granted, {}).command
    fleet.script("h1", rules, f"{_SUDO}program {missing[0]}\nend\n")
    known = programs.query_installed("openvpn", "swanctl", "ipsec")
    fleet.script("h1", known.command, "openvpn\n")
    status = openvpn.query_status().command
    assert isinstance(status, Shell)
    fleet.script(
        "h1", fleet.resolve_command("h1", status), test_openvpn.answer(test_openvpn.SECOND)
    )
    check = check_host(fleet, "h1")
    assert check.is_healthy, check.error
    assert check.advice.endswith(" swanctl")


def test_every_tag_of_a_runbook_is_verified_by_a_check():
    known = load_catalogue().values()
    verified = {
        get_required_tag(each) for each in known if issubclass(each, Check) and each.verifies_tag
    }
    # The management controller is read for each host that has one.
    assert {get_required_tag(each) for each in known} - verified == {None, "bmc"}
    assert None not in verified


def test_tag_bmc_without_a_management_controller_is_reported():
    fleet = ScriptedFleet(
        {("h1", "id -u"): "0\n"}, inventory=_build_inventory(h1={"tags": ["bmc"]})
    )
    assert "h1 has no bmc with Redfish in the inventory" in check_host(fleet, "h1").error


def _build_jump_fleet(behind: str | HostError, *, tags: Sequence[str] = ()) -> ScriptedFleet:
    """Return a fleet with h1 behind gate1, whose login runs no commands."""
    return ScriptedFleet(
        {("h1", "id -u"): behind, ("gate1", "id -u"): NoCommandsError("gate1 runs no commands")},
        inventory=_build_inventory(h1={"jump": "gate1"}, gate1={"tags": tags}),
    )


def test_jump_host_whose_login_runs_no_commands_does_not_block_the_host_behind_it():
    assert check_host(_build_jump_fleet("0\n"), "h1").is_healthy
    check = check_host(_build_jump_fleet(LoginError("h1 refuses the login")), "h1")
    assert (check.reachable, check.key, check.login) == (True, True, False)
    assert check.error == "h1 refuses the login"


def test_login_without_commands_is_enough_for_a_jump_host_without_runbooks():
    check = check_host(_build_jump_fleet("0\n"), "gate1")
    assert (check.login, check.answers, check.is_healthy) == (True, False, True)
    assert check.advice.startswith("its login runs no commands, which is enough")
    tagged = check_host(_build_jump_fleet("0\n", tags=["haproxy"]), "gate1")
    assert tagged.error == "gate1 runs no commands"


def test_login_shell_that_prints_extra_text_fails_the_check():
    check = check_host(ScriptedFleet({("h1", "id -u"): "Welcome!\n0\n"}), "h1")
    assert (check.login, check.answers) == (True, False)
    assert "check whether the login shell prints extra text" in check.error


@pytest.mark.parametrize(
    ("listed", "root"),
    [
        ("User keyturn may run the following:\n    (root) NOPASSWD: /usr/sbin/zpool\n", "sudo"),
        ("User keyturn may run the following:\n    (ALL) ALL\n", "none"),
        (Answer(1, "", "sudo: a password is required\n"), "none"),
        (Answer(127, "", "timeout: failed to run command 'sudo': No such file\n"), "none"),
    ],
)
def test_login_without_root_is_checked_for_its_sudo_rights(listed: str | Answer, root: str):
    fleet = ScriptedFleet(
        {("h1", "id -u"): "998\n", ("h1", "sudo -n -l"): listed, ("h1", _RIGHTS): _ALL_THERE},
        inventory=build_inventory("h1", user="keyturn"),
    )
    check = check_host(fleet, "h1")
    assert (check.is_healthy, check.root) == (root == "sudo", root)
    assert ("keyturn sudoers h1" in check.error) == (root == "none")


@pytest.mark.parametrize(
    ("answer", "words", "advice"),
    [
        ("sudo Sudo version 1.9.5p2\nrule 0\nend\n", "sudo 1.9.5 is too old", ""),
        (
            "sudo sudo-rs 0.2.13-0ubuntu1\nrule 0\nend\n",
            "its sudo is sudo-rs 0.2.13-0ubuntu1, which cannot read the rules: it supports no "
            "regular expressions. Install the package sudo, and choose it as sudo: on Ubuntu with "
            "`update-alternatives --set sudo /usr/bin/sudo.ws`",
            "",
        ),
        (
            f"{_SUDO}rule {_SYSCTL}\nend\n",
            "sudo rules are missing (sysctl for",
            "",
        ),
        (
            f"{_SUDO}absent /x/block-set-0\nend\n",
            "scripts are missing (block-set-0)",
            "",
        ),
        (
            f"{_SUDO}altered /x/a-0\nend\n",
            "scripts are changed or not executable (a-0)",
            "",
        ),
        (
            f"{_SUDO}program {_SYSCTL}\nend\n",
            "",
            "not installed, so .* sysctl",
        ),
        # An ordinary host has no controller, and `raid check` needs none.
        (f"{_SUDO}program {_PERC}\nend\n", "", "^$"),
        (_SUDO, "rules returned", ""),
        (f"{_SUDO}something else\nend\n", "rules returned", ""),
    ],
)
def test_missing_sudo_rules_and_scripts_are_reported_with_the_fix(
    answer: str, words: str, advice: str
):
    listed = "    (root) NOPASSWD: /usr/sbin/zpool\n"
    fleet = ScriptedFleet(
        {("h1", "id -u"): "998\n", ("h1", "sudo -n -l"): listed, ("h1", _RIGHTS): answer},
        inventory=build_inventory("h1", user="keyturn"),
    )
    check = check_host(fleet, "h1")
    assert check.is_healthy == (not words)
    assert words in check.error
    assert re.search(advice, check.advice)


@pytest.mark.skipif(os.geteuid() != 0, reason="the program is for root")
@pytest.mark.parametrize(
    ("sudo", "visudo", "words"),
    [
        ("sudo-rs 0.2.8", "visudo-rs 0.2.8", "sudo is sudo-rs: it supports no regular"),
        ("Sudo version 1.9.17p2", "visudo-rs 0.2.8", "visudo  is not that of sudo 1.9.17p2"),
        (
            "Sudo version 1.9.17p2",
            "visudo version 1.9.13p3",
            "visudo 1.9.13p3 is not that of sudo",
        ),
    ],
)
def test_rules_are_not_installed_where_another_sudo_would_read_them(
    tmp_path: Path, sudo: str, visudo: str, words: str
):
    for name, line in {"sudo": sudo, "visudo": visudo, "mkdir": "must not run"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {line}\n")
        (tmp_path / name).chmod(0o755)
    host = build_inventory("h1", user="keyturn")["h1"]
    done = subprocess.run(
        ["sh"],
        input=sudo_rules.format_install_program(host),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.endswith("Nothing was changed\n")


def test_bmc_check_reports_the_power_state_of_an_unreachable_server():
    def check(bmc: dict[str, object], answer: str | HostError) -> str:
        fleet = build_server_fleet(bmc, tags=["bmc"])
        fleet.script("nas1", "id -u", answer)
        return check_host(fleet, "nas1").error

    assert check({}, "0\n") == ""
    assert check({"serial": "X1"}, "0\n").startswith(
        "its BMC: the BMC of nas1 manages another server than the inventory names"
    )
    assert check({}, UnreachableError("no answer")) == (
        "no answer; its BMC reports the server's power as on"
    )


def test_host_error_is_escaped_in_the_check_table():
    drawn = format_checks([HostCheck("h1", "a:22", error="\x1b[2Jgone\nh2 is well")])
    assert "\x1b" not in "\n".join(drawn)
    assert "h1: \\x1b[2Jgone\\nh2 is well" in drawn

"""The sudoers lines of a host, printed and checked."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.cli_process import run_keyturn_with_policy
from tests.playground import sample_company
from tests.playground.keys import make_key

READER = {"user": "keyturn-read", "key": "keys/keyturn-read"}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A company with a storage server, a balancer, a host that we enter as root, and a switch."""
    sample_company.create_policy(tmp_path / "policy")
    host = {"address": "192.0.2.1", "host_key": make_key().public, "area": "storage"}
    hosts = {
        "nas1": {**host, "tags": ["nfs", "zfs"]},
        "nas2": {**host, "tags": ["nfs", "zfs"], "scripts": True, "reader": READER},
        "nas3": {**host, "tags": ["nfs", "zfs"], "changes": False},
        "lb1": {**host, "tags": ["csf"], "settings": {"csf.directory": "/opt/csf, /etc"}},
        "lb2": {**host, "user": "balancer"},
        "old1": {**host, "user": "root"},
        "sw1": {**host, "platform": "cisco_ios"},
    }
    YAML().dump({"hosts": hosts}, tmp_path / "policy" / "inventory.yaml")
    return tmp_path / "policy"


def _list_dialects(policy: Path, host: str) -> set[str]:
    printed = run_keyturn_with_policy(policy, "sudoers", host, "--json")
    assert printed.returncode == 0, printed.stderr
    return {row["dialect"] for row in json.loads(printed.stdout)}


@pytest.mark.real
@pytest.mark.parametrize("host", ["nas1", "nas2", "nas3"])
def test_printed_sudoers_lines_are_accepted_by_visudo(policy: Path, tmp_path: Path, host: str):
    printed = run_keyturn_with_policy(policy, "sudoers", host)
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "lines").write_text(printed.stdout)
    checked = subprocess.run(
        ["visudo", "-cf", str(tmp_path / "lines")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    scrub = "\nkeyturn ALL=(root) NOPASSWD: /usr/sbin/zpool ^scrub "
    assert (scrub in printed.stdout) == (host != "nas3")
    assert "secure_path=" in printed.stdout


def test_scripts_too_long_for_sudo_are_named_with_the_install_command(policy: Path):
    without = run_keyturn_with_policy(policy, "sudoers", "nas1").stdout
    assert (
        "# access-log is too long for sudo: `keyturn sudoers nas1 --scripts` installs it."
        in without
    )
    assert "too long" not in run_keyturn_with_policy(policy, "sudoers", "nas2").stdout


def test_sudoers_of_reading_and_changing_logins_differ(policy: Path):
    rows = json.loads(run_keyturn_with_policy(policy, "sudoers", "nas2", "--json").stdout)
    assert {(row["user"], row["reads"]) for row in rows} == {
        ("keyturn", False),
        ("keyturn-read", True),
    }
    lines = run_keyturn_with_policy(policy, "sudoers", "nas2").stdout
    assert "Defaults:keyturn env_reset" in lines
    assert "Defaults:keyturn-read env_reset" in lines
    assert "\nkeyturn-read ALL=(root) NOPASSWD: /usr/sbin/zpool ^status " in lines
    assert "keyturn-read ALL=(root) NOPASSWD: /usr/sbin/zpool ^scrub" not in lines
    assert all(
        row["reads"]
        for row in json.loads(run_keyturn_with_policy(policy, "sudoers", "nas3", "--json").stdout)
    )


# --- what --scripts installs ---

_TRIAL = """\
set -e
mount -t tmpfs none /usr/local/lib
mount -t tmpfs none /etc/sudoers.d
KEYTURN_CHECK=1 sh "$1" >"$1.would"
[ -z "$(find /usr/local/lib /etc/sudoers.d -type f)" ]
sh "$1" >"$1.did"
grep '^changed: ' "$1.did" | diff - "$1.would" >&2
sed '/^changed: /d' "$1.did"
KEYTURN_CHECK=1 sh "$1"
echo old >/usr/local/lib/keyturn/old-0123456789ab
sh "$1" >&2
visudo -cqf /etc/sudoers.d/keyturn
stat -c '%u %a %n' /etc/sudoers.d/* /usr/local/lib/keyturn/*
"""


@pytest.mark.real
def test_install_script_writes_files_of_root_and_removes_old_scripts(policy: Path, tmp_path: Path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may install files without changing this machine's own")
    printed = run_keyturn_with_policy(policy, "sudoers", "nas1", "--scripts")
    assert printed.returncode == 0
    assert "note: then set `scripts: true` for nas1 in inventory.yaml" in printed.stderr
    (tmp_path / "program").write_text(printed.stdout)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _TRIAL, "trial", str(tmp_path / "program")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heading, rules, *scripts = done.stdout.splitlines()
    assert heading == "scripts and sudoers lines are installed on nas1"
    assert rules == "0 440 /etc/sudoers.d/keyturn"
    assert all(re.fullmatch(r"0 755 /\S+/[a-z-]+-[0-9a-f]{12}", line) for line in scripts)
    assert any("/block-rule-" in line for line in scripts)
    assert not any("/old-" in line for line in scripts)
    named = set(re.findall(r"/usr/local/lib/keyturn/[a-z0-9-]+", printed.stdout))
    assert {line.split()[2] for line in scripts} <= named


@pytest.mark.real
def test_sudoers_lines_that_visudo_rejects_are_not_installed(policy: Path, tmp_path: Path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may install files without changing this machine's own")
    program = run_keyturn_with_policy(policy, "sudoers", "nas1", "--scripts").stdout
    (tmp_path / "program").write_text(program.replace("NOPASSWD:", "NOPASS WORD:"))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _TRIAL, "trial", str(tmp_path / "program")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "syntax error" in done.stderr


def test_every_sudoers_line_names_one_program_with_anchored_arguments(policy: Path):
    for row in json.loads(run_keyturn_with_policy(policy, "sudoers", "nas1", "--json").stdout):
        assert all(
            program.startswith(("/usr/", "/bin/", "/sbin/", "/opt/"))
            for program in row["programs"]
        )
        assert row["words"].startswith("^")
        assert row["words"].endswith("$")
        assert row["runbooks"] != []


def test_sudoers_of_a_host_contain_only_the_rules_of_its_runbooks(policy: Path):
    assert "block_rule" in _list_dialects(policy, "nas1")
    assert "block_rule" not in _list_dialects(policy, "lb2")


@pytest.mark.parametrize(
    ("host", "status", "says"),
    [
        ("nas7", 3, "there is no host 'nas7' in the inventory: did you mean nas1, nas2, nas3?"),
        ("old1", 1, "as root: create a separate login first"),
        ("sw1", 1, "is a network device (cisco_ios): it has no sudo"),
        ("lb1", 1, "the inventory sets csf.directory to '/opt/csf, /etc'"),
    ],
)
def test_host_without_sudoers_is_explained_in_one_line(
    policy: Path, host: str, status: int, says: str
):
    printed = run_keyturn_with_policy(policy, "sudoers", host)
    assert (printed.returncode, printed.stdout) == (status, "")
    assert says in printed.stderr
    assert len(printed.stderr.splitlines()) == 1

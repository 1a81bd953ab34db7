"""The sudoers lines of a host, as a person prints and checks them."""

import json
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.bot.inventory.typed import keyturn
from tests.playground import company
from tests.playground.keys import make_key


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A company with a storage server, a balancer, a host that we enter as root, and a switch."""
    company.found(tmp_path / "policy")
    host = {"address": "192.0.2.1", "host_key": make_key().public, "area": "storage"}
    hosts = {
        "nas1": {**host, "tags": ["nfs", "zfs"]},
        "lb1": {**host, "tags": ["csf"], "settings": {"csf.directory": "/opt/csf, /etc"}},
        "lb2": {**host, "user": "balancer"},
        "old1": {**host, "user": "root"},
        "sw1": {**host, "platform": "cisco_ios"},
    }
    YAML().dump({"hosts": hosts}, tmp_path / "policy" / "inventory.yaml")
    return tmp_path / "policy"


def _dialects(policy: Path, host: str) -> set[str]:
    printed = keyturn(policy, "sudoers", host, "--json")
    assert printed.returncode == 0, printed.stderr
    return {row["dialect"] for row in json.loads(printed.stdout)}


@pytest.mark.real
@pytest.mark.parametrize("wide", [(), ("--wide",)])
def test_visudo_takes_what_is_printed(policy: Path, tmp_path: Path, wide: tuple[str, ...]):
    printed = keyturn(policy, "sudoers", "nas1", *wide)
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "lines").write_text(printed.stdout)
    checked = subprocess.run(
        ["visudo", "-cf", str(tmp_path / "lines")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "\nkeyturn ALL=(root) NOPASSWD: /usr/sbin/zpool ^scrub " in printed.stdout
    assert "secure_path=" in printed.stdout
    left_out = "become root.\n# So it is left out"
    assert (left_out in printed.stdout) == (not wide)


def test_every_line_is_one_program_and_no_bare_wildcard(policy: Path):
    for row in json.loads(keyturn(policy, "sudoers", "nas1", "--json").stdout):
        assert all(program.startswith(("/usr/", "/bin/", "/sbin/")) for program in row["programs"])
        assert row["words"].startswith("^")
        assert row["words"].endswith("$")
        assert row["runbooks"] != []


def test_a_host_gets_only_what_its_runbooks_need(policy: Path):
    assert "block_rule" in _dialects(policy, "nas1")
    assert "block_rule" not in _dialects(policy, "lb2")


@pytest.mark.parametrize(
    ("host", "status", "says"),
    [
        ("nas7", 3, "there is no host 'nas7' in the inventory: did you mean nas1?"),
        ("old1", 1, "as root: give it a login of its own first"),
        ("sw1", 1, "is a network device (cisco_ios): it has no sudo"),
        ("lb1", 1, "the inventory sets csf.directory to '/opt/csf, /etc'"),
    ],
)
def test_where_there_are_none_it_is_said_in_a_line(
    policy: Path, host: str, status: int, says: str
):
    printed = keyturn(policy, "sudoers", host)
    assert (printed.returncode, printed.stdout) == (status, "")
    assert says in printed.stderr
    assert len(printed.stderr.splitlines()) == 1

"""The scripts that set a leg down and up, run here with a stand-in for ip and for /proc."""

import subprocess
from pathlib import Path

import pytest

from connectors import bond_leg
from connectors.bond_leg import LegState
from connectors.command import Shell
from connectors.probation import find_armed_change
from tests.runbooks.network import recorded

FOR_ROOT = (bond_leg.set_leg("bond0.7", "eth1", "down"), bond_leg.set_leg("bond0", "eth1", "up"))
# It does to the bond's file what the kernel does when a card is set up or down.
IP = """#!/bin/sh
echo "$@" >>"$LOG"
[ "$1 $2 $3" = "link set dev" ] && [ "$DEAF" != yes ] || exit 0
sed -i "/^Slave Interface: $4\\$/,/^Speed/s/^MII Status: .*/MII Status: $5/" "$BOND"
"""


class Host:
    """A directory with what the scripts read and write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bond = root / "proc/net/bonding/bond0"
        self.bond.parent.mkdir(parents=True)
        self.bond.write_text(recorded("bond-rr"))
        self.state = root / "var/lib/keyturn-probation"
        self.state.mkdir(parents=True)
        (self.state / "bond.armed").write_text("it is\n")
        (root / "ip").write_text(IP)
        (root / "ip").chmod(0o755)
        # The script waits for the bond as long as this says.
        (root / "sleep").write_text("#!/bin/sh\n")
        (root / "sleep").chmod(0o755)
        self.log = root / "log"
        self.environment = {
            **{"PATH": f"{root}:/usr/bin:/bin", "LOG": str(self.log), "BOND": str(self.bond)},
            "DEAF": "no",
        }

    def run(self, shell: Shell) -> subprocess.CompletedProcess[str]:
        words = shell.resolve({"probation.root": str(self.root)}, sudo=False).words
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False
        )

    def set_leg(self, leg: str, state: LegState) -> subprocess.CompletedProcess[str]:
        return self.run(bond_leg.set_leg("bond0", leg, state))

    def list_set(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_bond_leg_is_set_down_and_up_again(host: Host):
    done = host.set_leg("eth0", "down")
    assert (done.returncode, done.stdout) == (0, "eth0 of bond0 is down\n")
    done = host.set_leg("eth0", "up")
    assert (done.returncode, done.stdout) == (0, "eth0 of bond0 is up\n")
    assert host.list_set() == ["link set dev eth0 down", "link set dev eth0 up"]


def test_last_leg_of_a_bond_is_refused_by_the_script_on_the_host(host: Host):
    """Another leg may have failed after the plan was made."""
    for leg in ("eth1", "eth2", "eth3"):
        text = host.bond.read_text()
        head, _, rest = text.partition(f"Slave Interface: {leg}\n")
        down = rest.replace("MII Status: up", "MII Status: down", 1)
        host.bond.write_text(f"{head}Slave Interface: {leg}\n{down}" if rest else text)
    done = host.set_leg("eth0", "down")
    assert (done.returncode, done.stderr) == (1, "eth0 is the last leg of bond0\n")
    assert host.list_set() == []


@pytest.mark.parametrize("leg", ["eth", "eth9", "eth.0"])
def test_card_that_is_no_bond_member_is_not_set_down(host: Host, leg: str):
    done = host.set_leg(leg, "down")
    assert (done.returncode, done.stderr) == (1, f"{leg} is no member of bond0\n")
    assert host.list_set() == []


def test_bond_leg_is_not_set_down_without_a_probation(host: Host):
    (host.state / "bond.armed").unlink()
    assert host.set_leg("eth0", "down").stderr == "nothing is on probation\n"
    assert host.list_set() == []


def test_bond_leg_change_fails_when_the_bond_ignores_it(host: Host):
    host.environment["DEAF"] = "yes"
    done = host.set_leg("eth0", "down")
    assert (done.returncode, done.stderr) == (1, "bond0 does not notice that eth0 is down\n")
    host.bond.write_text(host.bond.read_text().replace("MII Status: up", "MII Status: down"))
    done = host.set_leg("eth0", "up")
    assert (done.returncode, done.stdout) == (0, "eth0 is set up, and has no link yet\n")


def test_bond_leg_probation_saves_and_restores_the_link(host: Host):
    """The loopback card is there on every machine, and set up."""
    arm = bond_leg.make_probation("lo").arm("0" * 16)
    assert find_armed_change(arm) is not None
    restore = str(bond_leg.make_probation("lo").restore)
    for phase in ("save", "restore"):
        subprocess.run(
            ["sh", "-c", restore, "keyturn", phase, "lo"],
            cwd=host.root, env=host.environment, check=True,
        )  # fmt: skip
    assert host.list_set() == ["link set dev lo up"]

"""Two FRR routers with VRRP on a link between them.

Each lives in a network namespace without a name, which goes with its processes.
"""

import os
import pwd
import subprocess
import time
from pathlib import Path

import pytest

from tests.playground.daemon import Daemon, find_program

_FRR = "/usr/lib/frr"
VTYSH = "/usr/bin/vtysh"
ADDRESS = "10.81.0.1"

# $1 is the directory. The second namespace belongs to the `sleep` whose process id is written.
_SCRIPT = """
set -e
ip link set lo up
unshare --net sh -c 'echo $$ > "$0/second"; exec sleep infinity' "$1" &
until [ -s "$1/second" ]; do sleep 0.02; done
second=$(cat "$1/second")
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
ip link add link0 type veth peer name link0 netns "$second"
router() {  # its directory, its last number, how its namespace is entered
  dir=$1; number=$2; shift 2
  "$@" ip link set lo up
  "$@" ip address add 10.81.0.$number/24 dev link0
  "$@" ip link set link0 up
  "$@" ip link add vrrp4-2-1 link link0 type macvlan mode bridge
  "$@" ip link set dev vrrp4-2-1 address 00:00:5e:00:01:05
  "$@" ip address add 10.81.0.1/24 dev vrrp4-2-1
  "$@" ip link set vrrp4-2-1 up
  for daemon in zebra vrrpd; do
    "$@" $FRR/$daemon --vty_socket "$dir" -z "$dir/zserv.api" -i "$dir/$daemon.pid" \\
      -f "$dir/frr.conf" &
    # One that does not find zebra asks again after ten seconds only.
    until [ -S "$dir/zebra.vty" ] && [ -S "$dir/zserv.api" ]; do sleep 0.02; done
  done
  "$@" $FRR/bgpd --vty_socket "$dir" -z "$dir/zserv.api" -i "$dir/bgpd.pid" -f "$dir/bgpd.conf" &
}
router "$1/r1" 2 env
router "$1/r2" 3 nsenter -t "$second" -n
wait
"""


class Routers(Daemon):
    """r1 and r2: r1 has the higher priority, so it leads while the link holds."""

    def __init__(self) -> None:
        find_program(f"{_FRR}/vrrpd", package="frr")
        if os.geteuid() != 0:
            pytest.skip("only root can make network namespaces for FRR, which then becomes frr")
        super().__init__()
        frr = pwd.getpwnam("frr")
        # FRR must get to its sockets; what lies beside its directory is closed on its own.
        for directory in (self.directory.parent, self.directory):
            directory.chmod(0o711)
        for name, priority in {"r1": 200, "r2": 100}.items():
            home = self.home(name)
            home.mkdir(mode=0o755)
            (home / "frr.conf").write_text(
                f"hostname {name}\ninterface link0\n vrrp 5 version 3\n"
                f" vrrp 5 priority {priority}\n vrrp 5 advertisement-interval 100\n"
                f" vrrp 5 ip {ADDRESS}\n"
            )
            number, other = (2, 3) if name == "r1" else (3, 2)
            (home / "bgpd.conf").write_text(
                f"router bgp 6500{number}\n no bgp ebgp-requires-policy\n"
                f" neighbor 10.81.0.{other} remote-as 6500{other}\n"
                f" neighbor 10.81.0.{other} timers 1 3\n"
                f" neighbor 10.81.0.{other} timers connect 1\n"
                " address-family ipv4 unicast\n  network 10.81.0.0/24\n"
            )
            for path in (home, home / "frr.conf", home / "bgpd.conf"):
                os.chown(path, frr.pw_uid, frr.pw_gid)

    def home(self, router: str) -> Path:
        return self.directory / router

    def vtysh(self, router: str, line: str) -> str:
        done = subprocess.run(
            [VTYSH, "--vty_socket", str(self.home(router)), "-c", line],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def shell(self, router: str) -> str:
        """Return the line of sshd_config that makes a router's command line the login shell."""
        return f"ForceCommand {VTYSH} --vty_socket {self.home(router)}"

    def cut(self) -> None:
        """Let each router's packets to the other get lost, and wait until both lead."""
        second = (self.directory / "second").read_text().strip()
        cut = ("ip", "link", "set", "link0", "down")
        subprocess.run(["nsenter", "-t", second, "-n", *cut], check=True)
        end = time.monotonic() + 20
        while self._leading("r2") != "Master":
            assert time.monotonic() < end, "r2 never took over"
            time.sleep(0.05)

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        script = _SCRIPT.replace("$FRR", _FRR)
        return ["unshare", "--net", "sh", "-c", script, "routers", str(self.directory)]

    def _answers(self) -> bool:
        time.sleep(0.05)  # to ask costs more than to wait
        return (self._leading("r1"), self._leading("r2")) == ("Master", "Backup")

    def _leading(self, router: str) -> str:
        lines = self.vtysh(router, "show vrrp summary").splitlines()
        return next((line.split()[5] for line in lines if "link0" in line), "")

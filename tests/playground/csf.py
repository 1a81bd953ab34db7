"""A host with a firewall of its own: a network namespace, sshd in it, and real iptables.

csf itself is in no distribution and wants to be installed into /etc and /usr; a program stands in
for it that loads its rules as csf 15.00 was seen to: what it says and the rules that result are
those of a recorded csf, for what is used here.
"""

import itertools
import os
import shlex
import shutil
import subprocess
from ipaddress import ip_network
from pathlib import Path

from tests.playground.daemon import PATH
from tests.playground.probation import Probations
from tests.playground.sshd import Sshd

_NEEDED = {"ip": "iproute2", "iptables": "iptables", "ipset": "ipset", "flock": "util-linux"}
_TEST_NETWORK = ip_network("198.18.0.0/15")
_numbers = itertools.count()

# What csf -r does to the chains that matter here, and what it says of it; $dir is put before.
_PROGRAM = r"""
say() { printf '%s  %s opt -- in %s out %s  %s  -> %s  \n' "$@"; }
entries() {
    awk '$1 == "Include" { while ((getline line < $2) > 0) print line; next } { print }' \
        "$dir/csf.allow" | awk '!/^[ \t]*#|Include/ && NF { print $1 }'
}
conf() { sed -n "s/^$1 *= *\"\(.*\)\".*/\1/p" "$dir/csf.conf"; }
use_ipv6=$(conf IPV6) use_ipset=$(conf LF_IPSET)
allow() {
    case $1 in
        'tcp|in|d='*'|s='*)
            port=${1#*d=} source=${1##*s=}
            echo "-A ALLOWIN -s $source ! -i lo -p tcp -m tcp --dport ${port%%|*} -j ACCEPT" \
                >>"$work/iptables"
            return;;
        *[!0-9./]*)
            [ "$use_ipv6" = 1 ] || return 0
            tables=ip6tables all=::/0 set=chain_6_ALLOW;;
        *) tables=iptables all=0.0.0.0/0 set=chain_ALLOW;;
    esac
    if [ "$use_ipset" = 1 ]; then
        echo "add $set $1" >>"$work/ipset"
        echo "csf: IPSET adding [$1] to set [$set]"
        return
    fi
    echo "-A ALLOWIN -s $1 ! -i lo -j ACCEPT" >>"$work/$tables"
    say ACCEPT all '!lo' '*' "$1" "$all"
    echo "-A ALLOWOUT -d $1 ! -o lo -j ACCEPT" >>"$work/$tables"
    say ACCEPT all '*' '!lo' "$all" "$1"
}
deny() { iptables "$1" DENYIN -s "$2" ! -i lo -j DROP; say DROP all '!lo' '*' "$2" 0.0.0.0/0; }
add() {
    grep -q "^$2 " "$dir/csf.$1" && { echo "add failed: $2 is in already in the $1 file"; exit; }
    echo "Adding $2 to csf.$1 and iptables..."
    echo "$2 # $3 - Sat Nov 21 08:19:24 2026" >>"$dir/csf.$1"
}
remove() {
    grep -q "^$2 " "$dir/csf.$1" || { echo "csf: $2 not found in csf.$1"; exit; }
    echo "Removing rule..."; sed -i "/^$2 /d" "$dir/csf.$1"
}
find_in_files() {
    echo; echo 'Table  Chain            num   pkts bytes target     prot opt in     out     source'
    iptables -S DENYIN | grep -Fq -- "-s $1/32 " &&
        echo "filter DENYIN  1  0  0 DROP  0  --  !lo  *  $1  0.0.0.0/0" ||
        echo "No matches found for $1 in iptables"
    for each in allow deny; do sed -n "s/^$1 .*/csf.$each: &/p" "$dir/csf.$each"; done
}
restart() {
    for tables in iptables ip6tables; do
        $tables -P INPUT ACCEPT; $tables -F; $tables -X
        for chain in ALLOWIN ALLOWOUT DENYIN LOCALINPUT; do $tables -N $chain; done
        $tables -A INPUT ! -i lo -j LOCALINPUT
        $tables -A INPUT -i lo -j ACCEPT
        $tables -A INPUT ! -i lo -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        for port in $(conf TCP_IN | tr , ' '); do
            $tables -A INPUT ! -i lo -p tcp -m conntrack --ctstate NEW \
                -m tcp --dport "$port" -j ACCEPT
        done
        $tables -A LOCALINPUT ! -i lo -j ALLOWIN
        $tables -A LOCALINPUT ! -i lo -j DENYIN
    done
    ipset destroy
    if [ "$use_ipset" = 1 ]; then
        ipset create chain_ALLOW hash:net
        ipset create chain_6_ALLOW hash:net family inet6
        iptables -A ALLOWIN -m set --match-set chain_ALLOW src -j ACCEPT
        ip6tables -A ALLOWIN -m set --match-set chain_6_ALLOW src -j ACCEPT
    fi
    work=$(mktemp -d)
    for tables in iptables ip6tables; do echo '*filter' >"$work/$tables"; done
    for entry in $(entries); do allow "$entry"; done
    for tables in iptables ip6tables; do
        echo COMMIT >>"$work/$tables"
        $tables-restore --noflush <"$work/$tables"
    done
    [ ! -e "$work/ipset" ] || ipset restore <"$work/ipset"
    for entry in $(awk '!/^#/ { print $1 }' "$dir/csf.deny"); do deny -A "$entry"; done
    rm -r "$work"
    iptables -P INPUT DROP; ip6tables -P INPUT DROP
    say LOCALINPUT all '!lo' '*' 0.0.0.0/0 0.0.0.0/0
    date +%s.%N >>"$dir/../restarts"
}
case $1 in
    -v) echo 'csf: v15.00 (generic)';;
    -r|-sf)
        if [ -e "$dir/csf.disable" ]; then
            echo "csf and lfd have been disabled, use 'csf -e' to enable"
            exit 1
        fi
        restart
        echo
        echo '*WARNING* RESTRICT_SYSLOG is disabled. See SECURITY WARNING in /etc/csf/csf.conf.';;
    -a) add allow "$2" "$3"; iptables -A ALLOWIN -s "$2" ! -i lo -j ACCEPT;;
    -ar) remove allow "$2"; iptables -D ALLOWIN -s "$2" ! -i lo -j ACCEPT;;
    -d) add deny "$2" "$3"; deny -A "$2";;
    -dr) remove deny "$2"; deny -D "$2";;
    -g) find_in_files "$2";;
    *) exit 64;;
esac
"""
_CONF = {"TESTING": "0", "IPV6": "1", "LF_IPSET": "0", "LFDSTART": "0", "GLOBAL_ALLOW": ""}
ALLOW = """\
# tcp/udp|in/out|s/d=port|s/d=ip
# See readme.txt for more information
198.51.100.7 # Manually allowed: 198.51.100.7 (-) - Sat Nov 21 08:19:24 2026
tcp|in|d=443|s=198.51.100.12 # web only - Sat Nov 21 08:19:33 2026
"""


def explain_missing_support() -> str:
    """Say why no firewall can be had here; "" if it can."""
    if os.getuid() != 0:
        return "network namespaces and firewalls need root"
    for program, package in _NEEDED.items():
        assert shutil.which(program, path=PATH), f"install the Debian package {package}"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _TRIAL],
        env={"PATH": PATH},
        capture_output=True,
        text=True,
    )
    return tried.stderr.strip() if tried.returncode else ""


_TRIAL = """
set -e
ip link add end0 type veth peer name end1
ipset create t hash:net
for tables in iptables ip6tables; do $tables -A INPUT -m conntrack --ctstate NEW -j ACCEPT; done
iptables -A INPUT -m set --match-set t src -j ACCEPT
"""


class CsfHost(Sshd):
    """A host behind csf, reached from here over a link of its own.

    etc: its /etc/csf. cpanel: where its /var/cpanel would be. probation: seconds.
    """

    def __init__(self, *, probation: int = 60) -> None:
        number = next(_numbers)
        self._name = f"kt{os.getpid()}-{number}"
        # A link of four addresses out of those that are kept for tests of networks.
        first = _TEST_NETWORK[(os.getpid() * 64 + number) * 4 % _TEST_NETWORK.num_addresses]
        self._ends = (f"{first + 1}/30", f"{first + 2}/30")
        super().__init__(address=str(first + 2), port=22)
        self.etc = self.directory / "csf"
        self.cpanel = self.directory / "cpanel"
        self.program = self.directory / "sbin-csf"
        self.probations = Probations(self.directory / "root")
        self._probation = probation
        self._build()

    @property
    def own(self) -> Path:
        return self.etc / "keyturn.allow"

    @property
    def settings(self) -> dict[str, str]:
        """What the inventory has to say of this host."""
        return {
            "csf.directory": str(self.etc),
            "csf.program": str(self.program),
            "csf.probation": str(self._probation),
            **self.probations.settings,
            "cpanel.directory": str(self.cpanel),
        }

    @property
    def restarts(self) -> int:
        """How often csf has loaded its rules."""
        log = self.directory / "restarts"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def configure(self, **changed: str) -> None:
        """Write csf.conf, which is in force once csf is restarted."""
        lines = [f'{name} = "{value}"' for name, value in {**_CONF, **changed}.items()]
        tcp_in = [] if "TCP_IN" in changed else ['TCP_IN = "22,80,443"']
        text = "\n".join(['TESTING_INTERVAL = "5"', *lines, *tcp_in])
        (self.etc / "csf.conf").write_text(f"# SECTION:Initial Settings\n{text}\n")

    def inside(self, *words: str) -> str:
        """Run a program in the host's network and return what it says."""
        return subprocess.run(
            ["ip", "netns", "exec", self._name, *words],
            env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def restart(self) -> None:
        self.inside(str(self.program), "-r")

    def close(self) -> None:
        super().close()
        subprocess.run(["ip", "netns", "del", self._name], check=True)

    def _build(self) -> None:
        self.etc.mkdir(mode=0o600)
        self.configure()
        (self.etc / "csf.allow").write_text(f"{ALLOW}Include {self.own}\n")
        (self.etc / "csf.deny").write_text("# one address to a line\n")
        self.own.touch()
        self.program.write_text(f"#!/bin/sh\ndir={shlex.quote(str(self.etc))}\n{_PROGRAM}")
        self.program.chmod(0o700)
        here, there = self._ends
        outer, inner = f"o{self._name[2:]}", f"i{self._name[2:]}"
        for line in (
            f"ip netns add {self._name}",
            f"ip link add {outer} type veth peer name {inner} netns {self._name}",
            f"ip addr add {here} dev {outer}",
            f"ip link set {outer} up",
            f"ip -n {self._name} addr add {there} dev {inner}",
            f"ip -n {self._name} link set {inner} up",
            f"ip -n {self._name} link set lo up",
        ):
            subprocess.run(line.split(), env={"PATH": PATH}, check=True)

    def _configure(self) -> list[str]:
        return ["ip", "netns", "exec", self._name, *super()._configure()]

"""Hosts that nothing is asked of: what their connections cost, and when one is known to be dead.

Hosts and client live in a network of their own, in which the packets of some can be made to
vanish: that takes root.
"""

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from connectors import uptime
from connectors.fleet import Fleet
from connectors.sessions import Sessions
from tests.bench.farm import Farm
from tests.bench.measuring import Part, at_most, resident, table, told

_AT_ONCE = 32
# These are met first: what all connections have in common is no connection's own.
_FIRST = 20
_DEAD = 5
_PATIENCE = 40.0


def measured(hosts: int) -> Part:
    """Keep connections to so many hosts, and do nothing."""
    command = ["unshare", "--net", sys.executable, "-m", "tests.bench.idling", str(hosts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return Part(f"Not measured here:\n\n```\n{done.stderr.strip()[-500:]}\n```", [])
    found: dict[str, float] = json.loads(done.stdout)
    targets = [
        at_most(1, f"{hosts} warm idle hosts, of a core", found["core"] * 100, "%"),
        at_most(128, "each of them, memory", found["memory"] * 1024, "KiB"),
        at_most(25, "one that vanished is noticed within", found["noticed"], "s"),
    ]
    more = [
        told("times a second that any thread wakes", found["wakes"], "/s"),
        told("threads of the process", found["threads"], ""),
    ]
    return Part(table([*targets, *more]), targets)


def _idle(hosts: int) -> dict[str, float]:
    """Return what so many connections cost while nobody uses them, in a network of our own."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as place, Farm(Path(place), hosts) as farm:
        sessions = Sessions(farm.policy)
        fleet = Fleet(farm.inventory, sessions)
        _meet(fleet, farm.names[:_FIRST])
        before = resident()
        _meet(fleet, farm.names)
        grown = resident() - before
        found = {"memory": grown / (hosts - _FIRST), **_watched(farm, sessions)}
        fleet.close()
    return found


def _meet(fleet: Fleet, names: list[str]) -> None:
    def ask(name: str) -> None:
        fleet.ask(name, uptime.uptime())

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(ask, names))


def _watched(farm: Farm, sessions: Sessions) -> dict[str, float]:
    """Have some hosts vanish, and return what waiting for that to be noticed cost."""
    hosts, threads = sessions.open, len(list(Path("/proc/self/task").iterdir()))
    dead = farm.servers[-_DEAD:]
    for server in dead:
        for side in ("--source", "--destination"):
            words = ["iptables", "-A", "INPUT", side, server.address, "-j", "DROP"]
            subprocess.run(words, check=True)
    began, cpu, wakes = time.monotonic(), time.process_time(), _wakes()
    looks = 0
    while sessions.open > hosts - len(dead):
        if time.monotonic() - began > _PATIENCE:
            raise SystemExit(f"{sessions.open - hosts + len(dead)} are thought to be alive")
        time.sleep(0.5)
        looks += 1
    took = time.monotonic() - began
    return {
        "noticed": took,
        "core": (time.process_time() - cpu) / took,
        "wakes": max(0, _wakes() - wakes - looks) / took,
        "threads": threads,
    }


def _wakes() -> int:
    """Return how often all threads together have given up a processor to wait for something."""
    return sum(
        int(line.split()[1])
        for task in Path("/proc/self/task").iterdir()
        for line in (task / "status").read_text(encoding="ascii").splitlines()
        if line.startswith("voluntary_ctxt")
    )


if __name__ == "__main__":
    print(json.dumps(_idle(int(sys.argv[1]))))

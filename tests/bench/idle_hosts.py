"""Idle hosts: the CPU cost of their open connections."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from connectors import uptime
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from tests.bench.farm import Farm
from tests.bench.measurements import Part, set_maximum, table

_AT_ONCE = 32
_SECONDS = 30.0


def measure(hosts: int) -> Part:
    """Keep connections to so many hosts, and do nothing."""
    # A process of its own: nothing else in it takes processor time.
    command = [sys.executable, "-m", "tests.bench.idle_hosts", str(hosts)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures = [
        set_maximum(1, f"{hosts} warm idle hosts, of a core", float(done.stdout) * 100, "%")
    ]
    return Part(table(figures), figures)


def _idle(hosts: int) -> float:
    """Return the share of a core that so many connections cost while they are not used."""
    with tempfile.TemporaryDirectory() as place, Farm(Path(place), hosts) as farm:
        sessions = SshPool(farm.policy)
        with closing(Fleet(farm.inventory, sessions)) as fleet:

            def ask(name: str) -> None:
                fleet.run_query(name, uptime.query_uptime())

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(ask, farm.names))
            began, cpu = time.monotonic(), time.process_time()
            time.sleep(_SECONDS)
            took = time.monotonic() - began
            assert sessions.open_count == hosts, f"{hosts - sessions.open_count} connections ended"
            return (time.process_time() - cpu) / took


if __name__ == "__main__":
    print(_idle(int(sys.argv[1])))

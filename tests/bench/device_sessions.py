"""A network device: what a line takes over a warm session, and over a new one.

The device answers at once, in a process of its own. paramiko alone types the same line and waits
for the prompt.
"""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import paramiko

from connectors.command import DeviceCommand, Query
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from tests.bench.measurements import Part, set_maximum, table, timed
from tests.playground.device import PASSWORD, ScriptedDevice

_LINE = "show interfaces"
_ANSWER = "\n".join(f"Gi1/0/{port} is up, line protocol is up" for port in range(1, 49))
_SHOW = Query(DeviceCommand((_LINE,), platforms=("cisco_ios",)), str.strip)
# Milliseconds more than paramiko alone.
_MORE = 30.0


def measure(rounds: int) -> Part:
    """Ask so often over a warm session, and a fifth as often over a new one."""
    with _start_device() as (entry, policy):
        bare = median(_ask_by_paramiko(entry, rounds)) * 1000
        warm = median(_ask(entry, policy, rounds)) * 1000
        cold = median(_ask(entry, policy, 0)[0] for _ in range(max(3, rounds // 5))) * 1000
    what = "a line to a network device"
    figures = [
        set_maximum(bare + _MORE, f"{what} over a warm session, p50", warm, "ms", bare),
        set_maximum(400, f"{what} over a new session, with login, p50", cold, "ms"),
    ]
    return Part(table(figures, beside="paramiko alone"), figures)


def _ask(entry: Mapping[str, object], policy: Path, rounds: int) -> list[float]:
    """Return how long each question took over one connection: the first only if rounds is 0."""
    inventory = Inventory.model_validate({"hosts": {"sw1": entry}})
    with closing(SshPool(policy)) as pool:
        fleet = Fleet(inventory, pool)
        return timed(lambda: fleet.run_query("sw1", _SHOW), rounds + 1)[1 if rounds else 0 :]


def _ask_by_paramiko(entry: Mapping[str, Any], rounds: int) -> list[float]:
    stream = socket.create_connection((entry["address"], entry["port"]))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with paramiko.Transport(stream) as transport:
        transport.connect(username=entry["user"], password=PASSWORD)
        channel = transport.open_session()
        channel.get_pty()
        channel.invoke_shell()
        _read_until_prompt(channel)

        def ask() -> None:
            channel.sendall(f"{_LINE}\n".encode())
            _read_until_prompt(channel)

        return timed(ask, rounds)


def _read_until_prompt(channel: paramiko.Channel) -> None:
    heard = b""
    while not heard.endswith(b"sw1#"):
        heard += channel.recv(65536)


@contextmanager
def _start_device() -> Generator[tuple[Mapping[str, Any], Path]]:
    """Yield the entry of a device in the inventory, and the directory with its password."""
    with tempfile.TemporaryDirectory() as directory:
        password = Path(directory) / "password"
        password.touch(0o600)
        password.write_text(f"{PASSWORD}\n", encoding="ascii")
        command = [sys.executable, "-m", __name__]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            entry = json.loads(process.stdout.readline()) | {"password_file": password.name}
            yield entry, Path(directory)
            process.stdin.close()


if __name__ == "__main__":
    with ScriptedDevice({_LINE: _ANSWER}) as device:
        print(json.dumps(device.inventory_entry()), flush=True)
        sys.stdin.read()

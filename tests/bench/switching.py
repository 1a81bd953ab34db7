"""A network device: what a line takes over a warm session, and to connect to one that is cold.

The device answers at once, and paramiko alone says the same line to it and waits for the prompt.
"""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import paramiko

from connectors.command import DeviceCommand, Query
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.sessions import Sessions
from tests.bench.measuring import Part, at_most, p95, table, timed, told
from tests.playground.device import PASSWORD, ScriptedDevice

_LINE = "show version"
_ANSWER = "\n".join(f"Gi1/0/{n} is up, line protocol is up" for n in range(1, 49))
_SHOW = Query(DeviceCommand((_LINE,), platforms=("cisco_ios",)), str.strip)
_MORE = 30.0


def measured(rounds: int) -> Part:
    """Ask so often over a warm session, and connect anew a fifth as often."""
    with _device() as (entry, place):
        own = _own(entry, rounds)
        loading = _asked(entry, place, 1)[0]
        warm = _asked(entry, place, rounds + 1)[1:]
        cold = [_asked(entry, place, 1)[0] for _ in range(max(3, rounds // 5))]
    theirs = median(own) * 1000
    what = "`show` over a warm session to a network device"
    targets = [
        at_most(theirs + _MORE, f"{what}, p50", median(warm) * 1000, "ms", theirs),
        at_most(400, "the same cold: connected, logged in, asked, p50", median(cold) * 1000, "ms"),
    ]
    more = [
        told("the same warm, p95", p95(warm) * 1000, "ms", p95(own) * 1000),
        told("the first of a process, which loads what it takes", loading * 1000, "ms"),
    ]
    return Part(table([*targets, *more], beside="the device's own"), targets)


def _asked(entry: dict[str, object], place: Path, rounds: int) -> list[float]:
    """Return how long each of so many questions took over one connection of ours."""
    inventory = Inventory.model_validate({"hosts": {"sw1": entry}})
    with closing(Fleet(inventory, Sessions(place))) as fleet:
        return timed(lambda: fleet.ask("sw1", _SHOW), rounds)


def _own(entry: dict[str, object], rounds: int) -> list[float]:
    """Return how long the device takes from a line to its next prompt."""
    stream = socket.create_connection((str(entry["address"]), int(str(entry["port"]))))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with paramiko.Transport(stream) as transport:
        transport.connect(username=str(entry["user"]), password=PASSWORD)
        channel = transport.open_session()
        channel.get_pty()
        channel.invoke_shell()
        _until_prompt(channel)

        def ask() -> None:
            channel.sendall(f"{_LINE}\n".encode())
            _until_prompt(channel)

        return timed(ask, rounds)


def _until_prompt(channel: paramiko.Channel) -> None:
    heard = b""
    while not heard.endswith(b"sw1#"):
        heard += channel.recv(65536)


@contextmanager
def _device() -> Generator[tuple[dict[str, object], Path]]:
    """Yield a device's entry of an inventory, and the directory of its files.

    It is a process of its own.
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "password").touch(0o600)
        (place / "password").write_text(f"{PASSWORD}\n")
        command = [sys.executable, "-m", "tests.bench.switching"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            port, key = process.stdout.readline().strip().split(" ", 1)
            entry: dict[str, object] = {
                **{"address": "127.0.0.1", "port": int(port), "user": "keyturn"},
                **{"platform": "cisco_ios", "host_key": key, "area": "network"},
                "password_file": "password",
            }
            try:
                yield entry, place
            finally:
                process.terminate()


if __name__ == "__main__":
    with ScriptedDevice({_LINE: _ANSWER}) as device:
        print(device.port, device.host_key.public, flush=True)
        while True:
            time.sleep(60)

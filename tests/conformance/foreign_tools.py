"""litewitness of torchwood and fsck of Tessera, built by Go, and run as processes."""

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from bot.model.verifier_keys import COSIGNATURE, VerifierKey, WitnessAddress

TOOLS = {
    "litewitness": "filippo.io/torchwood/cmd/litewitness@v0.6.1",
    "fsck": "github.com/transparency-dev/tessera/cmd/fsck@v1.0.4",
}
_SECONDS = 20.0


def install_tools(directory: Path) -> str:
    """Build what is not there yet; return why it cannot be built, "" if it is there."""
    missing = [package for name, package in TOOLS.items() if not (directory / name).exists()]
    if missing and shutil.which("go") is None:
        return "Go is not installed, and it builds litewitness and fsck"
    for package in missing:
        environment = os.environ | {"GOBIN": str(directory), "GOFLAGS": "-mod=mod"}
        ended = subprocess.run(
            ["go", "install", package],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            return f"Go cannot build {package}: {ended.stderr.strip().splitlines()[-1:]}"
    return ""


def check_tiles(tools: Path, tiles: Path, key: VerifierKey) -> str:
    """Return what Tessera's fsck finds wrong with an export; "" if it accepts it."""
    file = tiles.with_suffix(".vkey")
    file.write_text(key.text)
    ended = subprocess.run(
        [
            *(str(tools / "fsck"), f"--storage_url=file://{tiles}/", f"--public_key={file}"),
            # With fewer workers than things that are wrong, it waits for ever.
            *("--ui=false", "-N=64"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    # It exits with 0 also if it finds something.
    if found := re.search(r"(?:fsck failed|panic): (.*)", ended.stderr):
        return found[1]
    is_accepted = ended.returncode == 0 and "Successfully fsck'd log" in ended.stderr
    return "" if is_accepted else ended.stderr.strip()[-200:] or "it printed nothing"


@contextmanager
def run_litewitness(tools: Path, directory: Path, log: VerifierKey) -> Generator[WitnessAddress]:
    """Run litewitness for one log. Its key is in an agent of OpenSSH."""
    agent, key = directory / "agent", directory / "witness_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    blob = b64decode(key.with_suffix(".pub").read_text().split()[1])
    fingerprint = b64encode(sha256(blob).digest()).decode().rstrip("=")
    name, port = "litewitness.example/w1", _find_port()
    with _run(["ssh-agent", "-D", "-a", str(agent)], agent.exists):
        subprocess.run(
            ["ssh-add", "-q", key], env=os.environ | {"SSH_AUTH_SOCK": str(agent)}, check=True
        )
        database = directory / "litewitness.db"
        command = [
            *(str(tools / "litewitness"), f"-db={database}", f"-ssh-agent={agent}"),
            *(f"-name={name}", f"-key=SHA256:{fingerprint}", f"-listen=127.0.0.1:{port}"),
        ]
        with _run(command, lambda: _has_schema(database)):
            _add_log(database, log)
            public = VerifierKey(name, COSIGNATURE, blob[-32:].hex())
            yield WitnessAddress(public, f"http://127.0.0.1:{port}")


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def _run(command: list[str], is_ready: Callable[[], bool]) -> Generator[None]:
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until = time.monotonic() + _SECONDS
            while not is_ready():
                if time.monotonic() > until or process.poll() is not None:
                    raise RuntimeError(f"{command[0]} did not start")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def _has_schema(database: Path) -> bool:
    if not database.exists():
        return False
    query = "SELECT count(*) FROM sqlite_master WHERE name IN ('log', 'key')"
    sql = sqlite3.connect(database)
    try:
        return bool(sql.execute(query).fetchone()[0] == 2)
    except sqlite3.OperationalError:  # it is being created
        return False
    finally:
        sql.close()


def _add_log(database: Path, log: VerifierKey) -> None:
    """Do what its witnessctl does with add-log and add-key."""
    sql = sqlite3.connect(database, timeout=5)
    with sql:
        empty = b64encode(sha256(b"").digest()).decode()
        sql.execute("INSERT INTO log VALUES (?, 0, ?)", (log.name, empty))
        sql.execute("INSERT INTO key VALUES (?, ?)", (log.name, log.text))
    sql.close()

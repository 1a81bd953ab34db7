"""Start-up: the time until commands and `keyturn serve` answer, and the memory used."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2

from bot.audit import log_snapshot
from bot.policy import PolicyDirectory
from tests.bench.filled_database import open_filled_database
from tests.bench.measurements import Figure, Part, resident, set_maximum, table, timed
from tests.policies import write_policy
from tests.slack_emulator.server import EmulatorServer

_KEYTURN = (sys.executable, "-m", "bot")
_PAGES = ("/healthz", "/", "/api/v1/openapi.json", "/metrics")
_PATIENCE = 30.0
# Seconds.
_SETTLES, _IDLE = 15, 40


@dataclass(frozen=True)
class _Start:
    """How a service started."""

    seconds: float
    """Until it answered."""
    cpu: float
    """Seconds of the processor that it took until then."""
    mebibytes: float
    """Memory that it held after some pages."""
    pid: int


def measure(rounds: int, entries: int, keep: Path | None) -> Part:
    """Start each so often, one after the other. entries: in the log of the filled database."""
    with (
        tempfile.TemporaryDirectory() as place,
        open_filled_database("SQLite", entries, keep) as filled,
    ):
        kept = _environment(Path(place))
        bare = median(timed(lambda: _run(kept, sys.executable, "-c", "pass"), rounds))
        shown = median(timed(lambda: _run(kept, *_KEYTURN, "--help"), rounds))
        # A service that does not answer.
        client = {**kept, "KEYTURN_TOKEN": "kt_none", "KEYTURN_PORT": "1"}
        asked = median(timed(lambda: _run(client, *_KEYTURN, "runs", status=1), rounds))
        full = {**kept, "KEYTURN_DATA": str(filled.place)}
        with filled.database.transaction() as tx:
            log_snapshot.delete_snapshots(tx)
        # The first start creates the tables, or reads the whole log.
        _start(kept)
        first = _start(full)
        ready, holds = _served(kept, rounds)
        cpu, cpu_of_full = _compare_cpu(kept, full, rounds)
        idle = _measure_idle(full)
        with EmulatorServer(
            PolicyDirectory(Path(place) / "policy").get_policy(), events=""
        ) as slack:
            chat = {f"KEYTURN_{name.upper()}": value for name, value in slack.settings.items()}
            with_chat, holds_with_chat = _served({**kept, **chat}, rounds)
    log = f"{filled.entries:,} entries"
    targets = [
        set_maximum(120, "`keyturn --help`", shown * 1000, "ms", bare * 1000),
        set_maximum(200, "`keyturn runs` without a service", asked * 1000, "ms", bare * 1000),
        set_maximum(2.0, "`keyturn serve`, until it answers", ready, "s", bare),
        set_maximum(2.0, "the same with chat", with_chat, "s", bare),
        set_maximum(150, "memory of the embedded service", holds, "MB"),
        # Bolt and aiohttp, which chat needs, take 17 MB.
        set_maximum(170, "the same with chat", holds_with_chat, "MB"),
        set_maximum(2.5, f"`keyturn serve` with {log}, CPU until it answers", cpu_of_full, "s"),
        set_maximum(1.25, "the same, beside an empty log", cpu_of_full / cpu, "×"),
        set_maximum(
            0.3, f"the same when it is idle, with {filled.runs:,} runs: of a core", idle, "%"
        ),
    ]
    without = Figure(
        "the same without a snapshot, which reads the whole log", first.cpu, "s", None, "", None
    )
    return Part(table([*targets, without], beside="Python alone"), targets)


def _environment(place: Path) -> dict[str, str]:
    write_policy(place / "policy")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "KEYTURN_DATA": str(place / "var"),
        "KEYTURN_POLICY": str(place / "policy"),
        "KEYTURN_PORT": "0",
    }


def _run(environment: Mapping[str, str], *command: str, status: int = 0) -> None:
    ran = subprocess.run(command, env=dict(environment), check=False, capture_output=True)
    if ran.returncode != status:
        raise RuntimeError(ran.stderr.decode())


def _served(environment: Mapping[str, str], rounds: int) -> tuple[float, float]:
    """Return the seconds until it answers and the megabytes that it holds, at the median."""
    starts = [_start(environment) for _ in range(rounds)]
    megabytes = [one.mebibytes * 1024 * 1024 / 1_000_000 for one in starts]
    return median(one.seconds for one in starts), median(megabytes)


def _compare_cpu(
    empty: Mapping[str, str], full: Mapping[str, str], rounds: int
) -> tuple[float, float]:
    """Return the seconds of the processor that each start takes, at the median, in turns."""
    starts = [(_start(empty), _start(full)) for _ in range(rounds)]
    return median(one.cpu for one, _ in starts), median(one.cpu for _, one in starts)


def _start(environment: Mapping[str, str]) -> _Start:
    with _serving(environment) as start:
        return start


def _measure_idle(environment: Mapping[str, str]) -> float:
    """Return which share of a core a service takes that nobody asks, in percent."""
    with _serving(environment) as start:
        # What follows a start is over by then.
        time.sleep(_SETTLES)
        before = _read_cpu(start.pid)
        time.sleep(_IDLE)
        return (_read_cpu(start.pid) - before) / _IDLE * 100


@contextmanager
def _serving(environment: Mapping[str, str]) -> Generator[_Start]:
    """Yield how a service started."""
    began = time.perf_counter()
    command = [*_KEYTURN, "serve"]
    env = dict(environment)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with httpx2.Client(base_url=address, timeout=_PATIENCE) as browser:
                browser.get(_PAGES[0]).raise_for_status()
                took, cpu = time.perf_counter() - began, _read_cpu(process.pid)
                for page in _PAGES:
                    browser.get(page)
            yield _Start(took, cpu, resident(process=process.pid), process.pid)
        finally:
            process.terminate()


def _read_cpu(process: int) -> float:
    """Return the seconds of the processor that a process has taken: its own and the system's."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

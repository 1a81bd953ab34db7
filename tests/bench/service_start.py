"""Start-up: the time until `keyturn --help` and `keyturn serve` answer, and the memory used."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx2

from bot.policy import PolicyDirectory
from tests.bench.measurements import Part, resident, set_maximum, table, timed
from tests.policies import write_policy
from tests.slack_emulator.server import EmulatorServer

_KEYTURN = (sys.executable, "-m", "bot")
_PAGES = ("/healthz", "/", "/api/v1/openapi.json", "/metrics")
_PATIENCE = 30.0


def measure(rounds: int) -> Part:
    """Start each so often, one after the other."""
    with tempfile.TemporaryDirectory() as place:
        kept = _environment(Path(place))
        bare = median(timed(lambda: _run(kept, sys.executable, "-c", "pass"), rounds))
        with _serving(kept):
            pass  # The first start creates the tables.
        ready, holds = _served(kept, rounds)
        with EmulatorServer(
            PolicyDirectory(Path(place) / "policy").get_policy(), events=""
        ) as slack:
            chat = {f"KEYTURN_{name.upper()}": value for name, value in slack.settings.items()}
            with_chat, holds_with_chat = _served({**kept, **chat}, rounds)
    targets = [
        set_maximum(2.0, "`keyturn serve`, until it answers", ready, "s", bare),
        set_maximum(2.0, "the same with chat", with_chat, "s", bare),
        set_maximum(150, "memory of the embedded service", holds, "MB"),
        # Bolt and aiohttp, which chat needs, take 17 MB.
        set_maximum(170, "the same with chat", holds_with_chat, "MB"),
    ]
    return Part(table(targets, beside="Python alone"), targets)


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


def _run(environment: Mapping[str, str], *command: str) -> None:
    subprocess.run(command, env=dict(environment), check=True, stdout=subprocess.DEVNULL)


def _served(environment: Mapping[str, str], rounds: int) -> tuple[float, float]:
    """Return the seconds until it answers and the megabytes that it holds, at the median."""
    seconds: list[float] = []
    holds: list[float] = []
    for _ in range(rounds):
        with _serving(environment) as (took, mebibytes):
            seconds.append(took)
            holds.append(mebibytes * 1024 * 1024 / 1_000_000)
    return median(seconds), median(holds)


@contextmanager
def _serving(environment: Mapping[str, str]) -> Generator[tuple[float, float]]:
    """Yield the seconds until a service answers, and the MiB that it holds after some pages."""
    began = time.perf_counter()
    command = [*_KEYTURN, "serve"]
    env = dict(environment)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with httpx2.Client(base_url=address, timeout=_PATIENCE) as browser:
                browser.get(_PAGES[0]).raise_for_status()
                took = time.perf_counter() - began
                for page in _PAGES:
                    browser.get(page)
            yield took, resident(process=process.pid)
        finally:
            process.terminate()

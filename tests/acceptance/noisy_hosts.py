"""A request for many hosts that all print live output without a pause."""

import json
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bot.db import runs
from bot.db.database import Database, Transaction
from bot.execution.live_output import LiveOutputWriter
from bot.model.run import RequestOrigin, Run, State
from connectors.wrapper import LineSplitter
from tests.bot.web.sample_runs import add_pending_run, add_requested_run, approve, start_run

HOSTS = 200
# Of each host: 10,000 lines a second of two hundred.
_LINES, _SECONDS = 5, 0.1


@dataclass
class LineCount:
    """How many lines all hosts printed up to now."""

    lines: int = 0


def request_on_many_hosts(tx: Transaction, hosts: int = HOSTS) -> tuple[Run, list[Run]]:
    """Put a request for many hosts on show, of which half are under way."""
    names = [f"web{number:03}" for number in range(hosts)]
    whole = add_pending_run(tx, add_requested_run(tx, host=names[0]))
    parts: list[Run] = []
    for name in names:
        new = runs.NewRun(
            runbook=whole.runbook,
            kind="change",
            values=whole.values,
            host=name,
            area="web",
            requested_by="dora",
            origin=RequestOrigin("slack", "C1", "U1"),
            parent=whole.id,
        )
        parts.append(add_pending_run(tx, runs.add_run(tx, new)))
    _set_hosts(tx, whole.id, names)
    moving = start_run(tx, approve(tx, runs.get_run(tx, whole.id)))
    half = [start_run(tx, runs.move_run(tx, part, State.QUEUED)) for part in parts[: hosts // 2]]
    return moving, half + parts[hosts // 2 :]


@contextmanager
def stream_output(database: Database, parts: Sequence[Run]) -> Generator[LineCount]:
    """Let each host say fifty lines a second for as long as this lasts.

    What they say takes the way that it takes when a command runs: cut into lines as it comes,
    kept a few times a second.
    """
    over, printed, listening = threading.Event(), LineCount(), LiveOutputWriter(database)

    def speak(ears: Sequence[LineSplitter]) -> None:
        total, began = 0, time.monotonic()
        while not over.wait(began + total / _LINES * _SECONDS - time.monotonic()):
            lines = [b"line %d of what a host has to say\n" % (total + n) for n in range(_LINES)]
            total += _LINES
            for ear in ears:
                ear.add(b"".join(lines))
            printed.lines += _LINES * len(ears)

    with ExitStack() as steps:
        talking = threading.Thread(
            target=speak, args=[[*_open_listeners(steps, listening, parts)]]
        )
        talking.start()
        try:
            yield printed
        finally:
            over.set()
            talking.join()


def _open_listeners(
    steps: ExitStack, listening: LiveOutputWriter, parts: Sequence[Run]
) -> Iterator[LineSplitter]:
    """Yield what hears the first step of each, up to when those steps are over."""
    for part in parts:
        _, listener = steps.enter_context(listening.capture_step(part.id, 1))
        ear = LineSplitter(b"begins", listener)
        ear.add(b"begins\n")
        yield ear


def _set_hosts(tx: Transaction, number: int, names: list[str]) -> None:
    tx.sql.exec_driver_sql(
        "UPDATE run SET hosts = ?, fan_out_role = 1 WHERE id = ?", (json.dumps(names), number)
    )

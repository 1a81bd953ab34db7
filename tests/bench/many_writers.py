"""Many writers append to the change log on PostgreSQL: how many, and how long each one waits."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import quantiles

from bot.audit import change_log, events, verification
from bot.db import migrations
from bot.db.database import Database, StoreUnavailable
from bot.model import signing
from tests.bench.measurements import Part, columns, set_minimum
from tests.playground.postgres import Postgres

# Processes, and the threads of each.
_WRITERS = ((1, 1), (1, 10), (1, 50), (4, 1), (4, 13))


def measure(seconds: float) -> Part:
    """Append one entry a transaction for so long, each durable before the next."""
    rows = [["processes", "writers", "appends/s", "p50", "p99"]]
    most = 0.0
    with Postgres(fsync="on") as server, tempfile.TemporaryDirectory() as directory:
        key = Path(directory) / "changelog.key"
        database = Database(server.new_database(), signing.create_signing_key(key))
        migrations.upgrade_schema(database)
        with database.transaction() as tx:
            verification.open_log(tx)
        for processes, threads in _WRITERS:
            took = _append_as_processes(
                database.engine.url.render_as_string(False), key, processes, threads, seconds
            )
            cuts = quantiles(took, n=100)
            most = max(most, len(took) / seconds)
            rate, p50, p99 = len(took) / seconds, cuts[49] * 1000, cuts[98] * 1000
            rows.append(
                [
                    str(processes),
                    str(processes * threads),
                    f"{rate:,.0f}",
                    f"{p50:.1f} ms",
                    f"{p99:.1f} ms",
                ]
            )
        database.close()
    figure = set_minimum(3_000, "many writers on PostgreSQL, durable appends", most, "/s")
    return Part(columns(rows), [figure])


def _append_as_processes(
    url: str, key: Path, processes: int, threads: int, seconds: float
) -> list[float]:
    command = [sys.executable, "-m", __name__, url, str(key), str(threads), str(seconds)]
    begun = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    for one in begun:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in begun:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    return [took for one in begun for took in json.loads(one.communicate()[0])]


def _append(database: Database, until: float, took: list[float]) -> None:
    event = events.StepSending(step=7, title="Use bfq on sdb")
    while time.monotonic() < until:
        began = time.perf_counter()
        # More writers than connections: who waits too long is turned away and comes again.
        with suppress(StoreUnavailable):
            with database.transaction() as tx:
                change_log.append_entry(tx, event, run=1, person="dora", host="web1")
            took.append(time.perf_counter() - began)


def main(url: str, key: str, threads: str, seconds: str) -> None:
    """Append in so many threads once a line is read, and print how long each append took."""
    database = Database(url, signing.load_signing_key(Path(key)))
    with database.reading():
        print("ready", flush=True)
    sys.stdin.readline()
    took, until = list[float](), time.monotonic() + float(seconds)
    writers = [
        threading.Thread(target=_append, args=(database, until, took)) for _ in range(int(threads))
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    print(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])

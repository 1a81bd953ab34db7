"""Many writers append to the change log on PostgreSQL: how many, and how long each one waits."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any

from bot.audit import change_log, events, verification
from bot.db import migrations
from bot.db.database import Database, StoreUnavailable
from bot.model import signing
from tests.bench.change_log_append import create_raw_table, insert_raw_entry
from tests.bench.measurements import Figure, Part, columns, set_minimum
from tests.playground.postgres import Postgres

# Processes, and the threads of each.
_WRITERS = ((1, 1), (1, 10), (1, 50), (4, 1), (4, 13))
_OURS, _RAW = "ours", "raw"
# No two processes insert the same number.
_NUMBERS = count(os.getpid() << 32)


def measure(seconds: float) -> Part:
    """Append one entry a transaction for so long, each durable before the next.

    Beside it, the raw driver inserts the same rows, each by itself: no writer waits for another.
    """
    rows = [["processes", "writers", "appends/s", "p50", "p99"]]
    most = raw = 0.0
    with Postgres(fsync="on") as server, tempfile.TemporaryDirectory() as directory:
        key = Path(directory) / "changelog.key"
        database = Database(server.new_database(), signing.create_signing_key(key))
        migrations.upgrade_schema(database)
        with database.transaction() as tx:
            verification.open_log(tx)
        url = database.engine.url.render_as_string(False)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as direct:
            create_raw_table(direct.connection.driver_connection)
        for what, (processes, threads) in [
            *((_OURS, one) for one in _WRITERS),
            (_RAW, _WRITERS[-1]),
        ]:
            took = _append_as_processes(what, url, key, processes, threads, seconds)
            cuts, rate = quantiles(took, n=100), len(took) / seconds
            if what == _RAW:
                raw = rate
            else:
                most = max(most, rate)
            rows.append(
                [
                    f"{processes}{', raw driver' * (what == _RAW)}",
                    str(processes * threads),
                    f"{rate:,.0f}",
                    f"{cuts[49] * 1000:.1f} ms",
                    f"{cuts[98] * 1000:.1f} ms",
                ]
            )
        database.close()
    figures = [
        set_minimum(3_000, "many writers on PostgreSQL, durable appends", most, "/s"),
        Figure("the raw driver with as many writers", raw, "/s", None, "", None),
    ]
    return Part(columns(rows), figures)


def _append_as_processes(
    what: str, url: str, key: Path, processes: int, threads: int, seconds: float
) -> list[float]:
    command = [sys.executable, "-m", __name__, what, url, str(key), str(threads), str(seconds)]
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


def _insert_raw(database: Database, until: float, took: list[float]) -> None:
    driver: Any = database.engine.raw_connection().driver_connection
    driver.autocommit = True
    while time.monotonic() < until:
        began = time.perf_counter()
        insert_raw_entry(driver, next(_NUMBERS))
        took.append(time.perf_counter() - began)


_APPENDERS = {_OURS: _append, _RAW: _insert_raw}


def main(what: str, url: str, key: str, threads: str, seconds: str) -> None:
    """Append in so many threads once a line is read, and print how long each append took."""
    database = Database(url, signing.load_signing_key(Path(key)))
    with database.reading():
        print("ready", flush=True)
    sys.stdin.readline()
    took, until = list[float](), time.monotonic() + float(seconds)
    writers = [
        threading.Thread(target=_APPENDERS[what], args=(database, until, took))
        for _ in range(int(threads))
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    print(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])

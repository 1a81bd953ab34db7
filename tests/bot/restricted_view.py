"""A harness in which developers may view only the runs of the web servers."""

import re
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.db import break_glass, locks
from bot.db.database import Database
from bot.model.run import RequestTerms, Run
from bot.model.signing import SigningKey
from tests.bot.databases import (
    create_postgresql_database,
    create_sqlite_database,
    skip_fsync,
)
from tests.bot.features.tables import collect
from tests.bot.harness import WEB, Harness, open_harness
from tests.playground.postgres import Postgres
from tests.policies import get_starter_rules
from tests.toy import SetSwitch, ShowSwitches

BEGIN = '@id("everyone views all runs")'
RESTRICTED_RULES = """
@id("administrators view all runs")
permit (principal in Role::"administrator", action == Action::"view", resource);

@id("developers view the web servers")
@description("Developers see the runs of the web servers, and no breaking of switches.")
permit (principal in Role::"developer", action == Action::"view", resource in Area::"web")
when { context.runbook != "toy break" };
"""
# Words that stand in hidden runs and in nothing else, and those that stand in shown ones.
HIDDEN, SHOWN = "sesquipedalian", "perspicacious"


def restricted_rules(view: str = RESTRICTED_RULES) -> str:
    """Return the starter's rules with other rules on viewing."""
    text = get_starter_rules()
    begin = text.index(BEGIN)
    end = text.index(";", begin) + 1
    return f"{text[:begin]}{view}{text[end:]}"


@dataclass
class RestrictedHarness:
    """hidden: runs that dora may not view, by kind. shown: one that she may.

    records: of features, by what the tables of routes call them: the number of one that she may
    not view, and of one that she may.
    """

    harness: Harness
    hidden: Mapping[str, Run]
    shown: Run
    records: Mapping[str, tuple[int, int]]


@contextmanager
def open_restricted_harness(
    directory: Path, server: Postgres | None = None
) -> Generator[RestrictedHarness]:
    """Open a harness on a copy of a filled database. server: PostgreSQL, instead of SQLite."""
    content, key, filled = _build_filled_database(server, int(time.monotonic() // 300))
    if server is None:
        file = directory / "restricted.db"
        file.write_bytes(content)
        database = skip_fsync(Database(f"sqlite:///{file}", key))
    else:
        database = Database(server.new_database(like=content.decode()), key)
    with open_harness(directory, rules=restricted_rules(), database=database) as harness:
        harness.fleet.hosts = deepcopy(filled.harness.fleet.hosts)
        yield replace(filled, harness=harness)


@lru_cache(maxsize=2)
def _build_filled_database(
    server: Postgres | None, _five_minutes: int
) -> tuple[bytes, SigningKey, RestrictedHarness]:
    """Return a filled database, its key and what it holds: to fill it takes long.

    The database is its file, or its name on PostgreSQL.
    """
    with tempfile.TemporaryDirectory() as name:
        directory, key = Path(name), SigningKey.create()
        file = directory / "restricted.db"
        if server is None:
            database = create_sqlite_database(file, key)
        else:
            database = create_postgresql_database(server, key)
        with open_harness(directory, rules=restricted_rules(), database=database) as harness:
            filled = fill(harness)
        if server is None:
            return file.read_bytes(), key, filled
        return str(database.engine.url.database).encode(), key, filled


def fill(harness: Harness) -> RestrictedHarness:
    harness.fleet.hosts |= {"web1": {"lamp": "off", HIDDEN: "off"}, "nas1": {"lamp": "off"}}
    why = f"a {HIDDEN} reason"
    done = harness.request(_set_lamp("lb1"), "adam", why)
    check = harness.request(ShowSwitches(host="nas1"), "adam", why)
    both = harness.service.request_on_hosts(
        [_set_lamp("lb1", "dim"), _set_lamp("lb2", "dim")],
        RequestTerms("adam", WEB, why),
        host_pattern="lb*",
    )
    harness.run_queued_work()
    waiting = harness.request(_set_lamp("lb2"), "stan", why)
    shown = harness.request(_set_lamp("web1"), "olga", f"a {SHOWN} reason")
    records = {
        kind: (add_record(harness, done, HIDDEN), add_record(harness, shown, SHOWN))
        for kind, add_record in collect("RECORDS").items()
    }
    with harness.database.transaction() as tx:
        locks.take_lock(tx, "lb2", waiting.id)
        for run, person, words in ((done, "adam", why), (shown, "olga", f"a {SHOWN} reason")):
            break_glass.request_break_glass(tx, run=run.id, person=person, reason=words)
            break_glass.activate_break_glass(tx, run.id, until=tx.now, factor="")
        change_log.append_entry(
            tx, UnknownEvent(kind="banned", facts={"reason": why}), person="stan"
        )
        change_log.append_entry(
            tx, events.ExternalEvent(title=why, source="alerts", occurred_at=tx.now), host="lb1"
        )
    hidden = {"done": done, "check": check, "both": both, "pending": waiting}
    return RestrictedHarness(harness, hidden, shown, records)


def mask_number(number: int, text: str) -> str:
    """Leave out the number of a run, a schedule or a value wherever it is named."""
    return re.sub(rf"\b(runs?|schedules?|instance|value|drift)([ /=]){number}\b", r"\1\2N", text)


def _set_lamp(host: str, value: str = "on") -> SetSwitch:
    return SetSwitch(host=host, name="lamp", value=value)

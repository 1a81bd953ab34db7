"""Drift: the cost of a day of readings, projected from some hosts over new connections."""

import tempfile
import time
from contextlib import closing
from pathlib import Path

from bot.db import runs
from bot.db.database import Database
from bot.features.drift import rows as drift
from bot.model.drift_state import DriftState
from bot.model.run import RequestOrigin
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from tests.bench.farm import Farm
from tests.bench.measurements import Part, set_maximum, table
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import ManualDispatcher
from tests.drift_keys import read_due_keys

_HOSTS, _DAY = 1000, 86400
# The scheduler asks so often whether a reading is due.
_POLLS, _SAMPLE = _DAY / 5, 500


def measure(hosts: int) -> Part:
    """Read one value of so many hosts once, each over a new connection."""
    with tempfile.TemporaryDirectory() as place, Farm(Path(place), hosts) as farm:
        sessions = SshPool(farm.policy)
        with closing(Fleet(farm.inventory, sessions)) as fleet:
            database = create_sqlite_database(Path(place) / "keyturn.db")
            context = WorkflowContext(
                database, PolicyDirectory(farm.policy), fleet, ManualDispatcher()
            )
            _watch(database, farm.names)
            service = KeyturnService(context)
            context.policies.get_policy()
            cpu = time.process_time()
            read_due_keys(service)
            reading = (time.process_time() - cpu) / hosts
            _check(database, hosts)
            cpu = time.process_time()
            for _ in range(_SAMPLE):
                read_due_keys(service)
            poll = (time.process_time() - cpu) / _SAMPLE
            database.close()
    share = (reading * _HOSTS + poll * _POLLS) / _DAY * 100
    figures = [
        set_maximum(1, f"daily readings of {_HOSTS:,} hosts, of a core (projected)", share, "%"),
        set_maximum(
            100, "one reading over a new connection, of the processor", reading * 1000, "ms"
        ),
    ]
    return Part(table(figures), figures)


def _watch(database: Database, hosts: list[str]) -> None:
    """Let a run have set hidepid on each host; a reading is due."""
    with database.transaction() as tx:
        for host in hosts:
            new = runs.NewRun(
                runbook="hidepid set",
                kind="change",
                values={"host": host, "value": "0"},
                request=f"hidepid set {host} 0",
                host=host,
                area="web",
                requested_by="olga",
                origin=RequestOrigin("web"),
                reason="",
            )
            run = runs.add_run(tx, new)
            drift.set_key(tx, host, "hidepid", run=run.id, set_value="hidepid=0", next_at=0)


def _check(database: Database, hosts: int) -> None:
    """Fail if a host could not be read: that costs less."""
    with database.reading() as tx:
        counts = drift.count_by_state(tx)
    assert sum(counts.values()) == hosts
    assert counts[DriftState.UNREADABLE] == counts[DriftState.MISSING] == 0, counts

"""Keyturn's database, service, dispatcher and connections, in a process that tests kill."""

import ctypes
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

from bot.audit.spool import Spool
from bot.db import migrations, search
from bot.db.database import Database, StoreUnavailable
from bot.execution.local_dispatch import LocalDispatcher
from bot.features.rebuild.actions import RebuildActions
from bot.integrations import witness_file
from bot.maintenance.housekeeping import Housekeeping
from bot.model import signing
from bot.model.redaction import Redactor
from bot.model.run import ENDED_STATES, RequestOrigin, RequestTerms, Run, State
from bot.policy import PolicyDirectory
from bot.queries.banned_people import PolicyWithoutBanned
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import AnyRunbook
from tests.chaos import host_ledger
from tests.chaos.host_ledger import CampaignResult, KeepNote, WriteToLedger
from tests.playground.fleet import LoopbackFleet

RUNBOOKS: Mapping[str, type[AnyRunbook]] = {one.words: one for one in (WriteToLedger, KeepNote)}
_UNFINISHED_STATES = frozenset(State) - ENDED_STATES
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.04
# See <linux/prctl.h>.
_PR_SET_PTRACER = 0x59616D61
# The exit status of a process that could not write, and has said so.
REFUSED = 3


@dataclass(frozen=True)
class ServiceDirectory:
    """The directory of a service. url: of its database."""

    directory: Path
    url: str

    @property
    def accepted_requests(self) -> Path:
        """The file with the numbers of the requests that the service said it had stored."""
        return self.directory / "accepted"

    @property
    def witness(self) -> Path:
        return self.directory / "witness"

    @property
    def policy(self) -> Path:
        return self.directory / "policy"

    def list_written_files(self) -> Sequence[Path]:
        """Return all files that Keyturn itself writes."""
        database, spool = self.directory / "keyturn.db", self.directory / "spool"
        of_sqlite = [database.with_name(f"{database.name}-{end}") for end in ("wal", "shm")]
        taken = spool.with_name(f"{spool.name}.taken")
        key = self.directory / "changelog.key"
        return [database, *of_sqlite, key, spool, taken, self.witness]

    def open_database(self) -> Database:
        return Database(
            self.url, signing.load_signing_key(self.directory / "changelog.key"), Redactor()
        )


class KillableService:
    """Recovers unfinished runs as `keyturn serve` does, and requests and completes others."""

    def __init__(self, directory: ServiceDirectory, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._database = directory.open_database()
        migrations.upgrade_schema(self._database)
        policies = PolicyDirectory(directory.policy)
        inventory = policies.get_policy().inventory
        self._hosts = [host.name for host in inventory]
        spool = Spool(directory.directory / "spool")
        witnesses = [partial(witness_file.write_checkpoint, directory.witness)]
        self._housekeeping = Housekeeping(self._database, spool=spool, witnesses=witnesses)
        self._housekeeping.start({})
        self._dispatcher = LocalDispatcher()
        context = WorkflowContext(
            self._database,
            PolicyWithoutBanned(policies, self._database),
            Fleet(inventory, SshPool(directory.policy)),
            self._dispatcher,
            runbooks=RUNBOOKS,
            spool=spool,
        )
        self._service = KeyturnService(context)

    def start(self) -> None:
        self._dispatcher.start(self._service.advancer.advance_run)
        self._service.advancer.recover_unfinished_runs()
        self._service.advancer.wake_stalled_runs()

    def request_runs_forever(self) -> None:
        """Keep every host busy until this process is killed."""
        while True:
            self._advance_runs(request_more=True)

    def complete_one_run(self, patience: float = _PATIENCE_SECONDS) -> bool:
        """Request a run on one host, and complete all runs; return whether they ended in time."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # A requester who reads that the request could not be recorded repeats it.
            with suppress(StoreUnavailable):
                self._request_run(self._hosts[0])
                break
            time.sleep(_PAUSE_SECONDS)
        return self.complete_all_runs(deadline - time.monotonic())

    def complete_all_runs(self, patience: float = _PATIENCE_SECONDS) -> bool:
        """Approve and execute all unfinished runs; return whether they ended in time."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # Keyturn's own scheduler tries again later, too.
            with suppress(StoreUnavailable, OSError):
                if not self._find_unfinished_runs():
                    return True
                self._advance_runs(request_more=False)
                continue
            time.sleep(_PAUSE_SECONDS)
        return False

    def rebuild_notes(self, names: Sequence[str]) -> None:
        """Keep a note of each name on the first host, and request the same on the second."""
        old, new = self._hosts
        for name in names:
            self._service.request_run(
                KeepNote(host=old, name=name, value="kept"),
                RequestTerms("dora", RequestOrigin("api"), ""),
            )
            assert self.complete_all_runs()
        self._service.bind(RebuildActions).request_rebuild(
            old, RequestTerms("dora", RequestOrigin("api")), new_host=new
        )
        self.complete_all_runs()

    def _advance_runs(self, *, request_more: bool) -> None:
        unfinished = {run.host: run for run in self._find_unfinished_runs()}
        for run in unfinished.values():
            if run.state is State.PENDING:
                self._service.approve_run(run.id, person="olga", digest=run.digest)
        for host in self._hosts:
            if request_more and host not in unfinished:
                self._request_run(host)
        self._service.advancer.wake_stalled_runs()
        self._housekeeping.run_periodic_tasks()
        time.sleep(_PAUSE_SECONDS)

    def _request_run(self, host: str) -> None:
        runbook = WriteToLedger(host=host, nonce=f"{self._random.getrandbits(64):016x}")
        run = self._service.request_run(runbook, RequestTerms("dora", RequestOrigin("api"), ""))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self._directory.accepted_requests, flags)
        os.write(descriptor, f"{run.id}\n".encode())
        os.close(descriptor)

    def _find_unfinished_runs(self) -> Sequence[Run]:
        with self._database.reading() as tx:
            return search.find_newest_runs(
                tx, search.RunFilter(states=_UNFINISHED_STATES), most=100
            )


def collect_result(
    directory: ServiceDirectory, fleet: LoopbackFleet, *, faults: int
) -> CampaignResult:
    """Verify the change log of a service, and compare its runs with the ledgers of the hosts."""
    database = directory.open_database()
    runs = host_ledger.list_all_runs(database)
    accepted = directory.accepted_requests
    numbers = [*map(int, accepted.read_text().split())] if accepted.exists() else []
    result = host_ledger.collect_result(database, runs, fleet, numbers, faults=faults)
    database.close()
    return result


# --- What the processes do -----------------------------------------------------------------------


def serve_until_killed(directory: ServiceDirectory, seed: int, started: Event) -> None:
    """Request and complete runs. started: set once unfinished runs were recovered."""
    service = KillableService(directory, seed)
    service.start()
    started.set()
    service.request_runs_forever()


def complete_all_runs(directory: ServiceDirectory) -> None:
    service = KillableService(directory, 0)
    service.start()
    service.complete_all_runs()


def rebuild_notes(directory: ServiceDirectory, names: Sequence[str]) -> None:
    service = KillableService(directory, 0)
    service.start()
    service.rebuild_notes(names)


def complete_one_run(
    directory: ServiceDirectory, seed: int, patience: float, is_traced: bool
) -> None:
    """Complete one run and exit. is_traced: wait for strace before anything else."""
    if is_traced:
        _wait_for_strace()
    try:
        service = KillableService(directory, seed)
        service.start()
        is_complete = service.complete_one_run(patience)
    except (StoreUnavailable, OSError) as error:
        # `keyturn serve` prints it, too, and is started again by whoever supervises it.
        print(error)
        sys.exit(REFUSED)
    if not is_complete:
        # A process that waits for its disk does not end when asked to: an orchestrator kills it.
        os._exit(REFUSED)


def _wait_for_strace() -> None:
    # Linux lets only parents trace a process, unless the process permits others.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
        time.sleep(0.005)
    # strace is attached; it needs a moment until it injects faults.
    time.sleep(0.02)

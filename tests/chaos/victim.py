"""The victim: Keyturn's store, workflow, dispatcher and connections, in a process to be killed."""

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

from bot.audit import checkpoints
from bot.audit.spool import Spool
from bot.db import migrations, runs, search
from bot.db.database import Database, StoreUnavailable
from bot.execution.local_dispatch import LocalDispatcher
from bot.maintenance.housekeeping import Housekeeping
from bot.model import signing
from bot.model.redaction import Redactor
from bot.model.run import ENDED_STATES, RequestOrigin, Run, State, StepRecord
from bot.policy import PolicyDirectory
from bot.queries.banned_people import PolicyWithoutBanned
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import AnyRunbook
from tests.chaos.ledger import WriteDown

RUNBOOKS: Mapping[str, type[AnyRunbook]] = {WriteDown.words: WriteDown}
_UNDER_WAY = frozenset(State) - ENDED_STATES
_PATIENCE = 60.0
# As <linux/prctl.h> has it.
_PR_SET_PTRACER = 0x59616D61
# How one ends that could not write, and has said so.
REFUSED = 3


@dataclass(frozen=True)
class Home:
    """Where it lives. url: of its database. acks: the numbers of requests that it has accepted."""

    directory: Path
    url: str

    @property
    def acks(self) -> Path:
        return self.directory / "acks"

    @property
    def witness(self) -> Path:
        return self.directory / "witness"

    @property
    def files(self) -> Sequence[Path]:
        """All that Keyturn itself writes there."""
        database, spool = self.directory / "keyturn.db", self.directory / "spool"
        beside = [database.with_name(f"{database.name}-{end}") for end in ("wal", "shm")]
        taken = spool.with_name(f"{spool.name}.taken")
        return [database, *beside, self.directory / "changelog.key", spool, taken, self.witness]

    @property
    def policy(self) -> Path:
        return self.directory / "policy"

    def database(self) -> Database:
        return Database(
            self.url, signing.load_signing_key(self.directory / "changelog.key"), Redactor()
        )


class Victim:
    """Takes up what was left, as `keyturn serve` does, and works."""

    def __init__(self, home: Home, seed: int) -> None:
        self._home, self._chance = home, random.Random(seed)  # noqa: S311 - no secret
        self._database = home.database()
        migrations.upgrade_schema(self._database)
        policies = PolicyDirectory(home.policy)
        inventory = policies.get_policy().inventory
        self._hosts = [host.name for host in inventory]
        spool = Spool(home.directory / "spool")
        witnesses = [partial(checkpoints.write_checkpoint, home.witness)]
        self._house = Housekeeping(self._database, spool=spool, witnesses=witnesses)
        self._house.start({})
        self._dispatch = LocalDispatcher()
        fleet = Fleet(inventory, SshPool(home.policy))
        admitted = PolicyWithoutBanned(policies, self._database)
        parts = WorkflowContext(
            self._database, admitted, fleet, self._dispatch, runbooks=RUNBOOKS, spool=spool
        )
        self._service = KeyturnService(parts)

    def start(self) -> None:
        self._dispatch.start(self._service.advance_run)
        self._service.recover_unfinished_runs()
        self._service.wake_stalled_runs()

    def ask_for_ever(self) -> None:
        """Keep every host busy until somebody puts an end to it."""
        while True:
            self._look_round(ask=True)

    def ask_once(self, patience: float = _PATIENCE) -> bool:
        """Have one run done on one host, and everything that was left; False if it was not."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # Who is told that it could not be recorded asks again.
            with suppress(StoreUnavailable):
                self._ask(self._hosts[0])
                break
            time.sleep(0.04)
        return self.finish(deadline - time.monotonic())

    def finish(self, patience: float = _PATIENCE) -> bool:
        """Come to an end with all that is under way; False if it did not in so many seconds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # As the clock of a process does, which looks again.
            with suppress(StoreUnavailable, OSError):
                if not self._unfinished():
                    return True
                self._look_round(ask=False)
                continue
            time.sleep(0.04)
        return False

    def _look_round(self, *, ask: bool) -> None:
        busy = {run.host: run for run in self._unfinished()}
        for run in busy.values():
            if run.state is State.PENDING:
                self._service.approve_run(run.id, person="olga", digest=run.digest)
        for host in self._hosts:
            if ask and host not in busy:
                self._ask(host)
        self._service.wake_stalled_runs()
        self._house.run_periodic_tasks()
        time.sleep(0.04)

    def _ask(self, host: str) -> None:
        nonce = f"{self._chance.getrandbits(64):016x}"
        wanted = WriteDown(host=host, nonce=nonce)
        run = self._service.request_run(
            wanted, person="dora", origin=RequestOrigin("api"), reason=""
        )
        descriptor = os.open(self._home.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{run.id}\n".encode())
        os.close(descriptor)

    def _unfinished(self) -> Sequence[Run]:
        with self._database.reading() as tx:
            return search.find_newest_runs(tx, search.RunFilter(states=_UNDER_WAY), most=100)


def everything(database: Database) -> Sequence[Run]:
    with database.reading() as tx:
        return search.find_newest_runs(tx, search.RunFilter(), most=100_000)


def records(database: Database, known: Sequence[Run]) -> dict[int, Sequence[StepRecord]]:
    with database.reading() as tx:
        return {run.id: runs.list_steps(tx, run.id) for run in known}


def live(home: Home, seed: int, begun: Event) -> None:
    """Work until killed. begun: set once it has taken up what was left."""
    victim = Victim(home, seed)
    victim.start()
    begun.set()
    victim.ask_for_ever()


def finish(home: Home) -> None:
    victim = Victim(home, 0)
    victim.start()
    victim.finish()


def live_once(home: Home, seed: int, patience: float, traced: bool) -> None:
    """Have one run done, and end. traced: begin when strace watches."""
    if traced:
        _wait_for_strace()
    try:
        victim = Victim(home, seed)
        victim.start()
        done = victim.ask_once(patience)
    except (StoreUnavailable, OSError) as trouble:
        # Whoever starts it is told, as `keyturn serve` tells, and starts it again.
        print(trouble)
        sys.exit(REFUSED)
    if not done:
        # Whoever waits for the disk to work again is not asked to end: an orchestrator kills it.
        os._exit(REFUSED)


def _wait_for_strace() -> None:
    # Linux lets only parents watch, unless it is told that anybody may.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
        time.sleep(0.005)
    # It has taken hold, and lets go on only what it has seen stop.
    time.sleep(0.02)

"""The ground that every process stands on: database, keys, policy, fleet, and the workflow."""

import logging
import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bot.custody.contacts import Contacts
from bot.custody.discretion import secrets_of
from bot.custody.housekeeping import Housekeeping, Witness
from bot.dispatch import Dispatch
from bot.policy import Policy, PolicyDirectory
from bot.redaction import Redactor
from bot.settings import Settings
from bot.store import known, premises, rights, safe, schema, seal, verification, witness
from bot.store.database import (
    AlreadyRunning,
    Database,
    StoreUnavailable,
    sole_user,
)
from bot.store.keyfile import BadKey
from bot.store.spool import Spool
from bot.store.syslog import LogServer
from bot.store.tenure import Tenure, one_of_many, sole_server
from bot.workflow import Parts, Workflow
from bot.workflow.banning import Admitted
from bot.workflow.pacing import Pace
from bot.workflow.worker import Worker
from connectors.command import Answer, Question
from connectors.fleet import Fleet, Runner
from connectors.inventory import Host, Inventory
from connectors.permissions import list_trusted_owners
from connectors.sessions import Cut, Sessions
from connectors.trouble import Unreachable

log = logging.getLogger(__name__)

SEAL, SAFE = "changelog.key", "secrets.key"
_HOUR = 3600 * 1_000_000
# Commands on one host at once, more than there are threads for what only reads; sshd takes 10.
_PER_HOST = 8
# Processes of one machine that share a data directory.
_MOST_BESIDE = 64


class Reach(Runner, Protocol):
    """Reaches hosts, or not; see connectors.fleet.

    open: how many connections stand. cuts: how many we hung up on, since their hosts flooded us.
    """

    cuts: int

    @property
    def open(self) -> int: ...

    def cut_lately(self) -> Sequence[Cut]: ...


class Elsewhere:
    """Stands where the connections would: the workers of each site reach its hosts."""

    open = 0
    cuts = 0

    def cut_lately(self) -> Sequence[Cut]:
        return ()

    def run(self, host: Host, command: Question, /, *, through: tuple[Host, ...] = ()) -> Answer:  # noqa: ARG002
        raise Unreachable(f"{host.name} is reached by the workers of its site, and not from here")

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True)
class Ground:
    """What was laid. admitted: the policy without whoever is shut out."""

    settings: Settings
    database: Database
    policies: PolicyDirectory
    admitted: Admitted
    fleet: Fleet
    reach: Reach
    workflow: Workflow
    worker: Worker
    house: Housekeeping
    contacts: Contacts


def lay(
    settings: Settings,
    dispatch: Dispatch,
    redactor: Redactor,
    *,
    reach: Reach | None = None,
    sites: frozenset[str] | None = None,
    beside: str = "",
    tenure: Tenure | None = None,
) -> Ground:
    """Open what is there and put it together. Raises NoPolicy, StoreUnavailable and BadKey.

    reach: how hosts are reached, other than from here. sites: whose hosts this process cares for;
    left out, all. beside: tells its files from those of others in the same data directory.
    tenure: without it nothing is written, once the database has been away.
    """
    premises.make(settings.data)
    key = seal.kept_in(_key(settings, SEAL))
    database = Database(settings.database_url, key, redactor)
    if tenure is not None:
        database.may_write, tenure.on_return = tenure.check, partial(_same_log, database)
    secrets_safe = safe.kept_in(_key(settings, SAFE))
    _schema(settings, database)
    strong = rights.too_strong(database)
    if strong:
        told = ", ".join(strong)
        log.warning("our role in the database %s: keyturn db grants prints what it needs", told)
    with database.transaction() as tx:
        # Of several that begin at once, one writes them and the others read them. The key comes
        # before all else: whatever stops us from here on, commands write into this log, too.
        verification.open_log(tx)
        safe.try_out(tx, secrets_safe)
    with database.transaction() as tx:
        # From its first entry on: what is decided later needs all that is open.
        known.follow(tx)
        point = witness.newest(settings.witness) if settings.witness is not None else None
        if point is not None:
            verification.check_witness(tx, point)
    reach = reach or Sessions(settings.policy, per_host=_PER_HOST)
    fleet = Fleet(Inventory(hosts={}), reach)
    contacts = Contacts(database)
    fleet.on_contact = contacts.note

    def renew(policy: Policy) -> None:
        fleet.inventory = policy.inventory
        redactor.register(*secrets_of(policy.inventory, settings.policy))

    policies = PolicyDirectory(settings.policy, on_load=renew, owners=list_trusted_owners())
    policies.current()
    spool = Spool(settings.data / f"changelog{beside}.spool")
    house = Housekeeping(database, spool=spool, witnesses=_witnesses(settings))
    admitted, worker = Admitted(policies, database), Worker()
    parts = Parts(
        database,
        admitted,
        fleet,
        dispatch,
        spool=spool,
        safe=secrets_safe,
        patience=round(settings.request_hours * _HOUR),
        unused=round(settings.approval_hours * _HOUR),
        reminder=round(settings.reminder_minutes * _HOUR / 60),
        worker=worker,
        sites=sites,
        pace=Pace.of(settings.requests_a_minute),
    )
    workflow = Workflow(parts)
    return Ground(
        settings, database, policies, admitted, fleet, reach, workflow, worker, house, contacts
    )


@contextmanager
def at_work_on(settings: Settings) -> Generator[Tenure | None]:
    """Hold the database as the engine wants it, from before anything is read or written there.

    A process that others have taken it from ends as if it were asked to, and raises
    StoreUnavailable then: whoever looks after it is to see that nobody did ask.
    """
    database = Database(settings.database_url)
    try:
        with (sole_server if settings.engine == "embedded" else one_of_many)(database) as tenure:
            if tenure is not None:
                tenure.on_end = partial(os.kill, os.getpid(), signal.SIGTERM)
            yield tenure
            if tenure is not None and tenure.over:
                raise StoreUnavailable(tenure.over)
    finally:
        database.close()


def _same_log(database: Database) -> None:
    """See that nobody has changed the key of the log while we were out. Raises BadKey."""
    with database.transaction() as tx:
        verification.check_key(tx, tx.seal)


@contextmanager
def one_of_several(directory: Path) -> Generator[str]:
    """Yield what tells our files in a data directory from those of other processes there.

    What one that died has left is found by the next that begins.
    """
    premises.make(directory)
    for n in range(1, _MOST_BESIDE + 1):
        try:
            with sole_user(directory / f"process-{n}"):
                yield f"-{n}"
                return
        except AlreadyRunning:
            continue
    raise AlreadyRunning(
        f"{_MOST_BESIDE} processes work on {directory} already: give this one a directory of its "
        "own (KEYTURN_DATA)"
    )


def _key(settings: Settings, name: str) -> Path:
    """Return the file of a key. Raises BadKey where it would be made for this process alone."""
    file = settings.key_directory / name
    if settings.engine == "distributed" and not file.exists():
        raise BadKey(
            f"{file} is missing, and all processes need the same one: keyturn db upgrade makes "
            "it, once. Put both keys at every process, in the directory KEYTURN_KEYS"
        )
    return file


def _schema(settings: Settings, database: Database) -> None:
    if settings.engine == "embedded":
        schema.upgrade(database)
    elif not schema.is_current(database):
        raise StoreUnavailable(
            "the database has another schema than this version works with: run keyturn db upgrade "
            "first, once for all processes"
        )


def _witnesses(settings: Settings) -> list[Witness]:
    """Return what is told how far the change log is, besides chat and the hosts themselves."""
    found: list[Callable[..., None]] = []
    if settings.witness is not None:
        found.append(partial(witness.testify, settings.witness))
    if settings.syslog:
        found.append(LogServer.at(settings.syslog).tell)
    return found

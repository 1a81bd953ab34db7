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

from bot.audit import checkpoints, followed_log, signing, verification
from bot.audit.spool import Spool
from bot.audit.syslog import LogServer
from bot.auth import secret_box
from bot.db import data_directory, migrations, roles
from bot.db.database import AlreadyRunning, Database, StoreUnavailable, lock_data_directory
from bot.db.process_lock import ProcessLock, lock_exclusive, lock_shared
from bot.execution.lease_keeper import LeaseKeeper
from bot.hosts.reachability import ContactRecorder
from bot.maintenance.housekeeping import Housekeeping, Witness
from bot.model.keyfile import KeyFileError
from bot.model.redaction import Redactor
from bot.observability import list_login_secrets
from bot.policy import Policy, PolicyDirectory
from bot.service import Workflow
from bot.settings import Settings
from bot.workflow.bans import PolicyWithoutBanned
from bot.workflow.context import WorkflowContext
from bot.workflow.dispatch import Dispatcher
from bot.workflow.rate_limit import RateLimits
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
class Foundation:
    """What was laid. admitted: the policy without whoever is shut out."""

    settings: Settings
    database: Database
    policies: PolicyDirectory
    admitted: PolicyWithoutBanned
    fleet: Fleet
    reach: Reach
    workflow: Workflow
    worker: LeaseKeeper
    house: Housekeeping
    contacts: ContactRecorder


def build_foundation(
    settings: Settings,
    dispatch: Dispatcher,
    redactor: Redactor,
    *,
    reach: Reach | None = None,
    sites: frozenset[str] | None = None,
    beside: str = "",
    tenure: ProcessLock | None = None,
) -> Foundation:
    """Open what is there and put it together. Raises NoPolicy, StoreUnavailable and BadKey.

    reach: how hosts are reached, other than from here. sites: whose hosts this process cares for;
    left out, all. beside: tells its files from those of others in the same data directory.
    tenure: without it nothing is written, once the database has been away.
    """
    data_directory.make_data_directory(settings.data)
    key = signing.load_signing_key(_key(settings, SEAL))
    database = Database(settings.database_url, key, redactor)
    if tenure is not None:
        database.may_write, tenure.on_return = tenure.check, partial(_same_log, database)
    secrets_safe = secret_box.load_secret_box(_key(settings, SAFE))
    _schema(settings, database)
    strong = roles.find_excess_rights(database)
    if strong:
        told = ", ".join(strong)
        log.warning("our role in the database %s: keyturn db grants prints what it needs", told)
    with database.transaction() as tx:
        # Of several that begin at once, one writes them and the others read them. The key comes
        # before all else: whatever stops us from here on, commands write into this log, too.
        verification.open_log(tx)
        secret_box.check_secret_key(tx, secrets_safe)
    with database.transaction() as tx:
        # From its first entry on: what is decided later needs all that is open.
        followed_log.follow_log(tx)
        point = checkpoints.newest(settings.witness) if settings.witness is not None else None
        if point is not None:
            verification.check_witness(tx, point)
    reach = reach or Sessions(settings.policy, per_host=_PER_HOST)
    fleet = Fleet(Inventory(hosts={}), reach)
    contacts = ContactRecorder(database)
    fleet.on_contact = contacts.note

    def renew(policy: Policy) -> None:
        fleet.inventory = policy.inventory
        redactor.register(*list_login_secrets(policy.inventory, settings.policy))

    policies = PolicyDirectory(settings.policy, on_load=renew, owners=list_trusted_owners())
    policies.current()
    spool = Spool(settings.data / f"changelog{beside}.spool")
    house = Housekeeping(database, spool=spool, witnesses=_witnesses(settings))
    admitted, worker = PolicyWithoutBanned(policies, database), LeaseKeeper()
    parts = WorkflowContext(
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
        pace=RateLimits.of(settings.requests_a_minute),
    )
    workflow = Workflow(parts)
    return Foundation(
        settings, database, policies, admitted, fleet, reach, workflow, worker, house, contacts
    )


@contextmanager
def lock_database(settings: Settings) -> Generator[ProcessLock | None]:
    """Hold the database as the engine wants it, from before anything is read or written there.

    A process that others have taken it from ends as if it were asked to, and raises
    StoreUnavailable then: whoever looks after it is to see that nobody did ask.
    """
    database = Database(settings.database_url)
    try:
        with (lock_exclusive if settings.engine == "embedded" else lock_shared)(
            database
        ) as tenure:
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
        verification.check_signing_key(tx, tx.seal)


@contextmanager
def lock_shared_directory(directory: Path) -> Generator[str]:
    """Yield what tells our files in a data directory from those of other processes there.

    What one that died has left is found by the next that begins.
    """
    data_directory.make_data_directory(directory)
    for n in range(1, _MOST_BESIDE + 1):
        try:
            with lock_data_directory(directory / f"process-{n}"):
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
        raise KeyFileError(
            f"{file} is missing, and all processes need the same one: keyturn db upgrade makes "
            "it, once. Put both keys at every process, in the directory KEYTURN_KEYS"
        )
    return file


def _schema(settings: Settings, database: Database) -> None:
    if settings.engine == "embedded":
        migrations.upgrade_schema(database)
    elif not migrations.is_schema_current(database):
        raise StoreUnavailable(
            "the database has another schema than this version works with: run keyturn db upgrade "
            "first, once for all processes"
        )


def _witnesses(settings: Settings) -> list[Witness]:
    """Return what is told how far the change log is, besides chat and the hosts themselves."""
    found: list[Callable[..., None]] = []
    if settings.witness is not None:
        found.append(partial(checkpoints.write_checkpoint, settings.witness))
    if settings.syslog:
        found.append(LogServer.at(settings.syslog).tell)
    return found

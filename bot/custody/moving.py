"""Moving an installation to another database, with its chain intact."""

from dataclasses import dataclass
from getpass import getuser

from bot.store import changelog, copying, schema, verification
from bot.store.copying import NotCopied
from bot.store.database import Database
from bot.store.stages import Stages, untold

MOVED = "moved"


@dataclass(frozen=True)
class Moved:
    """rows: how many there were. entries, head: how far the log is, the move itself included."""

    rows: int
    entries: int
    head: str


def move(old: Database, new: Database, stages: Stages = untold) -> Moved:
    """Copy everything into *new*, which is empty, and say so in its log. Nobody may be at work.

    A log that is broken is not moved: what is wrong with it is to be found out where it is.
    Raises NotCopied, BadKey and StoreUnavailable; then *new* is as empty as it was.
    """
    schema.upgrade(new)
    with old.reading() as tx:
        before = verification.verify(tx, stages=stages)
    if before.broken is not None:
        raise NotCopied(f"its change log is broken at entry {before.broken}: {before.why}")
    with new.transaction(seconds=copying.SECONDS) as tx:
        with stages("copying", lambda: copying.size(old)) as told:
            rows = copying.copy(old, tx, told)
        verification.open_log(tx)
        after = verification.verify(tx, stages=stages)
        if (after.entries, after.head, after.broken) != (before.entries, before.head, None):
            raise NotCopied("the log that arrived is not the one that was sent")
        changelog.append(tx, MOVED, login=getuser(), rows=rows, from_=_kind(old), to=_kind(new))
        entries, head = changelog.head(tx)
    return Moved(rows, entries, head)


def _kind(database: Database) -> str:
    return "SQLite" if database.embedded else "PostgreSQL"

"""Putting a backup back: nothing that was done since is done twice, and nobody forgets that.

What came after the backup is not in it. So nothing of what was under way begins again, everybody
signs in anew, everything is stopped until somebody has looked, new runs have numbers that no run
had before, and the log says from where on it tells another story than its witnesses.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from bot.custody.durable import sync
from bot.hindsight import written
from bot.run import Run, State
from bot.store import (
    aftermath,
    changelog,
    copying,
    label,
    locks,
    news,
    runs,
    schema,
    stops,
    verification,
)
from bot.store.copying import NotCopied
from bot.store.database import Database, Transaction
from bot.store.label import Label, NoBackup
from bot.store.stages import Stages, untold
from bot.store.witness import Sighting

# Runs that came after the backup have numbers above its own: so far above, none is given again.
_NUMBERS_LEFT_OUT = 1000


@dataclass(frozen=True)
class Restored:
    """label: of the backup. ended: the runs that will not begin any more.

    later: what witnesses saw after the backup was made; that is not here. first: the number of the
    next run.
    """

    label: Label
    ended: Sequence[int]
    later: Sequence[Sighting]
    first: int


def restore(
    file: Path,
    target: Database,
    *,
    working: Path,
    seen: Sequence[Sighting] = (),
    stages: Stages = untold,
) -> Restored:
    """Put the backup *file* into *target*, as a whole or not at all. Nobody else may be at work.

    target: an empty database, or for SQLite one that is not there yet. working: where a copy of
    the file finds room; it may be *target*'s own directory. seen: what witnesses saw. The file
    itself stays as it is. Raises NoBackup, NotCopied, BadKey and StoreUnavailable.
    """
    place = Path(target.engine.url.database or "")
    if target.embedded and place.exists():
        raise NotCopied(f"there is a database already: move {place} away first")
    part = working / f"{file.name}.restoring"
    part.unlink(missing_ok=True)
    try:
        shutil.copyfile(file, part)
        part.chmod(0o600)
        copy = target.beside(f"sqlite:///{part.absolute()}")
        try:
            restored = _made_ready(copy, seen, stages)
            if not target.embedded:
                _handed_over(copy, target, restored.first, stages)
            label.close_journal(copy)
        finally:
            copy.close()
        if target.embedded:
            _put_in_place(part, place)
    finally:
        for left in working.glob(f"{part.name}*"):
            left.unlink()
    return restored


def _made_ready(copy: Database, seen: Sequence[Sighting], stages: Stages) -> Restored:
    """Let the copy be what the service may begin with."""
    found = label.read(copy)
    schema.upgrade(copy)
    with copy.reading() as tx:
        verdict = verification.verify(tx, stages=stages)
    if verdict.broken is not None:
        raise NoBackup(f"holds a change log that is broken: {verdict.why}")
    if (verdict.entries, verdict.head) != (found.point.seq, found.point.hash):
        raise NoBackup("does not hold the change log that its label tells of")
    later = [one for one in seen if one.point.seq > found.point.seq]
    with copy.transaction() as tx:
        verification.open_log(tx)
        label.take_off(tx)
        return _begun_anew(tx, found, later)


def _handed_over(copy: Database, target: Database, first: int, stages: Stages) -> None:
    schema.upgrade(target)
    with target.transaction(seconds=copying.SECONDS) as tx:
        with stages("copying", lambda: copying.size(copy)) as told:
            copying.copy(copy, tx, told)
        copying.number_from(tx, "run", first)


def _put_in_place(part: Path, place: Path) -> None:
    sync(part)
    part.rename(place)


def _begun_anew(tx: Transaction, found: Label, later: Sequence[Sighting]) -> Restored:
    made = written(found.made)
    last = max(later, key=lambda one: one.point.seq, default=None)
    changelog.append(
        tx,
        verification.RESTORED,
        login=getuser(),
        made=found.made,
        entries=found.point.seq,
        head=found.point.hash,
        seen=last.point.seq if last else found.point.seq,
        runs=sorted({one.run for one in later if one.run}),
    )
    aftermath.end_sessions(tx)
    why = f"the database was put back from a backup of {made}"
    ended = _put_down(
        tx,
        f"{why[0].upper()}{why[1:]}: whether this was done since is not known "
        "here. Look at the host, and ask again if it is still needed.",
    )
    _leave_open(
        tx,
        f"{why[0].upper()}{why[1:]}, and this was under way then: how far it came since is not "
        "known here. Its host stays locked until an owner settles this run.",
    )
    aftermath.look_ahead(tx, why)
    if stops.put(tx, stops.EVERYTHING, person="", why=why):
        changelog.append(tx, "everything stopped", why=why)
    highest = max([aftermath.highest_run(tx), *(one.run for one in later if one.run)])
    first = highest + _NUMBERS_LEFT_OUT + 1
    copying.number_from(tx, "run", first)
    return Restored(found, ended, later, first)


def _put_down(tx: Transaction, summary: str) -> list[int]:
    """End every run that nothing was sent for yet: by the time of the loss, that may have been."""
    ended: list[int] = []
    for run in aftermath.not_begun(tx):
        _end(tx, run, State.STOPPED, summary)
        locks.release(tx, run.id)
        ended.append(run.id)
    return ended


def _leave_open(tx: Transaction, summary: str) -> None:
    """Call unknown what was under way: by the time of the loss, more of it may have been sent."""
    for run in aftermath.under_way(tx):
        _end(tx, run, State.UNKNOWN, summary)


def _end(tx: Transaction, run: Run, state: State, summary: str) -> None:
    """End a run as tables and log tell it: nobody is at work whom it would have to wake."""
    runs.move(tx, run, state, ended=tx.now, summary=summary)
    changelog.append(tx, state.value, run=run.id, host=run.host, summary=summary)
    news.announce(tx, run.id if run.parent is None else run.parent)

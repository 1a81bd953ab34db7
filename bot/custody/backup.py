"""Backups: one SQLite file with all that the database holds, and a label that says what it is.

The same for both databases, so that what was saved from one can be put back into the other. It
holds no keys: whoever has the file can read what was done, and can sign nothing.
"""

import os
from getpass import getuser
from importlib.metadata import version
from pathlib import Path

from bot.custody.durable import sync
from bot.store import changelog, copying, label, schema, verification
from bot.store.database import Database
from bot.store.label import Label
from bot.store.stages import Stages, untold
from bot.store.verification import Verdict

BACKED_UP = "backed up"


def make(database: Database, file: Path, stages: Stages = untold) -> tuple[Label, Verdict]:
    """Save everything in *file*, which must not be there yet, while the service goes on.

    The file appears under its name once it is whole, and the log tells of it. The copy is
    verified: the verdict says whether the log was whole. Raises FileExistsError, NotCopied and
    StoreUnavailable.
    """
    if file.exists():
        raise FileExistsError(f"{file} is there already: a backup is never written over another")
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    copy = database.beside(f"sqlite:///{part.absolute()}")
    try:
        schema.upgrade(copy)
        with copy.transaction(seconds=copying.SECONDS) as tx:
            with stages("saving", lambda: copying.size(database)) as told:
                rows = copying.copy(database, tx, told)
            made = Label(tx.now, version("keyturn"), rows, verification.checkpoint(tx))
            label.stick(tx, made)
        with copy.reading() as tx:
            verdict = verification.verify(tx, stages=stages)
        label.close_journal(copy)
    finally:
        copy.close()
    _put_in_place(part, file)
    with database.transaction() as tx:
        changelog.append(
            tx,
            BACKED_UP,
            login=getuser(),
            file=file.name,
            rows=rows,
            entries=made.point.seq,
            head=made.point.hash,
        )
    return made, verdict


def _put_in_place(part: Path, file: Path) -> None:
    sync(part)
    # Unlike a rename, a link is never put over what somebody else has put there meanwhile.
    os.link(part, file)
    part.unlink()
    sync(file.parent)

"""A change of the key that seals the log: recorded there, and signed by the old and the new."""

from pathlib import Path

from bot.custody.durable import sync
from bot.store import changelog, seal, verification
from bot.store.database import Database


def rotate(database: Database, file: Path) -> str:
    """Seal the log by a new key from now on; return its public half. Nobody else may be writing.

    file: where the key is kept; the new one is written beside it and takes its place once the log
    says so. A change that was interrupted is completed, or begun anew.
    """
    beside = file.with_name(f"{file.name}.new")
    with database.reading() as tx:
        last = changelog.last_of_kind(tx, verification.KEY)
    named = str(last.facts["public"]) if last else ""
    if beside.exists():
        left = seal.kept_in(beside)
        if left.public == named:
            beside.replace(file)
            return left.public
        beside.unlink()
    new = seal.fresh(beside)
    with database.transaction() as tx:
        verification.open_log(tx)
        verification.rotate(tx, new)
    beside.replace(file)
    sync(file.parent)
    return new.public

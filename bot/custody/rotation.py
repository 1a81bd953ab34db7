"""A change of the key that seals the log: recorded there, and signed by the old and the new."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.custody.durable import sync
from bot.store import aftermath, changelog, copying, seal, tokens, verification
from bot.store.database import Database
from bot.store.stages import Stages, untold
from bot.store.tokens import Token
from bot.store.witness import Checkpoint


@dataclass(frozen=True)
class Rotated:
    """public: of the new key. ended: tokens that nobody but their rows told of: they are no more
    good."""

    public: str
    ended: Sequence[Token] = ()


def rotate(
    database: Database,
    file: Path,
    *,
    witnesses: Sequence[Checkpoint] = (),
    stages: Stages = untold,
) -> Rotated:
    """Seal the log by a new key from now on. Nobody else may be writing.

    The whole log is verified first, and held against what witnesses saw. Tokens go on, stamped by
    the new key, as far as the log tells of them. Everybody signs in anew.

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
            return Rotated(left.public)
        beside.unlink()
    new = seal.fresh(beside)
    with database.transaction(seconds=copying.SECONDS) as tx:
        verification.open_log(tx)
        # By what the old key vouches for: before another is named.
        ended = tokens.carry_over(tx, new)
        aftermath.end_sessions(tx)
        verification.rotate(tx, new, witnesses=witnesses, stages=stages)
    beside.replace(file)
    sync(file.parent)
    return Rotated(new.public, ended)

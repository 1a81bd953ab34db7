"""A change of the key that seals the log: recorded there, and signed by the old and the new."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.auth import tokens
from bot.auth.tokens import ApiToken
from bot.db.database import Database
from bot.maintenance import copy_database, restore
from bot.maintenance.durable import sync_to_disk
from bot.model import signing
from bot.model.progress import BeginStage, begin_silent_stage


@dataclass(frozen=True)
class RotationResult:
    """public: of the new key. ended: tokens that nobody but their rows told of: they are no more
    good."""

    public: str
    ended: Sequence[ApiToken] = ()


def rotate_signing_key(
    database: Database,
    file: Path,
    *,
    witnesses: Sequence[Checkpoint] = (),
    stages: BeginStage = begin_silent_stage,
) -> RotationResult:
    """Seal the log by a new key from now on. Nobody else may be writing.

    The whole log is verified first, and held against what witnesses saw. Tokens go on, stamped by
    the new key, as far as the log tells of them. Everybody signs in anew.

    file: where the key is kept; the new one is written beside it and takes its place once the log
    says so. A change that was interrupted is completed, or begun anew.
    """
    beside = file.with_name(f"{file.name}.new")
    with database.reading() as tx:
        last = change_log.get_last_entry_of_kind(tx, verification.KEY_KIND)
    named = str(last.facts["public"]) if last else ""
    if beside.exists():
        left = signing.load_signing_key(beside)
        if left.public_key == named:
            beside.replace(file)
            return RotationResult(left.public_key)
        beside.unlink()
    new = signing.create_signing_key(beside)
    with database.transaction(seconds=copy_database.SECONDS) as tx:
        verification.open_log(tx)
        # By what the old key vouches for: before another is named.
        ended = tokens.remac_tokens(tx, new)
        restore.end_sessions_of_everyone(tx)
        verification.append_key_change(tx, new, witnesses=witnesses, stages=stages)
    beside.replace(file)
    sync_to_disk(file.parent)
    return RotationResult(new.public_key, ended)

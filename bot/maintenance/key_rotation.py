"""Rotation of the signing key of the change log, signed by the old and the new key."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete

from bot.audit import change_log, events, followed_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.auth import agents, row_mac, tokens
from bot.auth.tokens import ApiToken
from bot.db import tables
from bot.db.database import Database
from bot.maintenance import copy_database, restore
from bot.maintenance.durable import sync_to_disk
from bot.model import signing
from bot.model.progress import BeginStage, begin_silent_stage

# People and groups of an identity provider: they are not sent again by themselves.
OF_PROVIDERS = (tables.provisioned_user, tables.provisioned_group, tables.provisioned_member)


@dataclass(frozen=True)
class RotationResult:
    """The result of a key rotation."""

    public: str
    """The new public key."""
    ended: Sequence[ApiToken] = ()
    """Tokens that stopped working, because their creation is not in the change log."""


def rotate_signing_key(
    database: Database,
    file: Path,
    *,
    witnesses: Sequence[Checkpoint] = (),
    stages: BeginStage = begin_silent_stage,
) -> RotationResult:
    """Sign the log with a new key from now on. No other process may write to the database.

    The whole log is verified first and compared with the witnesses. Tokens remain valid if the
    log contains their creation. Everyone has to sign in again.

    An interrupted rotation is completed or started again.

    Args:
        database: The database of the log.
        file: The key file. The new key is written to a second file, which replaces this one once
            the change is in the log.
        witnesses: The checkpoints of the witnesses.
        stages: Reports the progress.
    """
    new_file = file.with_name(f"{file.name}.new")
    with database.reading() as tx:
        last = change_log.get_last_entry_of_kind(tx, events.KeyAdded.kind)
    logged_key = change_log.get_added_key(last) if last else ""
    if new_file.exists():
        new = signing.load_signing_key(new_file)
        if new.public_key == logged_key:
            new_file.replace(file)
            return RotationResult(new.public_key)
        new_file.unlink()
    new = signing.create_signing_key(new_file)
    with database.transaction(seconds=copy_database.SECONDS) as tx:
        verification.open_log(tx)
        # Before the log names the new key, because the old one verifies the entries of tokens.
        ended = tokens.remac_tokens(tx, new)
        agents.remac_agents(tx, new)
        for table in OF_PROVIDERS:
            row_mac.remac_rows(tx, table, new)
        # Calendars are read again with the new key, and groups of tokens come with a new sign-in.
        for table in (tables.oncall_reading, tables.claimed_groups):
            tx.sql.execute(delete(table))
        restore.end_sessions_of_everyone(tx)
        verification.append_key_change(tx, new, witnesses=witnesses, stages=stages)
        # Who has the old key can have stored any snapshot.
        followed_log.renew_snapshot(tx)
    new_file.replace(file)
    sync_to_disk(file.parent)
    return RotationResult(new.public_key, ended)

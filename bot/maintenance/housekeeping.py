"""Periodic duties of the service: clean up, log problems and settings, publish checkpoints."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from bot.audit import change_log, events, followed_log, output_check, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.event_type import Event
from bot.audit.spool import Spool
from bot.auth import row_mac
from bot.db import dedup, outbox, outputs
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.integrations import webhook_queue
from bot.integrations.witnesses import Witnesses, WitnessState, describe_witness
from bot.model.canonical import hash_canonical
from bot.model.times import DAY

log = logging.getLogger(__name__)

# Outputs a call, so that other writers do not wait.
_MOST_ERASED = 50

Witness = Callable[[Checkpoint], None]


class Housekeeping:
    """Runs the periodic duties.

    witnesses: receive a checkpoint of each new head of the log. cosigners: those that cosign it.
    """

    def __init__(
        self,
        database: Database,
        *,
        spool: Spool,
        witnesses: Sequence[Witness] = (),
        cosigners: Witnesses | None = None,
        keep_output: int = 0,
    ) -> None:
        self._database, self._spool = database, spool
        self._keep_output = keep_output * DAY
        # Up to this entry, everything that has expired is erased.
        self._erased_until = 0
        self._witnesses, self._cosigners = witnesses, cosigners
        # The number of the last log entry at the start.
        self._first_head = 0
        self._published: dict[Witness, Checkpoint] = {}
        # Why a witness did not receive the last checkpoint.
        self._problems: dict[Witness, str] = {}

    def start(self, settings: Mapping[str, str]) -> None:
        """Open the log and record changed settings. Raises KeyFileError."""
        self.open_log()
        with self._database.transaction() as tx:
            change_log.lock_log(tx)
            changed = events.SettingsChanged(settings=settings, digest=hash_canonical(settings))
            log_setting_change(tx, changed)

    def open_log(self) -> None:
        """Create the log, or check that our key signs it. Raises KeyFileError."""
        with self._database.transaction() as tx:
            verification.open_log(tx)
            self._first_head = change_log.get_head(tx)[0]

    def log_own_runbooks(self, digests: Mapping[str, str]) -> None:
        """Record the digests of the local runbooks and dialects, if they have changed."""
        with self._database.transaction() as tx:
            changed = events.LocalRunbooksChanged(files=digests, digest=hash_canonical(digests))
            if digests or change_log.get_last_entry_of_kind(tx, changed.kind):
                log_setting_change(tx, changed)

    def run_periodic_tasks(self) -> None:
        """Log write errors and forged rows, delete old data, and publish a checkpoint."""
        error = self._database.error
        with self._database.transaction() as tx:
            dedup.delete_old_keys(tx)
            webhook_queue.delete_old_failures(tx)
            outbox.delete_old_updates(tx)
            if self._keep_output:
                self._erase_expired_output(tx)
            if error:
                change_log.append_entry(tx, events.LoggingFailed(reason=str(error)))
            row_mac.log_forged_rows(tx)
            if not self._spool.is_empty:
                self._spool.merge_into_log(tx)
            followed_log.keep_snapshot(tx)
            if self._cosigners is not None:
                self._cosigners.save_cosignatures(tx)
            checkpoint = verification.create_checkpoint(tx)
        self._publish_checkpoint(checkpoint)

    def _erase_expired_output(self, tx: Transaction) -> None:
        """Erase some of the output that has expired. Once a day, more of it expires.

        No more expires before all that expired earlier is erased, so only the newest expiration
        can be incomplete.
        """
        (until, at), (before, _) = [*output_check.list_expirations(tx), (0, 0), (0, 0)][:2]
        if until > self._erased_until:
            after = max(before, self._erased_until)
            if outputs.erase_expired_output(tx, after=after, until=until, limit=_MOST_ERASED):
                return
            self._erased_until = until
        newest = change_log.get_last_entry_before(tx, tx.now - self._keep_output)
        if newest is not None and newest.seq > until and at <= tx.now - DAY:
            days = self._keep_output // DAY
            change_log.append_entry(tx, events.OutputExpired(until=newest.seq, days=days))

    def publish_last_checkpoint(self) -> None:
        """Publish the last checkpoint to the witnesses at shutdown, and keep a snapshot."""
        try:
            with self._database.transaction() as tx:
                followed_log.keep_snapshot(tx, after=1)
                checkpoint = verification.create_checkpoint(tx)
        except StoreUnavailable as error:
            log.critical("the last checkpoint was not published to the witnesses: %s", error)
        else:
            self._publish_checkpoint(checkpoint)
            self._save_last_cosignatures()

    def _save_last_cosignatures(self) -> None:
        if self._cosigners is not None:
            self._cosigners.wait_for_answers()
            with suppress(StoreUnavailable), self._database.transaction() as tx:
                self._cosigners.save_cosignatures(tx)
            self._cosigners.close()

    def list_witness_states(self) -> list[WitnessState]:
        """Return what is known of the witnesses, those with a number before those that cosign."""
        receivers = [
            describe_witness(
                str(number),
                last.size if (last := self._published.get(witness)) else None,
                self._problems.get(witness),
            )
            for number, witness in enumerate(self._witnesses, start=1)
        ]
        return receivers + (self._cosigners.list_states() if self._cosigners else [])

    def count_unwitnessed_entries(self) -> dict[str, int]:
        """Return the number of entries since the start of this process that each witness lacks."""
        with self._database.reading() as tx:
            head = change_log.get_head(tx)[0]
        return {
            state.name: head - (self._first_head if state.size is None else state.size)
            for state in self.list_witness_states()
        }

    def _publish_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Send a new checkpoint to every witness, even if one of them fails."""
        for witness in self._witnesses:
            last = self._published.get(witness)
            if last is not None and last.text == checkpoint.text:
                continue
            try:
                witness(checkpoint)
            except OSError as error:
                log.critical("a witness did not receive the checkpoint: %s", error)
                self._problems[witness] = f"did not receive the checkpoint: {error}"
            else:
                self._published[witness] = checkpoint
                self._problems.pop(witness, None)
        if self._cosigners is not None:
            self._cosigners.publish_newest(checkpoint.size)


def log_setting_change(tx: Transaction, changed: Event) -> None:
    """Log settings if they differ from the last entry of this kind."""
    last = change_log.get_last_entry_of_kind(tx, changed.kind)
    if last is None or last.event != changed:
        change_log.append_entry(tx, changed)

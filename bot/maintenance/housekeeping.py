"""Housekeeping: what the service says of itself in the log, and what it tells the witnesses."""

import logging
from collections.abc import Callable, Mapping, Sequence

from bot.audit import change_log, followed_log, inbound_events, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.spool import LOGGING_FAILED_KIND, Spool
from bot.auth import row_mac
from bot.db import dedup
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.model.canonical import Canonical, hash_canonical
from bot.webhooks import webhook_queue

log = logging.getLogger(__name__)

SETTINGS, OWN_RUNBOOKS = "settings changed", "local runbooks changed"

Witness = Callable[[Checkpoint], None]


class Housekeeping:
    """Does a little every few seconds. witnesses: told of each new head of the log."""

    def __init__(
        self,
        database: Database,
        *,
        spool: Spool,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        self._database, self._spool = database, spool
        self._witnesses = witnesses
        # How far the log was then.
        self._began = 0
        self._told: dict[Witness, Checkpoint] = {}

    def start(self, settings: Mapping[str, str]) -> None:
        """Begin or take up the log, and note under which settings. Raises BadKey."""
        self.open_log()
        with self._database.transaction() as tx:
            change_log.lock_log(tx)
            log_setting_change(tx, SETTINGS, settings=settings, digest=hash_canonical(settings))

    def open_log(self) -> None:
        """Begin the log, or see that it is sealed by our key. Raises BadKey."""
        with self._database.transaction() as tx:
            verification.open_log(tx)
            self._began = change_log.get_head(tx)[0]

    def log_own_runbooks(self, digests: Mapping[str, str]) -> None:
        """Note the digests of the own runbooks and dialects in use, if they have changed."""
        with self._database.transaction() as tx:
            if digests or change_log.get_last_entry_of_kind(tx, OWN_RUNBOOKS):
                log_setting_change(tx, OWN_RUNBOOKS, files=digests, digest=hash_canonical(digests))

    def run_periodic_tasks(self) -> None:
        """Say what could not be written or was forged, forget old signatures, tell witnesses."""
        trouble = self._database.error
        with self._database.transaction() as tx:
            dedup.delete_old_keys(tx)
            inbound_events.delete_old_events(tx)
            webhook_queue.delete_old_failures(tx)
            if trouble:
                change_log.append_entry(tx, LOGGING_FAILED_KIND, reason=trouble)
            row_mac.log_forged_rows(tx)
            if not self._spool.is_empty:
                self._spool.merge_into_log(tx)
            followed_log.follow_log(tx)
            point = verification.create_checkpoint(tx)
        self._testify(point)

    def publish_last_checkpoint(self) -> None:
        """Publish the last entries to the witnesses, when nothing more is to be written."""
        try:
            with self._database.transaction() as tx:
                point = verification.create_checkpoint(tx)
        except StoreUnavailable as trouble:
            log.critical("witnesses were not told of the last entries: %s", trouble)
        else:
            self._testify(point)

    def count_unwitnessed_entries(self) -> dict[str, int]:
        """Return how many entries each witness was not told of yet, since this process began."""
        with self._database.reading() as tx:
            head = change_log.get_head(tx)[0]
        return {
            str(n): head - (told.seq if (told := self._told.get(witness)) else self._began)
            for n, witness in enumerate(self._witnesses, start=1)
        }

    def _testify(self, point: Checkpoint) -> None:
        """Tell every witness what is new. One that fails keeps no other from hearing of it."""
        for witness in self._witnesses:
            last = self._told.get(witness)
            if last is not None and last.hash == point.hash:
                continue
            try:
                witness(point)
            except OSError as trouble:
                log.critical("a witness of the change log was not told: %s", trouble)
            else:
                self._told[witness] = point


def log_setting_change(tx: Transaction, kind: str, **facts: Canonical) -> None:
    """Log what the service works under, if it is not what it last was."""
    last = change_log.get_last_entry_of_kind(tx, kind)
    if last is None or last.facts != facts:
        change_log.append_entry(tx, kind, run=None, person="", host="", **facts)

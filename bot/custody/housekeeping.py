"""Housekeeping: what the service says of itself in the log, and what it tells the witnesses."""

import logging
from collections.abc import Callable, Mapping, Sequence

from bot.digest import Canonical, sha256
from bot.store import changelog, deliveries, known, outside, seen, stamp, verification
from bot.store.database import Database, StoreUnavailable, Transaction
from bot.store.spool import TROUBLE, Spool
from bot.store.witness import Checkpoint

log = logging.getLogger(__name__)

SETTINGS, OWN_RUNBOOKS = "settings", "own runbooks"

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

    def open(self, settings: Mapping[str, str]) -> None:
        """Begin or take up the log, and note under which settings. Raises BadKey."""
        self.take_up()
        with self._database.transaction() as tx:
            changelog.keep_others_out(tx)
            note(tx, SETTINGS, settings=settings, digest=sha256(settings))

    def take_up(self) -> None:
        """Begin the log, or see that it is sealed by our key. Raises BadKey."""
        with self._database.transaction() as tx:
            verification.open_log(tx)
            self._began = changelog.head(tx)[0]

    def note_own_runbooks(self, digests: Mapping[str, str]) -> None:
        """Note the digests of the own runbooks and dialects in use, if they have changed."""
        with self._database.transaction() as tx:
            if digests or changelog.last_of_kind(tx, OWN_RUNBOOKS):
                note(tx, OWN_RUNBOOKS, files=digests, digest=sha256(digests))

    def keep(self) -> None:
        """Say what could not be written or was forged, forget old signatures, tell witnesses."""
        trouble = self._database.trouble
        with self._database.transaction() as tx:
            seen.forget_old(tx)
            outside.forget_old(tx)
            deliveries.forget_old(tx)
            if trouble:
                changelog.append(tx, TROUBLE, why=trouble)
            stamp.tell(tx)
            if not self._spool.empty:
                self._spool.merge(tx)
            known.follow(tx)
            point = verification.checkpoint(tx)
        self._testify(point)

    def end(self) -> None:
        """Publish the last entries to the witnesses, when nothing more is to be written."""
        try:
            with self._database.transaction() as tx:
                point = verification.checkpoint(tx)
        except StoreUnavailable as trouble:
            log.critical("witnesses were not told of the last entries: %s", trouble)
        else:
            self._testify(point)

    def unwitnessed(self) -> dict[str, int]:
        """Return how many entries each witness was not told of yet, since this process began."""
        with self._database.reading() as tx:
            head = changelog.head(tx)[0]
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


def note(tx: Transaction, kind: str, **facts: Canonical) -> None:
    """Log what the service works under, if it is not what it last was."""
    last = changelog.last_of_kind(tx, kind)
    if last is None or last.facts != facts:
        changelog.append(tx, kind, run=None, person="", host="", **facts)

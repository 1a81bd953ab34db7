"""Verification of the whole change log in the background, some entries at a time.

A process starts at a snapshot, so it does not read the entries before. This reads them, from the
first to the newest, and then again.
"""

import logging

from bot.audit import verification
from bot.audit.change_log import LogAlteredError
from bot.db.database import Database

log = logging.getLogger(__name__)

# Each five seconds, half a percent of a core: ten million entries take seven hours.
_BATCH_SIZE = 2048


class BackgroundVerification:
    """Verifies the log that this process knows, in rounds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # How many entries this round and the round before have verified.
        self._verified = self._verified_before = 0
        self.problem = ""
        """The first entry that is wrong, as a sentence; "" if there is none so far."""

    def verify_next_entries(self) -> None:
        """Verify the next entries. If one is wrong, the rest is verified as well."""
        tree = self._database.seen_head.tree
        if self._verified >= tree.size:
            self._verified_before, self._verified = self._verified, 0
        after, self._verified = self._verified, min(self._verified + _BATCH_SIZE, tree.size)
        try:
            with self._database.reading() as tx:
                verification.verify_entries(tx, tree, after, limit=_BATCH_SIZE)
        except LogAlteredError as error:
            self.problem = self.problem or str(error)
            log.critical("%s", error)

    def describe_progress(self) -> str:
        """Return how much of the log was verified since the start of this process."""
        size = self._database.seen_head.tree.size
        verified = max(self._verified, self._verified_before)
        return f"{100 * verified // size if size else 100} % verified since the start"

"""A database clock for tests, which runs ahead."""

from sqlalchemy import Connection

from bot.db.database import Database

MINUTE = 60 * 1_000_000


class Clock(Database):
    """A database whose clock can be put forward, or stopped. ahead: microseconds."""

    ahead = 0
    stopped_at: int | None = None
    """Microseconds since 1970."""

    def read_clock(self, connection: Connection) -> int:
        now = super().read_clock(connection) if self.stopped_at is None else self.stopped_at
        return now + self.ahead

    def stop(self) -> None:
        """From now on only `ahead` counts, however long the machine takes."""
        with self.reading() as tx:
            self.stopped_at = tx.now - self.ahead

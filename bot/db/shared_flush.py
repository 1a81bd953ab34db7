"""Make what was committed without waiting for the disk durable, for many threads at once.

A transaction of PostgreSQL that appends to the change log keeps the log locked until its commit
returns. So its commit does not wait for the disk: it releases the lock at once, and the thread
waits here, beside those that append meanwhile. PostgreSQL writes its log in order, so one commit
that waits for the disk (and for a synchronous standby) makes all earlier ones durable.
"""

import threading

from sqlalchemy import Connection

# A commit that has written nothing waits for nothing.
_WRITE = "SELECT pg_logical_emit_message(true, 'keyturn', '')"


class SharedFlush:
    """Lets one thread wait for the disk, for all that committed before it began to."""

    def __init__(self) -> None:
        self._flushing, self._counting = threading.Lock(), threading.Lock()
        # How many have committed, and how many of those are durable.
        self._committed, self._durable = 0, 0

    def wait_until_durable(self, connection: Connection) -> None:
        """Return when everything that was committed and seen until now is durable.

        connection: in no transaction. Raises SQLAlchemyError if it is not known to be durable.
        """
        mine = self._take_number()
        with self._flushing:
            if self._durable >= mine:
                return
            with self._counting:
                covered = self._committed
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(_WRITE)
            self._durable = covered

    def _take_number(self) -> int:
        with self._counting:
            self._committed += 1
            return self._committed

"""Group commit: threads that write to SQLite at the same time share one commit.

Each thread writes in its turn, in its own savepoint, so a rollback affects no other thread. If
another thread is waiting, the transaction stays open for it, and the last thread commits for all.
A thread continues only after the commit that makes its data durable. So a wave of hosts waits a
few times for the disk instead of once for each host.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from bot.db.write_lock import WriteLock, is_urgent

# The size of a group: its first member waits for its last.
_MAX_MEMBERS = 16
# The thread that should commit may fail, so waiting threads check this often.
_POLL_SECONDS = 0.05


class Busy(Exception):
    """Other threads were writing for too long."""


@dataclass(eq=False)
class _Group:
    """The threads that share one transaction."""

    opened: ExitStack
    """Closes the connection and rolls back what is not committed."""
    connection: Connection
    members: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    """Why the commit failed."""


class Commits:
    """Lets one thread write at a time. patience: seconds to wait for the write lock."""

    def __init__(
        self,
        open_to_write: Callable[[], AbstractContextManager[Connection]],
        commit: Callable[[Connection], None],
        *,
        patience: float,
    ) -> None:
        """open_to_write: yields a connection in a transaction. commit: commits it."""
        self._open_to_write, self._commit, self._patience = open_to_write, commit, patience
        self._write_lock = WriteLock()
        self._counting = threading.Lock()
        self._waiting = 0
        # The group with an open transaction. Guarded by the write lock.
        self._group: _Group | None = None

    @property
    def waiting(self) -> int:
        """How many threads wait to write in a shared commit."""
        with self._counting:
            return self._waiting

    @contextmanager
    def hold_alone(self) -> Generator[None]:
        """Hold the write lock for a separate transaction. Raises Busy."""
        self._take_lock()
        try:
            self._commit_group()
            yield
        finally:
            self._write_lock.release()

    @contextmanager
    def share_commit(self) -> Generator[Connection]:
        """Yield a connection; after the block the writes are durable.

        Raises Busy, or SQLAlchemyError if the commit failed.
        """
        with self._counting:
            self._waiting += 1
        try:
            self._take_lock()
        finally:
            with self._counting:
                self._waiting -= 1
        try:
            group = self._join_group()
            with self._savepoint(group):
                yield group.connection
            group.members += 1
        finally:
            if not self._is_joined_by_another():
                self._commit_group()
            self._write_lock.release()
        self._wait_for(group)

    def _take_lock(self) -> None:
        if not self._write_lock.acquire(self._patience):
            raise Busy

    def _join_group(self) -> _Group:
        if self._group is None:
            opened = ExitStack()
            self._group = _Group(opened, opened.enter_context(self._open_to_write()))
        return self._group

    @contextmanager
    def _savepoint(self, group: _Group) -> Generator[None]:
        """Undo what was written in the block if it fails, and nothing else."""
        savepoint = group.connection.begin_nested()
        try:
            yield
        except BaseException:
            try:
                savepoint.rollback()
            except SQLAlchemyError as error:
                # If the disk is full, SQLite rolls back the whole transaction, so the group fails:
                # an incomplete savepoint is never committed with the rest.
                group.error = group.error or error
            raise
        try:
            savepoint.commit()
        except SQLAlchemyError as error:
            group.error = group.error or error
            raise

    def _is_joined_by_another(self) -> bool:
        group = self._group
        if group is None or group.error is not None or is_urgent():
            return False
        return self.waiting > 0 and group.members < _MAX_MEMBERS

    def _commit_group(self) -> None:
        """Commit the open group. Each member raises the error itself."""
        group, self._group = self._group, None
        if group is None:
            return
        earlier, group.error = group.error, SQLAlchemyError("the commit was interrupted")
        try:
            with group.opened:
                if earlier is None:
                    self._commit(group.connection)
            group.error = earlier
        except Exception as error:  # noqa: BLE001 - the waiting threads raise it
            group.error = error
        finally:
            group.done.set()

    def _wait_for(self, group: _Group) -> None:
        while not group.done.wait(_POLL_SECONDS):
            if self._write_lock.acquire(0):
                try:
                    if self._group is group:
                        self._commit_group()
                finally:
                    self._write_lock.release()
        if group.error is not None:
            cause = getattr(group.error, "orig", None) or group.error
            raise SQLAlchemyError(str(cause)) from group.error

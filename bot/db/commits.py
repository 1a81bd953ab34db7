"""Commits: what several threads write at the same moment becomes durable by one commit of SQLite.

Each writes in its turn, in a savepoint of its own: what one takes back is nobody else's. Whoever
finds that another waits leaves the transaction open to it, and waits; the last of them commits for
all. So nobody goes on before what it wrote is durable, and a wave takes a few waits for the disk
instead of one for each host.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from bot.db.write_lock import WriteLock, is_urgent

# So many at the most: the first of them waits for the last.
_MOST = 16
# Whoever was to commit may have been turned away: who waits looks after so many seconds.
_LOOK_SECONDS = 0.05


class Busy(Exception):
    """The turn did not come in time."""


@dataclass(eq=False)
class _Group:
    """Those who share one transaction."""

    opened: ExitStack
    """Closes the connection, and takes back what was not committed."""
    connection: Connection
    members: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    trouble: Exception | None = None
    """Why it did not become durable."""


class Commits:
    """Lets one write at a time. patience: seconds to wait for one's turn."""

    def __init__(
        self,
        open_to_write: Callable[[], AbstractContextManager[Connection]],
        commit: Callable[[Connection], None],
        *,
        patience: float,
    ) -> None:
        """open_to_write: yields a connection in a transaction. commit: makes it durable."""
        self._open_to_write, self._commit, self._patience = open_to_write, commit, patience
        self._pen = WriteLock()
        self._counting = threading.Lock()
        self._coming = 0
        # Left open by those who wait for it to be committed. Who has the turn may look.
        self._group: _Group | None = None

    @property
    def coming(self) -> int:
        """How many wait for their turn to write together with others."""
        with self._counting:
            return self._coming

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the turn for a transaction of one's own. Raises Busy."""
        self._take_turn()
        try:
            self._settle()
            yield
        finally:
            self._pen.give()

    @contextmanager
    def together(self) -> Generator[Connection]:
        """Write within the block; after it, that is durable. Raises Busy, or what befell it."""
        with self._counting:
            self._coming += 1
        try:
            self._take_turn()
        finally:
            with self._counting:
                self._coming -= 1
        try:
            group = self._joined()
            with self._savepoint(group):
                yield group.connection
            group.members += 1
        finally:
            if not self._somebody_follows():
                self._settle()
            self._pen.give()
        self._wait_for(group)

    def _take_turn(self) -> None:
        if not self._pen.take(self._patience):
            raise Busy

    def _joined(self) -> _Group:
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
            except SQLAlchemyError as trouble:
                # Where the disk is full SQLite gives up all of it, what the others wrote too; and
                # nothing that is half there is committed with the rest.
                group.trouble = group.trouble or trouble
            raise
        try:
            savepoint.commit()
        except SQLAlchemyError as trouble:
            group.trouble = group.trouble or trouble
            raise

    def _somebody_follows(self) -> bool:
        group = self._group
        if group is None or group.trouble is not None or is_urgent():
            return False
        return self.coming > 0 and group.members < _MOST

    def _settle(self) -> None:
        """Commit for all who wait for it. They are told what befell it, each by itself."""
        group, self._group = self._group, None
        if group is None:
            return
        before, group.trouble = group.trouble, SQLAlchemyError("the commit was interrupted")
        try:
            with group.opened:
                if before is None:
                    self._commit(group.connection)
            group.trouble = before
        except Exception as trouble:  # noqa: BLE001 - whoever waits raises it
            group.trouble = trouble
        finally:
            group.done.set()

    def _wait_for(self, group: _Group) -> None:
        while not group.done.wait(_LOOK_SECONDS):
            if self._pen.take(0):
                try:
                    if self._group is group:
                        self._settle()
                finally:
                    self._pen.give()
        if group.trouble is not None:
            why = getattr(group.trouble, "orig", None) or group.trouble
            raise SQLAlchemyError(str(why)) from group.trouble

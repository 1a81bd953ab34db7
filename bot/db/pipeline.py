"""A pipe to PostgreSQL: statements are told by one message, and waited for once.

This is libpq's pipeline, as psycopg binds it. What psycopg itself makes of that sends each
statement by itself, and takes three times the work.
"""

import re
import select
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from psycopg import Connection, Error, OperationalError, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGresult

from bot.db.statement import Answer, Statement

# What was told so often is prepared, but no more than so many: as psycopg does it.
_OFTEN, _MOST = 5, 100
_MARK = re.compile(r"%(?:\((\w+)\)s|s|(%))")


_Key = tuple[bytes, tuple[int, ...]]


class _Spelled(NamedTuple):
    """A statement as libpq takes it."""

    text: bytes
    values: Sequence[Any] | None
    types: tuple[int, ...]
    formats: Sequence[pq.Format] | None
    by_heart: bool


class Pipeline:
    """One connection's: whoever holds that tells, and nobody beside them."""

    def __init__(self, driver: Connection[Any]) -> None:
        self._driver, self._line = driver, driver.pgconn
        self._adapted = Transformer(driver)
        self._poll = select.poll()
        self._told: dict[_Key, int] = {}
        self._prepared: dict[_Key, bytes] = {}
        self._numbers = count(1)

    def done(self, statements: Sequence[Statement]) -> list[Answer]:
        """Do these in their order, by one journey; return what came of each.

        Raises what psycopg raises: after a statement that fails, none is done.
        """
        # All of it is fit to be told before any of it is.
        spelled = [self._spelled(statement) for statement in statements]
        try:
            self._line.enter_pipeline_mode()
            new = self._tell(spelled)
            results = self._results(2 * len(new) - new.count(None))
            self._line.exit_pipeline_mode()
        except BaseException:
            # Whoever has it next would read our answers for theirs.
            self._driver.close()
            raise
        return self._understood(new, results)

    def _spelled(self, statement: Statement) -> _Spelled:
        words, given, by_heart = statement
        if given is None:
            return _Spelled(words.encode(), None, (), None, by_heart)
        adapted = self._adapted
        text, names = _marked(words)
        listed = [given[name] for name in names] if isinstance(given, Mapping) else given
        values = adapted.dump_sequence(listed, [PyFormat.AUTO] * len(listed))
        return _Spelled(text, values, adapted.types or (), adapted.formats, by_heart)

    def _tell(self, spelled: Sequence[_Spelled]) -> Sequence[_Key | None]:
        """Tell them; return of each what it is prepared as along with it, None if it is not."""
        line, new = self._line, list[_Key | None]()
        for text, values, types, formats, by_heart in spelled:
            key = text, types
            known = self._prepared.get(key) if by_heart else None
            name = known or (self._name(key) if by_heart else None)
            if name is None:
                line.send_query_params(text, values, types, formats)
            else:
                if known is None:
                    line.send_prepare(name, text, types)
                line.send_query_prepared(name, values, formats)
            new.append(key if name is not known else None)
        line.pipeline_sync()
        while line.flush():
            # What it answers meanwhile has to be read, or it stops reading us.
            if self._waited(select.POLLIN | select.POLLOUT) != select.POLLOUT:
                line.consume_input()
        return new

    def _name(self, key: _Key) -> bytes | None:
        """Return what a statement is to be prepared as, None as long as it is not to be."""
        self._told[key] = self._told.get(key, 0) + 1
        if self._told[key] <= _OFTEN or len(self._prepared) >= _MOST:
            return None
        self._prepared[key] = f"keyturn_{next(self._numbers)}".encode()
        return self._prepared[key]

    def _results(self, wanted: int) -> list[PGresult]:
        """Return one of each, and be in step with the server again."""
        found: list[PGresult] = []
        try:
            while len(found) < wanted:
                found.append(self._result())
                # What ends them.
                self._next()
            self._result()
        except Error:
            # What it said before it hung up tells more than that it did.
            for result in found:
                _check(result)
            raise
        return found

    def _result(self) -> PGresult:
        result = self._next()
        if result is None:
            raise OperationalError("the connection to the server was lost")
        return result

    def _next(self) -> PGresult | None:
        while self._line.is_busy():
            self._waited(select.POLLIN)
            self._line.consume_input()
        return self._line.get_result()

    def _waited(self, how: int) -> int:
        """Wait until the line can be read, or written to; return which."""
        self._poll.register(self._line.socket, how)
        return self._poll.poll()[0][1]

    def _understood(self, new: Sequence[_Key | None], results: Sequence[PGresult]) -> list[Answer]:
        answers: list[Answer] = []
        rest = iter(results)
        hoped = {key for key in new if key is not None}
        try:
            for key in new:
                if key is not None:
                    _check(next(rest))
                    hoped.discard(key)
                answers.append(self._answer(next(rest)))
        except Error:
            # After one that fails, none is prepared either.
            for key in hoped:
                del self._prepared[key]
            raise
        return answers

    def _answer(self, result: PGresult) -> Answer:
        _check(result)
        did = (result.command_status or b"").decode()
        if result.status != pq.ExecStatus.TUPLES_OK:
            return Answer([], result.command_tuples or 0, did)
        self._adapted.set_pgresult(result)
        rows = self._adapted.load_rows(0, result.ntuples, tuple)
        return Answer(rows, result.ntuples, did)


def _check(result: PGresult) -> None:
    """Raise what the server says is wrong."""
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise error_from_result(result)


@lru_cache(1024)
def _marked(words: str) -> tuple[bytes, Sequence[str]]:
    """Return it with libpq's marks, and the names of its values in their order."""
    names: dict[str, int] = {}

    def number(mark: re.Match[str]) -> str:
        name, percent = mark.groups()
        if percent:
            return "%"
        return f"${names.setdefault(name or str(len(names)), len(names) + 1)}"

    return _MARK.sub(number, words).encode(), list(names)

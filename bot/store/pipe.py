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

from bot.store.statement import Answer, Statement

# What was told so often is prepared, but no more than so many: as psycopg does it.
_OFTEN, _MOST = 5, 100
_MARK = re.compile(r"%(?:\((\w+)\)s|s|(%))")


class _Spelled(NamedTuple):
    """A statement as libpq takes it. name: that it is prepared by, b"" where it is not."""

    text: bytes
    values: Sequence[Any] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[pq.Format] | None = None
    name: bytes = b""
    is_new: bool = False


class Pipe:
    """One connection's: whoever holds that tells, and nobody beside them."""

    def __init__(self, driver: Connection[Any]) -> None:
        self._driver, self._line = driver, driver.pgconn
        self._adapted = Transformer(driver)
        self._poll = select.poll()
        self._told: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._numbers = count(1)

    def done(self, statements: Sequence[Statement]) -> list[Answer]:
        """Do these in their order, by one journey; return what came of each.

        Raises what psycopg raises: after a statement that fails, none is done.
        """
        # All of it is fit to be told before any of it counts as told.
        spelled = [self._spelled(statement) for statement in statements]
        heart = zip(spelled, statements, strict=True)
        spelled = [self._named(one) if said.by_heart else one for one, said in heart]
        try:
            self._line.enter_pipeline_mode()
            self._tell(spelled)
            results = self._results(sum(1 + one.is_new for one in spelled))
            self._line.exit_pipeline_mode()
        except BaseException:
            # Whoever has it next would read our answers for theirs.
            self._driver.close()
            raise
        return self._understood(spelled, results)

    def _spelled(self, statement: Statement) -> _Spelled:
        given, adapted = statement.values, self._adapted
        if given is None:
            return _Spelled(statement.words.encode())
        text, names = _marked(statement.words)
        listed = [given[name] for name in names] if isinstance(given, Mapping) else given
        values = adapted.dump_sequence(listed, [PyFormat.AUTO] * len(listed))
        return _Spelled(text, values, adapted.types or (), adapted.formats)

    def _named(self, spelled: _Spelled) -> _Spelled:
        """Return it with what it is prepared by, or is to be."""
        key = spelled.text, spelled.types
        name = self._prepared.get(key)
        if name:
            return spelled._replace(name=name)
        self._told[key] = self._told.get(key, 0) + 1
        if self._told[key] <= _OFTEN or len(self._prepared) >= _MOST:
            return spelled
        self._prepared[key] = name = f"keyturn_{next(self._numbers)}".encode()
        return spelled._replace(name=name, is_new=True)

    def _tell(self, spelled: Sequence[_Spelled]) -> None:
        line = self._line
        for text, values, types, formats, name, is_new in spelled:
            if is_new:
                line.send_prepare(name, text, types)
            if name:
                line.send_query_prepared(name, values, formats)
            else:
                line.send_query_params(text, values, types, formats)
        line.pipeline_sync()
        while line.flush():
            # What it answers meanwhile has to be read, or it stops reading us.
            if self._waited(select.POLLIN | select.POLLOUT) != select.POLLOUT:
                line.consume_input()

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

    def _understood(
        self, spelled: Sequence[_Spelled], results: Sequence[PGresult]
    ) -> list[Answer]:
        answers: list[Answer] = []
        rest = iter(results)
        hoped = {(one.text, one.types) for one in spelled if one.is_new}
        try:
            for one in spelled:
                if one.is_new:
                    _check(next(rest))
                    hoped.discard((one.text, one.types))
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

"""SQL compiled once for all databases of a test run.

SQLAlchemy keeps what it has compiled as long as an engine. Thousands of tests have an engine of
their own, and would compile the same hundred statements again. Here engines of one dialect share
what is compiled, by an execution option that SQLAlchemy documents.
"""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

_compiled: dict[Any, Any] = {}


class _Shared:
    """Dialects of one class are one key of what is compiled."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=_compiled)


class SharedSqlite(_Shared, SQLiteDialect_pysqlite):
    supports_statement_cache = True


class SharedPostgresql(_Shared, PGDialect_psycopg):
    supports_statement_cache = True


def share() -> None:
    """Have every engine that is created from now on share what is compiled."""
    registry.register("sqlite", __name__, SharedSqlite.__name__)
    registry.register("postgresql.psycopg", __name__, SharedPostgresql.__name__)

"""The rights of PostgreSQL roles on the tables, so that the change log is append-only."""

import re

from sqlalchemy import text

from bot.db.database import Database
from bot.model.errors import InvalidRequestError

APPEND_ONLY = ("entry", "tile")
_READABLE = (
    *APPEND_ONLY,
    "cosignature",
    "time_stamp",
    "output",
    "run",
    "decision",
    "step",
    "search_word",
    "fire",
)
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)

_EXCESS_RIGHTS = """
WITH log (name) AS (VALUES ('entry'), ('tile'))
SELECT
  rolsuper AS "is a superuser",
  pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'entry'::regclass), 'USAGE')
    AS "owns the change log",
  has_schema_privilege(current_user, current_schema(), 'CREATE') AS "may create tables",
  (SELECT bool_or(has_table_privilege(current_user, name, 'UPDATE')) FROM log)
    AS "may alter entries",
  (SELECT bool_or(has_table_privilege(current_user, name, 'DELETE')) FROM log)
    AS "may delete entries",
  (SELECT bool_or(has_table_privilege(current_user, name, 'TRUNCATE')) FROM log)
    AS "may empty the change log",
  (SELECT bool_or(has_table_privilege(current_user, name, 'TRIGGER')) FROM log)
    AS "may put triggers on it"
FROM pg_roles WHERE rolname = current_user
"""


def grant_statements(app: str, reader: str = "") -> list[str]:
    """Return the GRANT statements for the owner of the tables.

    Raises InvalidRequestError for an invalid name.
    """
    for role in filter(None, (app, reader)):
        if not _NAME.fullmatch(role):
            raise InvalidRequestError(
                f"{role!r} is not a valid role name: use lower-case letters, digits and _"
            )
    statements = [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM "{app}"',
        f'GRANT USAGE ON SCHEMA public TO "{app}"',
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{app}"',
        f'GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO "{app}"',
        f'REVOKE UPDATE, DELETE ON {", ".join(APPEND_ONLY)} FROM "{app}"',
        f'REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM "{app}"',
    ]
    if reader:
        tables = ", ".join(f'"{name}"' for name in _READABLE)
        statements += [
            f'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM "{reader}"',
            f'GRANT USAGE ON SCHEMA public TO "{reader}"',
            f'GRANT SELECT ON {tables} TO "{reader}"',
        ]
    return statements


def grant_roles(database: Database, app: str, reader: str = "") -> None:
    """Grant each role the rights that it needs. Raises InvalidRequestError, StoreUnavailable."""
    if database.embedded:
        raise InvalidRequestError("SQLite has no roles: there is nothing to grant")
    with database.transaction() as tx:
        for statement in grant_statements(app, reader):
            tx.sql.execute(text(statement))


def find_excess_rights(database: Database) -> list[str]:
    """Return the rights that our role should not have; empty on SQLite, which has no roles."""
    if database.embedded:
        return []
    with database.reading() as tx:
        row = tx.sql.execute(text(_EXCESS_RIGHTS)).mappings().one()
    return [what for what, granted in row.items() if granted]

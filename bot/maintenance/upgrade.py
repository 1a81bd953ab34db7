"""Upgrade the schema of a database: check, back up, then migrate."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path

from bot.db import migrations
from bot.db.database import Database, StoreUnavailable
from bot.maintenance.copy_database import copy_pages


@dataclass(frozen=True)
class UpgradeResult:
    """What an upgrade did."""

    done: migrations.Upgrade
    backup: Path | None = None
    """The database as it was, in SQLite."""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """What each migration did, by revision."""


def upgrade_database(
    database: Database,
    directory: Path,
    *,
    is_backed_up: bool = False,
    scripts: Traversable | None = None,
) -> UpgradeResult:
    """Bring the schema up to date, after a check and a backup where it has one already.

    Args:
        database: The database; no service may use it.
        directory: Where the backup of a SQLite database goes.
        is_backed_up: Whether a person made a backup, without which PostgreSQL is not upgraded.
        scripts: The directory of the migrations; that of this version if omitted.

    Raises:
        NewerSchemaError: A newer version made the schema.
        StoreUnavailable: The database is damaged, has no backup, or cannot be upgraded.
        OSError: The backup cannot be written.
    """
    missing = migrations.list_missing(database, scripts)
    is_new = len(missing) == len(migrations.list_revisions(scripts))
    if not missing or is_new:
        return UpgradeResult(migrations.upgrade_schema(database, scripts))
    backup = None
    if database.embedded:
        _check_pages(database)
        backup = _save(database, directory / f"keyturn-before-{min(missing)}.db")
    elif not is_backed_up:
        raise StoreUnavailable(
            f"the schema has to be upgraded ({', '.join(missing)}): make a backup with pg_dump "
            "first, then run keyturn db upgrade --backed-up"
        )
    return UpgradeResult(migrations.upgrade_schema(database, scripts), backup, missing)


def _check_pages(database: Database) -> None:
    """Raise StoreUnavailable if SQLite finds damage in its file."""
    with database.reading() as tx:
        found = tx.sql.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise StoreUnavailable(
            f"the database is damaged, and nothing was upgraded ({found}): restore a backup"
        )


def _save(database: Database, file: Path) -> Path:
    """Copy the file of the database; an older copy is of an upgrade that failed, or the same."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    copy_pages(database, part)
    os.replace(part, file)  # noqa: PTH105 - both names are of one directory
    return file

"""The service reads entries again that a start from a snapshot does not read."""

from collections.abc import Callable

import pytest
from sqlalchemy import delete, update

from bot.app import build_verification_part
from bot.audit import change_log, verification
from bot.db import tables
from bot.db.database import Database
from bot.maintenance.background_verification import BackgroundVerification
from tests.bot.rewritten_log import append_entries, drop_triggers, entries_of

_COUNT = 5000


@pytest.fixture
def filled(database: Database) -> Database:
    with database.transaction() as tx:
        verification.open_log(tx)
    append_entries(database, _COUNT - 1)
    drop_triggers(database)
    return database


def _describe_each_call(background: BackgroundVerification, calls: int) -> list[str]:
    described: list[str] = []
    for _ in range(calls):
        background.verify_next_entries()
        described.append(background.describe_progress().split(" %")[0])
    return described


def test_whole_log_is_verified_in_rounds(filled: Database):
    background = BackgroundVerification(filled)
    assert _describe_each_call(background, 4) == ["40", "81", "100", "100"]
    assert background.problem == ""


def _alter_body(database: Database) -> None:
    with database.transaction() as tx:
        tx.sql.execute(
            update(tables.entry).where(tables.entry.c.seq == 3000).values(body='{"step":2}')
        )


def _alter_body_and_hash(database: Database) -> None:
    row = {**vars(entries_of(database)[2999]), "body": '{"step":2}'}
    row["hash"] = change_log.hash_entry([*row.values()])
    with database.transaction() as tx:
        tx.sql.execute(update(tables.entry).where(tables.entry.c.seq == 3000).values(row))


def _remove(database: Database) -> None:
    with database.transaction() as tx:
        tx.sql.execute(delete(tables.entry).where(tables.entry.c.seq == 3000))


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (_alter_body, "entry 3000 was altered"),
        (_alter_body_and_hash, "entries 2817 to 3072 are not those"),
        (_remove, "entry 3000 is missing"),
    ],
)
def test_altered_old_entry_is_found_and_the_rest_is_verified(
    filled: Database, alter: Callable[[Database], None], why: str
):
    alter(filled)
    background = BackgroundVerification(filled)
    assert _describe_each_call(background, 3) == ["40", "81", "100"]
    assert why in background.problem


def test_readiness_says_how_much_is_verified_and_that_an_old_entry_was_altered(filled: Database):
    part = build_verification_part(filled)
    [verify], check = part.duties, part.health_checks["old entries"]
    verify()
    assert (check().message, check().is_broken) == ("40 % verified since the start", False)
    _alter_body(filled)
    verify()
    assert (check().message, check().is_broken) == (
        "one was altered: run keyturn changelog verify",
        True,
    )

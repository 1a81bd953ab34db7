"""Last contacts with hosts, recorded from ordinary queries and commands."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from bot.db import host_contacts
from bot.db.database import Database
from bot.db.host_contacts import ContactRecorder, LastContact
from connectors.command import Query, Shell
from connectors.errors import (
    HostError,
    HostKeyMismatchError,
    LoginError,
    SettingError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
    WeakAlgorithmsError,
)
from tests.bot.databases import create_sqlite_database
from tests.bot.host_contacts import store_contact
from tests.scripted_fleet import ScriptedFleet

_MINUTE = 60_000_000
_LOOK = Query(Shell(("uptime",)), str)


class Watch:
    """A clock that goes on when it is told to, in seconds."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Generator[Database]:
    database = create_sqlite_database(tmp_path / "keyturn.db")
    yield database
    database.close()


def _get_contact(database: Database, host: str) -> LastContact:
    with database.reading() as tx:
        contact = host_contacts.list_contacts(tx).get(host)
    assert contact is not None
    return contact


def test_last_contacts_of_reachable_and_unreachable_hosts_are_stored(database: Database):
    lost = UnreachableError("lb2 does not answer")
    fleet = ScriptedFleet({("lb1", "uptime"): "up", ("lb2", "uptime"): lost})
    kept = ContactRecorder(database)
    fleet.on_contact = kept.record_contact
    fleet.run_query("lb1", _LOOK)
    with pytest.raises(UnreachableError):
        fleet.run_query("lb2", _LOOK)
    kept.write_contacts()
    well, away = _get_contact(database, "lb1"), _get_contact(database, "lb2")
    assert (well.kind, well.answered_at) == ("", well.tried_at)
    assert (away.kind, away.answered_at, away.error) == ("unreachable", None, str(lost))


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (HostKeyMismatchError("another key"), "key"),
        (LoginError("not ours"), "login"),
        (WeakAlgorithmsError("weak"), "weak"),
        (UnknownOutcomeError("cut off"), "interrupted"),
    ],
)
def test_last_contact_stores_the_kind_of_error(database: Database, trouble: HostError, kind: str):
    kept = ContactRecorder(database)
    kept.record_contact("lb1", trouble)
    kept.write_contacts()
    assert _get_contact(database, "lb1").kind == kind


def test_setup_errors_are_not_stored_as_last_contact(database: Database):
    kept = ContactRecorder(database)
    for trouble in (SetupError("no key file"), SettingError("haproxy.socket")):
        kept.record_contact("lb1", trouble)
    kept.write_contacts()
    with database.reading() as tx:
        assert host_contacts.list_contacts(tx) == {}


def test_last_contact_keeps_the_last_answer_and_the_first_failure(database: Database):
    watch = Watch()
    kept = ContactRecorder(database, watch)
    kept.record_contact("lb1", None)
    watch.now += 600
    kept.write_contacts()
    answered = _get_contact(database, "lb1").answered_at
    for ago in (180, 120, 60):
        # Two of them are written down within a millisecond, which the database cannot tell.
        kept.record_contact("lb1", UnreachableError("gone"))
        watch.now += ago
        kept.write_contacts()
    contact = _get_contact(database, "lb1")
    assert contact.answered_at == answered
    assert contact.tried_at - contact.since > _MINUTE
    failed_at, watch.now = contact.tried_at, watch.now + 600
    kept.record_contact("lb1", None)
    kept.write_contacts()
    contact = _get_contact(database, "lb1")
    assert (contact.kind, contact.error, contact.failed_at) == ("", "gone", failed_at)
    kept.record_contact("lb1", LoginError("not ours"))
    kept.record_contact("lb1", None)
    kept.write_contacts()
    assert (_get_contact(database, "lb1").kind, _get_contact(database, "lb1").error) == (
        "",
        "not ours",
    )


def test_last_contact_keeps_a_later_contact_of_another_process(database: Database):
    with database.transaction() as tx:
        now = tx.now
        store_contact(tx, "lb1", tried_at=now, answered_at=None, kind="key", error="another key")
        store_contact(tx, "lb1", tried_at=now - _MINUTE, answered_at=now - _MINUTE)
    contact = _get_contact(database, "lb1")
    assert (contact.tried_at, contact.kind, contact.answered_at) == (now, "key", now - _MINUTE)


def test_last_contact_time_is_the_database_clock_when_written_late(database: Database):
    watch = Watch()
    kept = ContactRecorder(database, watch)
    kept.record_contact("lb1", None)
    watch.now += 600
    kept.write_contacts()
    with database.reading() as tx:
        assert 9 * _MINUTE < tx.now - _get_contact(database, "lb1").tried_at < 11 * _MINUTE


def test_last_contacts_of_100_hosts_are_written_by_two_statements(
    database: Database,
):
    asked: list[str] = []

    def note(*given: Any) -> None:
        asked.append(given[2].split()[0])

    event.listen(database.engine, "before_cursor_execute", note)
    kept = ContactRecorder(database)
    for n in range(100):
        kept.record_contact(f"web{n}", None)
    kept.write_contacts()
    assert [what for what in asked if what != "BEGIN"] == ["SELECT", "INSERT"]
    assert _get_contact(database, "web99").kind == ""

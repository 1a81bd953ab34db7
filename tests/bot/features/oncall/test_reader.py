"""On-call calendars are read over HTTPS or from files by one of several processes."""

import http.server
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.db.database import StoreUnavailable
from bot.features.oncall import rows
from bot.features.oncall.reader import CalendarReader
from bot.features.oncall.rows import CalendarReading
from bot.features.oncall.status import check_calendars, list_calendars
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model.signing import create_signing_key, load_signing_key
from bot.policy import Policy, PolicyDirectory
from tests.bot.clock import MINUTE, Clock
from tests.bot.databases import create_sqlite_database
from tests.bot.duties import add_calendar
from tests.bot.features.oncall.calendars import with_duties
from tests.playground.tls import create_certificate
from tests.policies import write_policy


def build_calendar(address: str = "dora@example.com") -> bytes:
    """Return a calendar with a shift from yesterday until tomorrow."""
    today = datetime.now(UTC).date()
    start, end = (f"{today + timedelta(days=days):%Y%m%d}" for days in (-1, 2))
    return (
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\n"
        f"DTSTART;VALUE=DATE:{start}\r\nDTEND;VALUE=DATE:{end}\r\n"
        f"ATTENDEE:mailto:{address}\r\nSUMMARY:Edge\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    ).encode()


@dataclass
class CalendarServer:
    """An HTTPS server that returns a status, headers and a body for each path."""

    port: int = 0
    answers: dict[str, tuple[int, Mapping[str, str], bytes]] = field(
        default_factory=dict[str, tuple[int, Mapping[str, str], bytes]]
    )
    paths: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[CalendarServer]:
    served = CalendarServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.paths.append(self.path)
            status, headers, body = served.answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    made = create_certificate(tmp_path, names=("localhost",))
    monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.chain)
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    served.port = listening.server_address[1]
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    yield served
    listening.shutdown()
    thread.join()
    listening.server_close()


@dataclass
class Installation:
    """A policy with one calendar, and what reads it."""

    directory: Path
    database: Clock
    policies: PolicyDirectory
    reader: CalendarReader

    def read(self) -> CalendarReading:
        self.reader.read_due_calendars()
        with self.database.reading() as tx:
            return rows.list_readings(tx)["edge"]

    def get_policy(self) -> Policy:
        return self.policies.get_policy()

    @property
    def on_duty(self) -> frozenset[str]:
        return self.get_policy().list_on_duty("edge")


@pytest.fixture
def installation(tmp_path: Path) -> Generator[Installation]:
    directory = tmp_path / "policy"
    files = write_policy(directory)
    add_calendar(directory)
    (directory / "edge.ics").write_bytes(build_calendar())
    key = create_signing_key(tmp_path / "changelog.key")
    create_sqlite_database(tmp_path / "keyturn.db", key).close()
    database = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", key)
    yield Installation(
        directory,
        database,
        with_duties(files, database),
        CalendarReader(files, database, directory),
    )
    database.close()


def set_calendar(installation: Installation, fields: str) -> None:
    file = installation.directory / "oncall.yaml"
    file.write_text(f"oncall:\n  edge: {{{fields}}}\n")


def test_a_calendar_over_https_puts_a_person_on_duty(
    installation: Installation, server: CalendarServer
) -> None:
    server.answers["/feed?token=s3cret"] = (200, {}, build_calendar())
    address = f"webcal://localhost:{server.port}/feed?token=s3cret"
    (installation.directory / "address").write_text(f"{address}\n")
    set_calendar(installation, "address_file: address, private: true")
    assert installation.on_duty == set()
    assert installation.read().error == ""
    assert server.paths == ["/feed?token=s3cret"]
    assert installation.on_duty == {"dora"}
    assert "oncall:edge" in installation.get_policy().organisation.people["dora"].roles


@pytest.mark.parametrize(
    ("status", "location", "body", "says"),
    [
        (500, "", b"", "it returned status 500"),
        (302, "/feed", b"", "it returned status 302"),
        (200, "", b"x" * (4 << 20) + b"y", "its response is longer than 4194304 bytes"),
        (200, "", b"<html>", "is not a valid calendar"),
    ],
)
def test_unreadable_calendar_keeps_its_last_reading_until_it_is_too_old(
    installation: Installation,
    server: CalendarServer,
    status: int,
    location: str,
    body: bytes,
    says: str,
) -> None:
    set_calendar(installation, f"address: '{server.url}/feed', private: true")
    server.answers["/feed"] = (200, {}, build_calendar())
    installation.read()
    server.answers["/feed"] = (status, {"Location": location} if location else {}, body)
    installation.database.ahead = 6 * MINUTE
    assert says in installation.read().error
    assert installation.on_duty == {"dora"}
    with installation.database.reading() as tx:
        shown = list_calendars(tx, installation.get_policy())[0]
    assert (shown.people, says in shown.error) == (["Dora Developer"], True)
    installation.database.ahead = 61 * MINUTE
    assert installation.on_duty == set()
    # The twin: it answers again.
    server.answers["/feed"] = (200, {}, build_calendar())
    assert installation.read().error == ""
    assert installation.on_duty == {"dora"}


def test_calendar_with_a_wrong_certificate_or_internal_address_is_refused(
    installation: Installation, server: CalendarServer
) -> None:
    server.answers["/feed"] = (200, {}, build_calendar())
    set_calendar(installation, f"address: 'https://127.0.0.1:{server.port}/feed', private: true")
    assert "CERTIFICATE_VERIFY_FAILED" in installation.read().error
    set_calendar(installation, f"address: '{server.url}/feed'")
    assert "is not public: set private: true" in installation.read().error
    assert server.paths == []


def test_one_of_two_processes_reads_a_calendar_every_five_minutes(
    installation: Installation, server: CalendarServer
) -> None:
    server.answers["/feed"] = (200, {}, build_calendar())
    set_calendar(installation, f"address: '{server.url}/feed', private: true")
    other = CalendarReader(installation.policies, installation.database, installation.directory)
    for ahead, read in [(0, 1), (4, 1), (6, 2)]:
        installation.database.ahead = ahead * MINUTE
        readers = [
            threading.Thread(target=one.read_due_calendars) for one in (installation.reader, other)
        ]
        for one in readers:
            one.start()
        for one in readers:
            one.join()
        assert len(server.paths) == read


def test_event_that_is_not_understood_is_named_where_people_look(
    installation: Installation,
) -> None:
    text = build_calendar()
    bad = b"BEGIN:VEVENT\r\nUID:2\r\nSTATUS:OFF\r\nDTSTART:20200101T000000Z\r\nDURATION:PT8H\r\n"
    bad += b"RRULE:FREQ=DAILY\r\nSUMMARY:Night\r\nEND:VEVENT\r\nEND:VCALENDAR"
    (installation.directory / "edge.ics").write_bytes(text.replace(b"END:VCALENDAR", bad))
    assert installation.read().error == ""
    policy = installation.get_policy()
    assert (installation.on_duty, policy.count_on_duty("edge")) == ({"dora"}, 0)
    with installation.database.reading() as tx:
        [result] = check_calendars(tx, policy)
    assert result.level == "warning"
    assert result.message == (
        "calendar edge has 1 event that Keyturn does not understand. Such an event puts no one on "
        "duty, and in edge context.oncall is 0 at its time. Correct in the calendar: "
        "“Night (UID 2)”: STATUS:OFF is not known"
    )
    # The twin is understood.
    (installation.directory / "edge.ics").write_bytes(text)
    installation.database.ahead = 6 * MINUTE
    installation.read()
    with installation.database.reading() as tx:
        [result] = check_calendars(tx, installation.get_policy())
    assert result.level == "ok"


def test_calendar_file_that_others_can_write_is_not_used(installation: Installation) -> None:
    assert installation.read().error == ""
    (installation.directory / "edge.ics").chmod(0o666)
    installation.database.ahead = 6 * MINUTE
    assert "because it decides who is on duty" in installation.read().error


def test_forged_calendar_reading_puts_nobody_on_duty(
    installation: Installation,
) -> None:
    installation.read()
    assert installation.on_duty == {"dora"}
    column = tables.oncall_reading.c
    for forged in ({"fetched_at": column.fetched_at + 1}, {"shifts": "[]"}, {"source": "0" * 64}):
        with installation.database.transaction() as tx:
            tx.sql.execute(update(tables.oncall_reading).values(forged))
        assert installation.on_duty == set()
        # It is read again.
        installation.read()
        assert installation.on_duty == {"dora"}


def test_calendar_is_read_again_after_a_rotation_of_the_key(
    installation: Installation, tmp_path: Path
) -> None:
    installation.read()
    assert installation.on_duty == {"dora"}
    rotate_signing_key(installation.database, tmp_path / "changelog.key")
    new = Clock(
        f"sqlite:///{tmp_path / 'keyturn.db'}", load_signing_key(tmp_path / "changelog.key")
    )
    with closing(new), new.transaction() as tx:
        assert rows.list_readings(tx) == {}
        # It is not reported as forged.
        assert tx.signing_key.forged_rows == {}


def test_a_changed_calendar_counts_only_once_it_is_read(installation: Installation) -> None:
    installation.read()
    (installation.directory / "other.ics").write_bytes(build_calendar("x@example.com"))
    set_calendar(installation, "file: other.ics")
    assert installation.on_duty == set()
    assert installation.get_policy().count_on_duty("edge") == 0
    installation.read()
    assert (installation.on_duty, installation.get_policy().count_on_duty("edge")) == (set(), 1)
    (installation.directory / "oncall.yaml").unlink()
    installation.reader.read_due_calendars()
    assert installation.get_policy().calendars == {}


def test_nobody_is_on_duty_while_the_database_cannot_be_read(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnavailable("the database does not answer")

    installation.read()
    assert installation.on_duty == {"dora"}
    with monkeypatch.context() as patch:
        patch.setattr(installation.database, "reading", fail)
        assert installation.on_duty == set()
    assert installation.on_duty == {"dora"}


def test_policy_is_cached_while_the_same_people_are_on_duty(
    installation: Installation,
) -> None:
    installation.read()
    first = installation.get_policy()
    assert installation.get_policy() is first
    (installation.directory / "edge.ics").write_bytes(build_calendar("x@example.com"))
    installation.database.ahead = 6 * MINUTE
    installation.read()
    assert installation.get_policy() is not first

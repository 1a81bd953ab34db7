"""Notices by e-mail: recipients, content and delivery."""

import asyncio
import logging
import ssl
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, cast

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope
from sqlalchemy import select

from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.db import break_glass, delegations, tables
from bot.db.database import Transaction
from bot.features.notices.mail_server import MailServer
from bot.features.notices.sender import NoticeSender
from bot.integrations.safe_http import DeliveryError
from bot.model.run import Run
from bot.model.signing import SigningKey
from bot.model.times import to_datetime
from tests.bot.clock import MINUTE, Clock
from tests.bot.databases import create_sqlite_database
from tests.bot.duties import add_calendar
from tests.bot.harness import Harness, open_harness
from tests.playground.tls import Certified, create_certificate
from tests.toy import SetSwitch

HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass
class Mailbox:
    """A mail server on this machine: what it took, and how it answers."""

    port: int = 0
    taken: list[tuple[str, EmailMessage]] = field(default_factory=list[tuple[str, EmailMessage]])
    answer: str = "250 OK"
    credentials: tuple[bytes, bytes] = (b"keyturn", b"s3cret-of-mail")

    async def handle_DATA(  # noqa: N802 - the server's name for it
        self, _server: object, _session: object, envelope: Envelope
    ) -> str:
        if self.answer.startswith("250"):
            content = cast("bytes", envelope.content)
            message = message_from_bytes(content, policy=default)
            self.taken += [(one, message) for one in envelope.rcpt_tos]
        return self.answer

    def authenticate(
        self, _server: object, _session: object, _envelope: object, _mechanism: str, given: Any
    ) -> AuthResult:
        return AuthResult(success=(given.login, given.password) == self.credentials)

    def list_taken(self) -> list[tuple[str, str]]:
        """Return recipient and subject of each message, and forget them."""
        taken, self.taken = self.taken, []
        return [(recipient, message["Subject"]) for recipient, message in taken]


@pytest.fixture
def mailbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Mailbox]:
    made: Certified = create_certificate(tmp_path, names=("localhost",))
    monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.chain)
    mailbox = Mailbox()
    loop = asyncio.new_event_loop()

    def accept() -> SMTP:
        return SMTP(
            mailbox,
            hostname="localhost",
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=mailbox.authenticate,
            loop=loop,
        )

    listening = loop.run_until_complete(loop.create_server(accept, "127.0.0.1", 0))
    mailbox.port = listening.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield mailbox
    asyncio.run_coroutine_threadsafe(_close(listening), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _close(server: asyncio.Server) -> None:
    """Close in the thread of the loop, and wait until the last connection is closed."""
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@pytest.fixture
def server(mailbox: Mailbox, tmp_path: Path) -> MailServer:
    password = tmp_path / "password"
    password.write_text("s3cret-of-mail\n")
    return MailServer(
        "localhost", mailbox.port, "keyturn@example.com", "starttls", "keyturn", password
    )


def test_email_is_plain_text_and_escapes_header_injection(
    mailbox: Mailbox, server: MailServer
) -> None:
    server.send(
        "dora@example.com", "a\r\nBcc: eve@example.com", "two\n.\nlines ü", message_id="1.dora"
    )
    [(recipient, message)] = mailbox.taken
    assert (recipient, message["To"]) == ("dora@example.com", "dora@example.com")
    assert message["Bcc"] is None
    assert message["Subject"] == r"a\x0d\nBcc: eve@example.com"
    assert (message["From"], message["Message-ID"]) == (
        "Keyturn <keyturn@example.com>",
        "<1.dora@example.com>",
    )
    assert message.get_content_type() == "text/plain"
    assert message.get_content().splitlines() == ["two", ".", "lines ü"]
    for bad in ("dora@example.com\nBcc: eve@example.com", "a, b@example.com"):
        with pytest.raises(DeliveryError) as caught:
            server.send(bad, "a", "b", message_id="1")
        assert caught.value.for_good
    assert len(mailbox.taken) == 1


def test_email_is_not_sent_without_password_or_verified_certificate(
    mailbox: Mailbox, server: MailServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").unlink()
    with pytest.raises(DeliveryError, match="No such file"):
        server.send("dora@example.com", "a", "b", message_id="1")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv(
        "SSL_CERT_FILE", str(create_certificate(other, names=("localhost",)).authority)
    )
    with pytest.raises(DeliveryError, match="CERTIFICATE_VERIFY_FAILED"):
        server.send("dora@example.com", "a", "b", message_id="1")
    assert mailbox.taken == []


@dataclass
class Post:
    harness: Harness
    clock: Clock
    sender: NoticeSender
    mailbox: Mailbox

    def send(self, ahead: int = 0) -> list[tuple[str, str]]:
        self.clock.ahead += ahead
        self.sender.send_due_notices()
        return sorted(self.mailbox.list_taken())

    def request_lamp(self) -> Run:
        return self.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))


@pytest.fixture
def post(tmp_path: Path, mailbox: Mailbox, server: MailServer) -> Generator[Post]:
    key, file = SigningKey.create(), tmp_path / "keyturn.db"
    create_sqlite_database(file, key).close()
    clock = Clock(f"sqlite:///{file}", key)
    with clock.reading() as tx:
        now = to_datetime(tx.now)
    # A Wednesday at noon, so that no digest is due unless a test goes on to Monday.
    noon = now.replace(hour=12, minute=0) + timedelta(days=9 - now.weekday())
    clock.ahead = round((noon - now).total_seconds()) * 1_000_000
    with open_harness(tmp_path, database=clock) as harness:
        add_calendar(harness.policies.path)
        sender = NoticeSender(
            server, harness.policies, clock, base_url="https://keyturn.example.com"
        )
        made = Post(harness, clock, sender, mailbox)
        made.send()
        yield made


def ban(post: Post, person: str = "dora") -> None:
    post.harness.service.ban_person(person, banned_by="stan", reason="left the company")


def test_ban_is_emailed_to_those_who_can_lift_it(post: Post) -> None:
    ban(post)
    expected = [(f"{name}@example.com", "Dora Developer is banned") for name in ("adam", "olga")]
    assert post.send() == expected
    # At once and once: nothing is sent again.
    assert post.send(HOUR) == []


def test_email_that_the_server_rejected_for_now_is_sent_again(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    post.mailbox.answer = "451 try again later"
    ban(post)
    assert post.send() == []
    with post.clock.reading() as tx:
        rows = tx.sql.execute(select(tables.delivery)).all()
    assert sorted((row.subscription, row.attempts) for row in rows) == [
        ("mail:adam", 1),
        ("mail:olga", 1),
    ]
    assert post.send() == []
    post.mailbox.answer = "250 OK"
    assert len(post.send(MINUTE)) == 2
    assert "s3cret-of-mail" not in caplog.text


def test_person_without_an_email_address_does_not_block_other_emails(post: Post) -> None:
    people = post.harness.policies.path / "people.yaml"
    people.write_text(people.read_text().replace("email: adam@example.com, ", ""))
    ban(post)
    assert [one for one, _ in post.send()] == ["olga@example.com"]


def test_delegation_that_ends_soon_is_emailed_once(post: Post) -> None:
    with post.clock.transaction() as tx:
        for days in (5, 1):
            delegations.add_delegation(
                tx,
                delegator="olga",
                delegate="dora",
                area="",
                ends=tx.now + days * DAY,
                reason="x",
            )
    assert post.send(HOUR) == []
    subject = "Delegation of Olga Owner to Dora Developer ends soon"
    notices = [("dora@example.com", subject), ("olga@example.com", subject)]
    assert [one for one in post.send(3 * DAY) if "digest" not in one[1]] == notices
    assert [one for one in post.send(HOUR) if "digest" not in one[1]] == []


def test_schedule_that_lapses_soon_is_emailed_once(post: Post, server: MailServer) -> None:
    run = post.request_lamp()

    def list_ends(tx: Transaction) -> Iterator[EntryDraft]:
        lapses = events.ScheduleLapsesSoon(schedule=1, owner="dora", lapses_at=tx.now + DAY)
        if not change_log.list_entries_of_run(tx, run.id, [lapses.kind]):
            yield EntryDraft(lapses, run=run.id)

    post.sender = NoticeSender(
        server, post.harness.policies, post.clock, base_url="", ends=[list_ends]
    )
    notices = [one for one in post.send(HOUR) if "lapses" in one[1]]
    assert notices == [
        (f"{name}@example.com", "Schedule 1 lapses soon") for name in ("adam", "dora", "olga")
    ]
    assert [one for one in post.send(HOUR) if "lapses" in one[1]] == []


def test_break_glass_is_emailed_to_owners_who_may_view_the_run(post: Post) -> None:
    rules = post.harness.policies.path / "policy.cedar"
    run = post.request_lamp()

    def use_break_glass() -> list[tuple[str, str]]:
        with post.clock.transaction() as tx:
            activated = events.BreakGlassActivated(
                digest=run.digest, reason="all is dark", until=tx.now + HOUR, factor=""
            )
            change_log.append_entry(tx, activated, run=run.id, person="adam")
            break_glass.request_break_glass(tx, run=run.id, person="adam", reason="all is dark")
            break_glass.activate_break_glass(tx, run.id, until=tx.now + HOUR, factor="")
        return post.send()

    # Adam owns the edge too, and is the person.
    subject = "Adam Admin used break-glass: toy set lb1 lamp on"
    assert use_break_glass() == [("olga@example.com", subject)]
    rules.write_text(
        rules.read_text()
        + '\nforbid (principal == Person::"olga", action == Action::"view", resource);\n'
    )
    assert use_break_glass() == []
    with post.clock.reading() as tx:
        assert tx.sql.execute(select(tables.delivery)).all() == []


def test_owners_get_one_email_digest_a_week(post: Post) -> None:
    with post.clock.reading() as tx:
        now = to_datetime(tx.now)
    morning = now.replace(hour=8, minute=0) + timedelta(days=7 - now.weekday())
    # A run of Sunday, which is without a review on Monday.
    post.clock.ahead += round((morning - now).total_seconds()) * 1_000_000 - DAY
    run = post.request_lamp()
    post.harness.service.deny_run(run.id, person="olga", reason="not today")
    with post.clock.transaction() as tx:
        break_glass.record_start_to_review(tx, run=run.id, person="dora", reason="")
    assert post.send() == []
    post.clock.ahead += DAY
    post.sender.send_due_notices()
    digests = dict(post.mailbox.taken)
    assert sorted(digests) == [f"{name}@example.com" for name in ("adam", "olga", "stan")]
    text, other = (
        digests[f"{name}@example.com"].get_content().replace("\r\n", "\n")
        for name in ("adam", "stan")
    )
    assert "  - run 1: Dora Developer ran a change without approval, toy set lb1 lamp on" in text
    assert text.endswith("\n\nhttps://keyturn.example.com/\n")
    assert "the edge" not in other
    assert "run 1" not in other
    post.mailbox.taken.clear()
    assert post.send(HOUR) == []


def test_two_processes_send_each_email_once(post: Post, server: MailServer) -> None:
    ban(post)
    NoticeSender(server, post.harness.policies, post.clock, base_url="").send_due_notices()
    assert len(post.send()) == 2
    with post.clock.reading() as tx:
        assert tx.sql.execute(select(tables.delivery)).all() == []

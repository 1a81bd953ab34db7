"""Thirty days of history for the demo, made by the service on the demo's own hosts.

Only the clock is simulated. The checks read what the demo itself runs, and not how the machine
below it is: its load and its uptime are no matter of the demo.
"""

import sqlite3
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import event, update

from bot.audit import verification
from bot.db import migrations, outbox, runs, tables
from bot.db.database import Database, Transaction
from bot.db.host_contacts import ContactRecorder
from bot.features import load_hooks
from bot.model import request_form, signing
from bot.model.run import RequestOrigin, RequestTerms, State
from bot.model.schedule import parse_timing
from bot.policy import PolicyDirectory
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import AnyRunbook
from tests.drift_keys import read_due_keys

AGENT = "EvilBot/2"
_DAYS = 30
_DAY = 86_400 * 1_000_000
_HOUR = 3_600 * 1_000_000
# What is requested from day to day, and why. Olga approves the changes, and denies each fifth.
_REQUESTS = (
    ("dora", "abusers tables lb1", "which tables does the new configuration have?"),
    ("dora", "abusers mark lb1 203.0.113.{n}", "tries passwords, ticket {ticket}"),
    ("stan", "hidepid show nas1", "before the audit of the storage servers"),
    ("dora", "abusers clear lb1 203.0.113.{n}", "a customer's office, ticket {ticket}"),
    ("olga", "abusers show lb1", "a customer cannot reach the shop, ticket {ticket}"),
    ("adam", "hidepid show web1", "before the audit of the web servers"),
)
_APPROVALS = (
    "seen in the access log",
    "known customer",
    "agreed with the shop",
    "as in the ticket",
)
_DENIAL = "not before the shop has agreed"


class _PastDatabase(Database):
    """A database with a clock that is set by hand."""

    now = 0

    def read_clock(self, connection: object) -> int:  # noqa: ARG002 - as the database calls it
        self.now += 1000
        return self.now


@dataclass
class _Queue:
    """A dispatcher that starts nothing: the story advances each run itself."""

    contacts: ContactRecorder
    runs: list[int] = field(default_factory=list[int])

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:  # noqa: ARG002
        tx.after_commit(lambda: self.runs.append(run_id))

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: Transaction) -> tuple[int, ...]:  # noqa: ARG002
        return ()


def record_history(directory: Path, *, now: int) -> None:
    """Fill the database below *directory*.

    Args:
        now: When the history ends, in microseconds since 1970.
    """
    data = directory / "var"
    data.mkdir(mode=0o700)
    key = signing.load_signing_key(data / "changelog.key")
    database = _PastDatabase(f"sqlite:///{data / 'keyturn.db'}", key)
    # A demo that is interrupted begins again: its past need not survive a power failure.
    event.listen(database.engine, "checkout", _skip_flushes)
    database.now = now - _DAYS * _DAY
    migrations.upgrade_schema(database)
    with database.transaction() as tx:
        verification.open_log(tx)
    policies = PolicyDirectory(directory / "policy")
    fleet = Fleet(policies.get_policy().inventory, SshPool(directory / "policy"))
    contacts = ContactRecorder(database)
    fleet.on_contact = contacts.record_contact
    queue = _Queue(contacts)
    hooks = load_hooks()
    known = PolicyWithFacts(policies, database, hooks.policy_facts)
    service = KeyturnService(WorkflowContext(database, known, fleet, queue, hooks=hooks))
    try:
        _play_days(service, database, queue)
        _block_agent(service, database, queue)
        database.now = now - _HOUR // 30
        _read_keys(service, database)
        _mark_as_announced(database)
    finally:
        fleet.close()
        database.close()


def add_freeze(policy: Path) -> None:
    """Add a freeze of the web servers for two days from tomorrow."""
    begin, end = (datetime.now(UTC) + timedelta(days=days) for days in (1, 3))
    (policy / "freezes.yaml").write_text(
        "freezes:\n  - name: sale weekend\n    areas: [web]\n"
        f'    from: "{begin:%Y-%m-%d} 00:00"\n    until: "{end:%Y-%m-%d} 00:00"\n'
    )


def request_open_runs(service: KeyturnService) -> None:
    """Request what the people of the demo can decide, a plan, and a schedule."""
    web = RequestOrigin("web")
    # Stan has something to approve, too.
    service.delegations.create_delegation(
        delegator="adam",
        delegate="stan",
        ends_at=round(time.time() * 1_000_000) + 3 * _DAY,
        area="edge",
        reason="Adam is at a conference",
        source="web",
    )
    for person, words, reason, plan_only in (
        ("dora", "abusers mark lb2 203.0.113.77", "tries passwords, ticket 4790", False),
        ("olga", "abusers mark lb2 203.0.113.78", "scrapes the price list", False),
        ("adam", "abusers mark lb2 203.0.113.79", "floods the search of the shop", False),
        ("dora", "abusers mark lb2 203.0.113.80", "the same office as 203.0.113.77", True),
    ):
        request = _parse(words)
        service.request_run(request, RequestTerms(person, web, reason, plan_only=plan_only))
    service.request_on_hosts(
        [_parse("hidepid show nas1")],
        RequestTerms(
            "stan",
            web,
            reason="the audit asks for it each night",
            timing=parse_timing("nightly audit", {"cron": "0 3 * * *"}, zone="UTC"),
        ),
        host_pattern="",
    )


def _parse(words: str) -> AnyRunbook:
    runbook, values = request_form.find_runbook(words.split())
    return request_form.parse_request(runbook, values)


def _skip_flushes(connection: sqlite3.Connection, *_: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


def _play_days(service: KeyturnService, database: _PastDatabase, queue: _Queue) -> None:
    for day in range(_DAYS):
        person, words, why = _REQUESTS[day % len(_REQUESTS)]
        request = _parse(words.format(n=day // len(_REQUESTS) + 50))
        origin, reason = RequestOrigin("web"), why.format(ticket=4711 + day)
        run = service.request_run(request, RequestTerms(person, origin, reason)).id
        _advance(service, queue)
        with database.reading() as tx:
            planned = runs.get_run(tx, run)
        database.now += _HOUR // 4
        if planned.state is State.PENDING and day % 5:
            reason = _APPROVALS[day % len(_APPROVALS)]
            service.approve_run(run, person="olga", digest=planned.digest, reason=reason)
            _advance(service, queue)
        elif planned.state is State.PENDING:
            service.deny_run(run, person="olga", reason=_DENIAL)
        database.now += _DAY - _HOUR // 2


def _block_agent(service: KeyturnService, database: _PastDatabase, queue: _Queue) -> None:
    """Block an agent on web1, and read an hour later that it is still blocked."""
    request = _parse(f"agents block web1 {AGENT}")
    origin, reason = RequestOrigin("web"), f"{AGENT} takes the whole catalogue each night"
    run = service.request_run(request, RequestTerms("dora", origin, reason))
    _advance(service, queue)
    with database.reading() as tx:
        digest = runs.get_run(tx, run.id).digest
    service.approve_run(run.id, person="olga", digest=digest, reason="it ignores robots.txt")
    _advance(service, queue)
    database.now += _HOUR
    read_due_keys(service)


def _advance(service: KeyturnService, queue: _Queue) -> None:
    while queue.runs:
        service.advancer.advance_run(queue.runs.pop(0))
    queue.contacts.write_contacts()


def _read_keys(service: KeyturnService, database: Database) -> None:
    """Read the watched values now and not before tomorrow, whatever the time of day is.

    A reading that is due during the demo would keep its people from another within the minute.
    """
    with database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=tx.now))
    read_due_keys(service)
    with database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=tx.now + _DAY))


def _mark_as_announced(database: Database) -> None:
    """Keep the chat of the demo to what happens in it."""
    with database.transaction() as tx:
        while updates := outbox.list_pending_updates(tx):
            for update in updates:
                outbox.mark_delivered(tx, update)

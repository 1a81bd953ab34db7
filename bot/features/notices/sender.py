"""Notices by e-mail: which entries of the change log concern whom, and what they say.

A notice is a delivery for one person, created from an entry that was committed with the state.
What ends soon, and the weekly digest, get an entry of their own.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from bot.audit import change_log, events
from bot.audit.change_log import Entry, EntryDraft
from bot.db import break_glass, delegations, runs
from bot.db.break_glass import BreakGlass
from bot.db.database import Database, Transaction
from bot.db.runs import NoSuchRun
from bot.feature import ServerContext
from bot.features.notices.mail_server import MailServer
from bot.integrations import webhook_queue
from bot.integrations.safe_http import DeliveryError
from bot.integrations.webhook_queue import PendingDelivery
from bot.model.times import format_deadline, to_datetime, to_microseconds
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.queries.digest import BuildDigest, ListEnds, is_near_end

log = logging.getLogger(__name__)

# Deliveries of this prefix are e-mails to the person whose id follows.
PREFIX = "mail:"
_ABOUT_RUNS = (events.BreakGlassActivated, events.ReviewRequired, events.ScheduleLapsesSoon)
_CLAIM_SECONDS = 120.0
# How long before the end people get a notice, and how often Keyturn looks for that.
_DELEGATION_DAYS, _CHECK_MICROSECONDS = 2, 600_000_000
_DIGEST_HOUR = 7


def build_notice_sender(context: ServerContext) -> "NoticeSender":
    """Return what sends notices through the mail server of the settings."""
    settings = context.settings
    host, port = settings.mail_address
    server = MailServer(
        host,
        port,
        settings.mail_from,
        settings.mail_encryption,
        settings.mail_user,
        settings.mail_password_file,
    )
    return NoticeSender(
        server,
        context.policies,
        context.database,
        base_url=settings.address,
        digest=context.digest,
        ends=context.ends,
    )


class NoticeSender:
    """Sends notices by e-mail.

    base_url: the address of the pages. digest: the sections that features add to the digest.
    ends: what they have that ends soon.
    """

    def __init__(
        self,
        server: MailServer,
        policies: PolicySource,
        database: Database,
        *,
        base_url: str,
        digest: Sequence[BuildDigest] = (),
        ends: Sequence[ListEnds] = (),
    ) -> None:
        self._server, self._policies, self._database = server, policies, database
        self._base_url, self._next_check, self._digest = base_url, 0, digest
        self._ends = ends

    def send_due_notices(self) -> None:
        """Create the notices of new entries, and send what is due."""
        try:
            policy = self._policies.get_policy()
        except NoPolicyError:
            return
        with self._database.reading() as tx:
            is_new = webhook_queue.is_behind(tx, PREFIX)
            if tx.now >= self._next_check:
                self._next_check = tx.now + _CHECK_MICROSECONDS
                is_new = any(True for _ in _iterate_missing_entries(tx, self._ends)) or is_new
        if is_new:
            self._create_notices(policy)
        with self._database.reading() as tx:
            due = webhook_queue.list_due_notices(tx, PREFIX)
        for item in due:
            self._deliver(policy, item)

    def _create_notices(self, policy: Policy) -> None:
        with self._database.transaction() as tx:
            # Only one of several processes writes the entries.
            change_log.lock_log(tx)
            change_log.append_entries(tx, [*_iterate_missing_entries(tx, self._ends)])
            webhook_queue.read_new_notices(
                tx, PREFIX, lambda entry: _list_recipients(tx, policy, entry)
            )

    def _deliver(self, policy: Policy, item: PendingDelivery) -> None:
        with self._database.transaction() as tx:
            if not webhook_queue.claim_delivery(tx, item, seconds=_CLAIM_SECONDS):
                return
        error, for_good = "", False
        try:
            self._send(policy, item)
        except DeliveryError as failure:
            error, for_good = str(failure), failure.for_good
            log.warning("%s did not receive entry %d: %s", item.subscription, item.seq, error)
        with self._database.transaction() as tx:
            if error:
                webhook_queue.mark_failed(tx, item, error, for_good=for_good)
            else:
                webhook_queue.mark_delivered(tx, item)

    def _send(self, policy: Policy, item: PendingDelivery) -> None:
        """Send a notice to a person who is still in the policy. Raises DeliveryError."""
        person = policy.find_person(item.subscription.removeprefix(PREFIX))
        if person is None or person.email is None:
            return
        with self._database.reading(policy.get_view_rights(person.id)) as tx:
            [entry] = change_log.list_entries_after(tx, item.seq - 1, limit=1)
            try:
                subject, text, page = self._render_notice(tx, policy, person.id, entry)
            except NoSuchRun:
                # The person may not view it.
                return
        self._server.send(
            person.email,
            subject,
            f"{text}\n\n{self._base_url}{page}\n",
            message_id=f"{entry.seq}.{person.id}.{entry.hash[:16]}",
        )

    def _render_notice(
        self, tx: Transaction, policy: Policy, person: str, entry: Entry
    ) -> tuple[str, str, str]:
        """Return subject, text and page of a notice. Raises NoSuchRun."""
        if isinstance(entry.event, events.DigestDue):
            text = render_digest(tx, policy, person, self._digest)
            return "Keyturn: weekly digest", text, "/"
        return _render_notice(tx, policy, entry)


def _iterate_missing_entries(tx: Transaction, ends: Sequence[ListEnds]) -> Iterator[EntryDraft]:
    """Yield entries about what ends soon and has none yet, and of the digest."""
    for one in delegations.list_active_delegations(tx):
        if is_near_end(tx.now, one.created_at, one.ends_at, days=_DELEGATION_DAYS) and not (
            change_log.list_entries_naming(
                tx, events.DelegationEndsSoon.kind, "delegation", one.id
            )
        ):
            yield EntryDraft(
                events.DelegationEndsSoon(
                    delegation=one.id,
                    delegator=one.delegator,
                    delegate=one.delegate,
                    ends_at=one.ends_at,
                )
            )
    for list_ends in ends:
        yield from list_ends(tx)
    now = to_datetime(tx.now)
    monday = now.replace(hour=_DIGEST_HOUR, minute=0, second=0, microsecond=0) - timedelta(
        days=now.weekday()
    )
    last = change_log.get_last_entry_of_kind(tx, events.DigestDue.kind)
    if now >= monday and (last is None or last.at < to_microseconds(monday)):
        yield EntryDraft(events.DigestDue())


def _list_recipients(tx: Transaction, policy: Policy, entry: Entry) -> Sequence[str]:
    """Return the people with an address whom an entry concerns."""
    people = policy.organisation.people
    concerned = dict.fromkeys(_iterate_concerned(tx, policy, entry))
    return [one for one in concerned if one in people and people[one].email is not None]


def _iterate_concerned(tx: Transaction, policy: Policy, entry: Entry) -> Iterator[str]:
    areas, event = policy.organisation.areas, entry.event
    if isinstance(event, _ABOUT_RUNS) and entry.run is not None:
        if isinstance(event, events.ScheduleLapsesSoon):
            yield event.owner
        owned = [areas[name] for name in runs.get_run(tx, entry.run).areas if name in areas]
        yield from (owner for area in owned for owner in area.owners if owner != entry.person)
    elif isinstance(event, events.Banned):
        for person in policy.organisation.people:
            if policy.get_order_ruling(person, "resume", is_own=person == entry.person).allowed:
                yield person
    elif isinstance(event, events.DelegationEndsSoon):
        yield from (event.delegator, event.delegate)
    elif isinstance(event, events.DigestDue):
        yield from (owner for area in areas.values() for owner in area.owners)


def _render_notice(tx: Transaction, policy: Policy, entry: Entry) -> tuple[str, str, str]:
    """Return subject, text and page of a notice. Raises NoSuchRun."""
    event, get_name = entry.event, policy.get_person_name
    if isinstance(event, events.Banned):
        who = get_name(event.banned_person)
        text = f"{get_name(entry.person)} banned {who}: {event.reason}\nYou can lift the ban."
        return f"{who} is banned", text, "/bans"
    if isinstance(event, events.DelegationEndsSoon):
        delegate, delegator = get_name(event.delegate), get_name(event.delegator)
        until = format_deadline(event.ends_at)
        text = f"{delegate} decides on behalf of {delegator} until {until}."
        return f"Delegation of {delegator} to {delegate} ends soon", text, "/access"
    if entry.run is None:
        raise NoSuchRun(0)
    run = runs.get_run(tx, entry.run)
    if isinstance(event, events.ScheduleLapsesSoon):
        number, until = event.schedule, format_deadline(event.lapses_at)
        text = f"The approval of schedule {number} ends {until}: {run.title}\n"
        text += "To go on, request the schedule again."
        return f"Schedule {number} lapses soon", text, f"/schedules/{number}"
    used = break_glass.get_break_glass(tx, run.id)
    what = f"{get_name(entry.person)} {used.deed if used else 'needs a review'}: {run.title}"
    lines = [what]
    if used is not None:
        lines += _describe_review(used, get_name)
    return what, "\n".join(lines), f"/runs/{run.id}"


def _describe_review(used: BreakGlass, get_name: Callable[[str], str]) -> Iterator[str]:
    """Yield the reason of a run without approval, and how it stands with its review."""
    if used.reason:
        yield used.reason
    if used.review_due is not None:
        yield f"Another person must review it by {format_deadline(used.review_due)}."
    else:
        yield f"Reviewed by {get_name(used.reviewer)}: {used.review}"


_MAX_LINES = 10


def render_digest(
    tx: Transaction, policy: Policy, person: str, added: Sequence[BuildDigest] = ()
) -> str:
    """Return the digest of an owner's areas, from what this transaction may view.

    added: of the features.
    """
    owned = {area.name for area in policy.organisation.areas.values() if person in area.owners}
    sections = [
        ("Needs a review by another person", [*_iterate_reviews(tx, policy, owned)]),
        *((one.title, one.lines) for build in added for one in build(tx, policy, owned)),
    ]
    return "\n\n".join(_render_section(title, lines) for title, lines in sections)


def _render_section(title: str, lines: Sequence[str]) -> str:
    more = len(lines) - _MAX_LINES
    shown = [*lines[:_MAX_LINES], *([f"and {more} more"] if more > 0 else [])]
    return "\n".join([f"{title}:", *(f"  - {line}" for line in shown or ["none"])])


def _iterate_reviews(tx: Transaction, policy: Policy, owned: set[str]) -> Iterator[str]:
    for one in break_glass.list_unreviewed(tx):
        run = runs.get_run(tx, one.run)
        if owned & {*run.areas}:
            yield f"run {run.id}: {policy.get_person_name(one.person)} {one.deed}, {run.title}"

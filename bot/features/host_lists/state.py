"""The lists of hosts, by the change log: who proposed, confirmed and ended each.

There is no table: the signed entries hold each list, and say who confirmed which digest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.audit.event_type import UnknownEvent
from bot.audit.inclusion import list_vouched_entries
from bot.db.database import Transaction
from bot.features.host_lists.changes import (
    HostChange,
    compute_digest,
    count_actions,
    decode_changes,
)
from bot.model.times import DAY
from bot.policy import Policy
from bot.queries.second_factor import has_any_valid_factor
from connectors.errors import DomainError

REQUIRED_PEOPLE = 2
LIFETIME = 14 * DAY
"""After which an open list has expired, in microseconds."""
_SHOWN = 30 * DAY
_KINDS = (
    events.HostListProposed,
    events.HostListConfirmed,
    events.HostListWithdrawn,
    events.HostListWritten,
)
ListState = Literal["open", "confirmed", "written", "withdrawn", "expired"]


class NoSuchHostListError(DomainError):
    """No list has this number, or the person may not see it."""

    code, status = "not-found", 404

    def __init__(self, number: int) -> None:
        super().__init__(
            f"no list of hosts {number} that concerns you: `keyturn host-list list` lists them"
        )


@dataclass(frozen=True)
class HostList:
    """A list of hosts to add, change or remove."""

    number: int
    """The number of its entry in the log."""
    proposed_at: int
    """Microseconds since 1970."""
    proposed_by: str
    """A person; "" for a source."""
    source: str
    digest: str
    areas: Sequence[str]
    changes: Sequence[HostChange]
    confirmed_by: Mapping[str, str]
    """In their order, each with the digest of the second factor that they entered, or ""."""
    state: ListState
    ended_by: str = ""
    reason: str = ""

    @property
    def people(self) -> Sequence[str]:
        """The people who count: who proposed it, and who confirmed it."""
        return [*dict.fromkeys(one for one in (self.proposed_by, *self.confirmed_by) if one)]

    @property
    def missing(self) -> int:
        """How many people still have to confirm it."""
        return max(0, REQUIRED_PEOPLE - len(self.people))

    @property
    def summary(self) -> str:
        """Such as `300 added, 1 removed`."""
        return count_actions(self.changes)

    def is_viewable(self, policy: Policy, person: str, *, views_all: bool) -> bool:
        """Return whether a person may see it."""
        return views_all or person in self.people or not find_refusal(policy, self, person)


def find_refusal(policy: Policy, one: HostList, person: str) -> str:
    """Return why a person may not confirm a list; "" for an owner of all of its areas."""
    known = policy.organisation.areas
    others = [name for name in one.areas if name not in known or person not in known[name].owners]
    if policy.find_person(person) is None:
        return f"{person} is not in the policy"
    if others:
        titles = policy.join_area_titles([name for name in others if name in known])
        return (
            f"You cannot confirm it: only people who own all of its areas can, and you do not own "
            f"{titles or ', '.join(others)}"
        )
    return ""


def needs_factor(tx: Transaction, policy: Policy, person: str) -> bool:
    """Return whether a person confirms lists with their second factor.

    A list lets Keyturn log in to hundreds of hosts. So everyone does where a rule of the policy
    requires a second factor for anything, and a person who has one does everywhere.
    """
    return policy.can_require_second_factor or has_any_valid_factor(tx, policy, person)


def read_lists(tx: Transaction) -> Sequence[HostList]:
    """Return the lists of the last 30 days, the newest first."""
    vouched = _read_entries(tx)
    about: dict[int, list[Entry]] = {}
    for entry in vouched:
        if isinstance(number := entry.event.get_fact("list"), int):
            about.setdefault(number, []).append(entry)
    return [
        _build_list(entry, event, changes, about.get(entry.seq, ()), tx.now)
        for entry in reversed(vouched)
        if isinstance(event := entry.event, events.HostListProposed)
        and (changes := _read_changes(event)) is not None
    ]


def list_unreadable(tx: Transaction) -> Sequence[int]:
    """Return the numbers of the entries of these days that are damaged, or not of their digest."""
    return [
        entry.seq
        for entry in _read_entries(tx)
        if entry.is_damaged
        or (
            isinstance(entry.event, events.HostListProposed) and _read_changes(entry.event) is None
        )
    ]


def _read_entries(tx: Transaction) -> Sequence[Entry]:
    since = tx.now - _SHOWN
    entries = [
        entry for kind in _KINDS for entry in change_log.list_entries_since(tx, kind.kind, since)
    ]
    return sorted(list_vouched_entries(tx, entries), key=lambda entry: entry.seq)


def _read_changes(event: events.HostListProposed) -> Sequence[HostChange] | None:
    """Return the changes of a list; None if its digest is not theirs."""
    changes = decode_changes(event.before, event.after)
    return changes if compute_digest(event.source, changes) == event.digest else None


def get_list(tx: Transaction, number: int) -> HostList:
    """Return a list. Raises NoSuchHostListError."""
    found = next((one for one in read_lists(tx) if one.number == number), None)
    if found is None:
        raise NoSuchHostListError(number)
    return found


def _build_list(
    entry: Entry,
    event: events.HostListProposed,
    changes: Sequence[HostChange],
    later: Sequence[Entry],
    now: int,
) -> HostList:
    confirmed: dict[str, str] = {}
    state: ListState = "open"
    ended_by, reason = "", ""
    for one in later:
        match one.event:
            case events.HostListConfirmed(digest=event.digest) if state == "open":
                confirmed[one.person] = one.event.factor
            case events.HostListWithdrawn(digest=event.digest) if state == "open":
                state, ended_by, reason = "withdrawn", one.person, one.event.reason
            case events.HostListWritten(digest=event.digest):
                state = "written"
            case UnknownEvent(kind=events.HostListWithdrawn.kind) if state == "open":
                # It revokes, though this version does not know the rest of its facts.
                state, ended_by = "withdrawn", one.person
            case _:
                pass
    person = "" if event.source else entry.person
    found = HostList(
        entry.seq,
        entry.at,
        person,
        event.source,
        event.digest,
        event.areas,
        changes,
        confirmed,
        state,
        ended_by,
        reason,
    )
    if state == "open" and not found.missing:
        return replace(found, state="confirmed")
    if state == "open" and now > entry.at + LIFETIME:
        return replace(found, state="expired")
    return found

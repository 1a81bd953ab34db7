"""What people do about lists of hosts: propose, confirm and withdraw them."""

import hmac
from collections.abc import Sequence

from bot.audit import change_log, events, refusals
from bot.db import view_conditions
from bot.db.database import Transaction
from bot.features.host_lists.changes import (
    HostChange,
    HostListFile,
    compute_changes,
    compute_digest,
    encode_changes,
    find_stale,
    list_areas,
)
from bot.features.host_lists.state import (
    HostList,
    NoSuchHostListError,
    find_refusal,
    get_list,
    list_unreadable,
    needs_factor,
    read_lists,
)
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.text import join_names
from bot.policy import Policy
from bot.queries.second_factor import get_shown_factor
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason

_MIN_DIGEST = 10
_MAX_OPEN = 20
"""Lists that one person has proposed and that are open."""


class HostListActions:
    """What people do about lists. Methods raise NotAllowed, InvalidRequestError and TooLate."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def list_viewable(self, person: str) -> Sequence[HostList]:
        """Return the lists that a person may see, the newest first."""
        policy = self._context.policies.get_policy()
        with self._context.database.reading() as tx:
            return [
                one
                for one in read_lists(tx)
                if one.is_viewable(policy, person, views_all=self._views_all(policy, person))
            ]

    def list_unreadable(self) -> Sequence[int]:
        """Return the numbers of the entries about lists that cannot be read."""
        with self._context.database.reading() as tx:
            return list_unreadable(tx)

    def get_viewable(self, number: int, person: str) -> HostList:
        """Return a list that a person may see. Raises NoSuchHostListError."""
        policy = self._context.policies.get_policy()
        with self._context.database.reading() as tx:
            found = get_list(tx, number)
        if not found.is_viewable(policy, person, views_all=self._views_all(policy, person)):
            raise NoSuchHostListError(number)
        return found

    def propose(self, listed: HostListFile, *, person: str) -> HostList:
        """Propose a list. This person counts as the first of the two."""
        policy = self._context.policies.get_policy()
        if policy.find_person(person) is None:
            raise NotAllowed(f"{person} is not in the policy")
        if named := sorted(name for name, one in listed.hosts.items() if one.source is not None):
            raise InvalidRequestError(
                f"{join_names(named)}: only a source of hosts sets `source`: remove it"
            )
        changes = compute_changes(policy, listed)
        with self._context.database.transaction() as tx:
            change_log.lock_log(tx)
            mine = [
                one for one in read_lists(tx) if one.proposed_by == person and one.state == "open"
            ]
            digest = compute_digest("", changes)
            if same := next((one for one in mine if one.digest == digest), None):
                return same
            if len(mine) >= _MAX_OPEN:
                raise InvalidRequestError(
                    f"{_MAX_OPEN} lists of yours are open: withdraw one before you propose more"
                )
            number = append_proposal(tx, policy, changes, source="", person=person)
            return get_list(tx, number)

    def needs_factor(self, person: str) -> bool:
        """Return whether a person confirms lists with their second factor."""
        with self._context.database.reading() as tx:
            return needs_factor(tx, self._context.policies.get_policy(), person)

    def confirm(self, number: int, *, person: str, digest: str, session: str = "") -> HostList:
        """Confirm exactly the list that was shown.

        digest: of the list that the person read; at least its first ten digits. session: the web
        session, in which a second factor may have been entered.

        Raises StepUpRequired, too.
        """
        policy = self._context.policies.get_policy()
        self._check_owner(policy, self.get_viewable(number, person), person)
        with self._context.database.transaction() as tx:
            change_log.lock_log(tx)
            found = get_list(tx, number)
            if found.state != "open":
                raise TooLate(f"list {number} is {found.state} already")
            _check_digest(found, digest)
            if person in found.people:
                deed = "proposed" if person == found.proposed_by else "confirmed"
                raise NotAllowed(f"you {deed} list {number}: another person has to confirm it")
            if stale := find_stale(policy, found.changes, found.areas):
                raise TooLate(
                    f"{_name_some(stale)} changed in the inventory since list {number} was "
                    "proposed: withdraw it and propose it again"
                )
            factor = get_shown_factor(tx, policy, person=person, session=session)
            if not factor and needs_factor(tx, policy, person):
                raise StepUpRequired(
                    f"confirming list {number} requires your second factor, which you can enter "
                    f"only on the web: confirm it on its page, /host-lists/{number}"
                )
            confirmed = events.HostListConfirmed(list=number, digest=found.digest, factor=factor)
            change_log.append_entry(tx, confirmed, person=person)
            return get_list(tx, number)

    def withdraw(self, number: int, *, person: str, reason: str) -> HostList:
        """End a list that is not written: one who proposed it, or may confirm it."""
        policy = self._context.policies.get_policy()
        before = self.get_viewable(number, person)
        if person != before.proposed_by:
            self._check_owner(policy, before, person)
        with self._context.database.transaction() as tx:
            change_log.lock_log(tx)
            found = get_list(tx, number)
            if found.state not in {"open", "confirmed"}:
                raise TooLate(f"list {number} is {found.state} already")
            withdrawn = events.HostListWithdrawn(
                list=number, digest=found.digest, reason=shorten_reason(reason)
            )
            change_log.append_entry(tx, withdrawn, person=person)
            return get_list(tx, number)

    def _check_owner(self, policy: Policy, one: HostList, person: str) -> None:
        """Log a refusal, and raise NotAllowed with it."""
        refusal = find_refusal(policy, one, person)
        if not refusal:
            return
        with self._context.database.transaction() as tx:
            refusals.log_person_refusal(tx, events.HostListRefused(reason=refusal), person=person)
        raise NotAllowed(refusal)

    def _views_all(self, policy: Policy, person: str) -> bool:
        with self._context.database.reading(policy.get_view_rights(person)) as tx:
            return view_conditions.can_view_everything(tx)


def append_proposal(
    tx: Transaction, policy: Policy, changes: Sequence[HostChange], *, source: str, person: str
) -> int:
    """Append the entry of a new list, and return its number."""
    proposed = events.HostListProposed(
        digest=compute_digest(source, changes),
        areas=tuple(list_areas(policy, changes)),
        **encode_changes(changes),
        source=source,
    )
    return change_log.append_entry(tx, proposed, person=person).seq


def _check_digest(one: HostList, digest: str) -> None:
    typed = digest.lower()
    if len(typed) < _MIN_DIGEST or not hmac.compare_digest(
        one.digest[: len(typed)].encode(), typed.encode()
    ):
        raise TooLate(
            f"list {one.number} is not the one that you read: show it again, and confirm the "
            "digest that is shown then"
        )


def _name_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}" if more else join_names(names)

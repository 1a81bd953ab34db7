"""What an identity provider may do: add, change and remove accounts and groups.

Each change is in one transaction with its entries of the change log. It gives people nothing but
the roles that the policy maps their groups to.
"""

import re
import secrets
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

from bot.audit import events
from bot.audit.change_log import EntryDraft
from bot.audit.event_type import Event
from bot.db.database import Transaction
from bot.features.scim import rows
from bot.features.scim.departure import (
    LeaversDuty,
    end_rights,
    record_change,
    take_back_approvals,
)
from bot.features.scim.rows import GroupRow, UserRow
from bot.model.errors import InvalidRequestError
from bot.model.plain_text import check_line
from bot.policy import Organisation
from bot.queries.banned_people import PolicyWithoutBanned
from bot.workflow.context import WorkflowContext
from connectors.errors import DomainError
from connectors.visible_text import quote_text

MAX_USERS, MAX_GROUPS = 10_000, 1_000
_MAX_NAME, _MAX_TEXT, _MAX_EMAIL = 120, 255, 254
_PLAIN = re.compile(r"[!-~]( ?[!-~])*", re.ASCII)
_EMAIL = re.compile(r"[!-;=?A-~]+@[!-;=?A-~]+", re.ASCII)
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
# Long enough that no provider makes an id that a policy file names.
_SUFFIX_LENGTH, _MAX_SLUG = 8, 40
Result = TypeVar("Result")


class TakenError(DomainError):
    """Another account or group has this value."""

    code, status = "taken", 409


class FullError(DomainError):
    """There are as many accounts or groups as there may be."""

    code, status = "too-many", 403


@dataclass(frozen=True)
class Account:
    """What a provider says of one account."""

    user_name: str
    external_id: str
    name: str
    email: str
    """"" for none that Keyturn can use."""
    is_active: bool
    document: Mapping[str, Any]
    """What it sent, by the names of SCIM."""


def check_account(
    *,
    user_name: str,
    external_id: str,
    names: Sequence[str],
    email: str,
    is_active: bool,
    document: Mapping[str, Any],
) -> Account:
    """Return an account with values that cannot be mistaken for others.

    names: of which the first that is not empty is shown. Raises InvalidRequestError.
    """
    for label, text in (("userName", user_name), ("externalId", external_id)):
        if (text or label == "userName") and not (
            len(text) <= _MAX_TEXT and _PLAIN.fullmatch(text)
        ):
            raise InvalidRequestError(
                f"{label} {quote_text(text[:60])} must be 1 to {_MAX_TEXT} printable ASCII "
                "characters, so that no two look alike: map another attribute to it"
            )
    name = next((one for one in names if one.strip()), user_name)
    # So that an address that is written otherwise is found to be another person's.
    email = unicodedata.normalize("NFKC", email).strip()
    usable = len(email) <= _MAX_EMAIL and _EMAIL.fullmatch(email)
    return Account(
        user_name,
        external_id,
        check_line(name, name="the name", max_length=_MAX_NAME) or user_name,
        email if usable else "",
        is_active,
        document,
    )


class PeopleActions:
    """Makes the changes of people that an identity provider wants."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        self.leavers = LeaversDuty(context)

    def read(self, do: Callable[[Transaction], Result]) -> Result:
        with self._context.database.reading() as tx:
            return do(tx)

    def change(self, do: Callable[["PeopleChange"], Result]) -> Result:
        """Make one change; whom it removes is out within a second everywhere, and here at once.

        Raises NoPolicyError: nothing is permitted to anyone then, and the provider tries again.
        """
        written = self._context.policies.get_policy().written
        with self._context.database.transaction() as tx:
            rows.lock_revision(tx)
            change = PeopleChange(self._context, tx, written)
            result = do(change)
        if change.has_removed:
            if isinstance(self._context.policies, PolicyWithoutBanned):
                self._context.policies.forget_facts()
            self.leavers.run()
        return result


class PeopleChange:
    """One change of people, in its transaction.

    written: people.yaml, which may name the account of a person.
    """

    def __init__(self, context: WorkflowContext, tx: Transaction, written: Organisation) -> None:
        self.tx, self._context, self._written = tx, context, written
        self.has_removed = False

    def create_user(self, account: Account) -> UserRow:
        tx = self.tx
        if rows.count_users(tx) >= MAX_USERS:
            raise FullError(f"Keyturn keeps {MAX_USERS} people: assign only those who use it")
        _check_unique(tx, account)
        user_id = str(uuid4())
        user = UserRow(
            user_id=user_id,
            person=_make_person_id(account.user_name),
            user_name=account.user_name,
            external_id=account.external_id,
            email=account.email,
            name=account.name,
            document=account.document,
            is_active=account.is_active,
            stay=_make_stay(user_id),
            created_at=tx.now,
            changed_at=tx.now,
        )
        rows.add_user(tx, user)
        if user.is_active:
            _append(tx, _build_arrival(user, is_back=False))
        return user

    def update_user(self, before: UserRow, account: Account) -> UserRow:
        """Replace what is known of an account; end what its person has if it is not active."""
        tx = self.tx
        account = self._keep_sign_in(before, account)
        _check_unique(tx, account, except_user=before.user_id)
        is_back = account.is_active and not before.is_active
        user = replace(
            before,
            user_name=account.user_name,
            external_id=account.external_id,
            email=account.email,
            name=account.name,
            document=account.document,
            is_active=account.is_active,
            stay=_make_stay(before.user_id) if is_back else before.stay,
            changed_at=tx.now,
        )
        changed = {
            name: getattr(user, name)
            for name in ("user_name", "external_id", "email", "name")
            if getattr(user, name) != getattr(before, name)
        }
        if not changed and (user.is_active, user.document) == (before.is_active, before.document):
            return before
        rows.update_user(tx, user)
        found: list[Event] = []
        if changed:
            found.append(
                events.ProvisionedPersonChanged(
                    account=user.user_id,
                    account_person=user.person,
                    user_name=before.user_name,
                    changed=changed,
                )
            )
        if is_back:
            found.append(_build_arrival(user, is_back=True))
        drafts = [EntryDraft(one, None, "", "") for one in found]
        if before.is_active and not user.is_active:
            drafts += self._remove(user, is_deleted=False)
        record_change(tx, drafts)
        return user

    def _keep_sign_in(self, before: UserRow, account: Account) -> Account:
        """Return an account with the externalId that it had when people.yaml named it.

        With another, someone else would sign in as that person, who may be an administrator.
        Nothing delays a departure, so what makes the account inactive is not refused.
        """
        bound = self._list_bound(before)
        if not bound or account.external_id == before.external_id:
            return account
        if account.is_active and account.external_id:
            raise InvalidRequestError(
                f"externalId cannot change while {min(bound)} of people.yaml is this account: "
                "remove provisioned there, send it again, and write provisioned again"
            )
        return replace(account, external_id=before.external_id)

    def _list_bound(self, user: UserRow) -> set[str]:
        """Return the ids of the people in people.yaml who are this account."""
        written = self._written.people.values()
        return {one.id for one in written if one.provisioned == user.user_id}

    def delete_user(self, user: UserRow) -> None:
        """Delete an account for good: one with the same name would be another person."""
        drafts = self._remove(user, is_deleted=True)
        rows.delete_user(self.tx, user)
        record_change(self.tx, drafts)

    def _remove(self, user: UserRow, *, is_deleted: bool) -> list[EntryDraft]:
        self.has_removed = True
        bound = self._list_bound(user)
        people = {user.person, *bound}
        removed = events.PersonDeprovisioned(
            account=user.user_id,
            account_person=min(bound, default=user.person),
            user_name=user.user_name,
            stay=user.stay,
            is_deleted=is_deleted,
        )
        ended = end_rights(self.tx, people)
        take_back_approvals(self._context, self.tx, people)
        return [EntryDraft(removed, None, "", ""), *ended]

    def create_group(self, name: str, external_id: str, members: Collection[str]) -> GroupRow:
        tx = self.tx
        if rows.count_groups(tx) >= MAX_GROUPS:
            raise FullError(f"Keyturn keeps {MAX_GROUPS} groups: push only those that give roles")
        name, members = _check_group(tx, name, external_id, members, group_id="")
        group = GroupRow(str(uuid4()), name, external_id, tx.now, tx.now, members)
        rows.add_group(tx, group)
        _append(tx, _build_group_change(group, is_new=True, added=members))
        return group

    def update_group(
        self, before: GroupRow, name: str, external_id: str, members: Collection[str]
    ) -> GroupRow:
        tx = self.tx
        name, members = _check_group(tx, name, external_id, members, group_id=before.group_id)
        group = replace(
            before, name=name, external_id=external_id, members=members, changed_at=tx.now
        )
        if replace(group, changed_at=before.changed_at) == before:
            return before
        added = sorted(set(members).difference(before.members))
        removed = sorted(set(before.members).difference(members))
        rows.update_group(tx, group)
        rows.remove_members(tx, group.group_id, removed)
        rows.add_members(tx, group.group_id, added)
        old = before.name if before.name != name else ""
        _append(tx, _build_group_change(group, old_name=old, added=added, removed=removed))
        return group

    def delete_group(self, group: GroupRow) -> None:
        rows.delete_group(self.tx, group.group_id)
        _append(self.tx, _build_group_change(group, is_deleted=True, removed=group.members))


def _append(tx: Transaction, event: Event) -> None:
    record_change(tx, [EntryDraft(event, None, "", "")])


def _build_arrival(user: UserRow, *, is_back: bool) -> Event:
    return events.PersonProvisioned(
        account=user.user_id,
        account_person=user.person,
        user_name=user.user_name,
        external_id=user.external_id,
        email=user.email,
        stay=user.stay,
        is_back=is_back,
    )


def _build_group_change(
    group: GroupRow,
    *,
    old_name: str = "",
    is_new: bool = False,
    is_deleted: bool = False,
    added: Sequence[str] = (),
    removed: Sequence[str] = (),
) -> Event:
    return events.ProvisionedGroupChanged(
        group=group.name,
        group_id=group.group_id,
        old_name=old_name,
        is_new=is_new,
        is_deleted=is_deleted,
        added=tuple(added),
        removed=tuple(removed),
    )


def _check_unique(tx: Transaction, account: Account, *, except_user: str = "") -> None:
    """Raise TakenError if another account has one of the values that identify this one."""
    found = [
        (f"userName {account.user_name}", rows.find_users(tx, user_name=account.user_name)),
        (f"userName {account.user_name}", rows.find_users(tx, email=account.user_name)),
    ]
    if account.external_id:
        same_id = rows.find_users(tx, external_id=account.external_id)
        found.append((f"externalId {account.external_id}", same_id))
    if account.email:
        found.append((f"address {account.email}", rows.find_users(tx, email=account.email)))
        found.append((f"address {account.email}", rows.find_users(tx, user_name=account.email)))
    for what, others in found:
        if any(one.user_id != except_user for one in others):
            raise TakenError(f"another account has the {what}: give each account its own")


def _check_group(
    tx: Transaction, name: str, external_id: str, members: Collection[str], *, group_id: str
) -> tuple[str, Sequence[str]]:
    """Return name and members, sorted. Raises InvalidRequestError and TakenError."""
    name = check_line(name, name="the name of the group", max_length=_MAX_TEXT)
    if not name:
        raise InvalidRequestError("a group needs a displayName")
    if len(external_id) > _MAX_TEXT or not external_id.isprintable():
        raise InvalidRequestError(f"externalId must be at most {_MAX_TEXT} printable characters")
    if any(one.group_id != group_id for one in rows.find_groups(tx, name=name)):
        raise TakenError(f"another group has the name {name}: give each group its own")
    wanted = frozenset(members)
    if unknown := sorted(wanted - rows.list_known_users(tx, wanted)):
        raise InvalidRequestError(
            f"member {quote_text(unknown[0][:60])} is no user here: create the user first; groups "
            "in groups are not supported"
        )
    return name, tuple(sorted(wanted))


def _make_person_id(user_name: str) -> str:
    """Return an id that no person has had: readable, and not for the provider to choose."""
    local = user_name.partition("@")[0].casefold()
    slug = re.sub(r"[^a-z0-9]+", "-", local).strip("-")[:_MAX_SLUG].strip("-") or "person"
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return f"{slug}-{suffix}"


def _make_stay(user_id: str) -> str:
    return f"{user_id}/{secrets.token_hex(8)}"

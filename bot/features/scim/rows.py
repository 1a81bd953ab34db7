"""Rows of what an identity provider says: accounts, groups, members, and groups of tokens."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Select, Table, delete, func, insert, select, update

from bot.auth import row_mac
from bot.db import tables
from bot.db.database import SeenHead, Transaction
from bot.model.run import STATES_BEFORE_INTENT
from bot.model.times import HOUR
from bot.policy.provisioning import (
    ClaimedGroups,
    ProvisionedPeople,
    ProvisionedUser,
    fold_address,
)

_USER, _GROUP, _MEMBER = (
    tables.provisioned_user,
    tables.provisioned_group,
    tables.provisioned_member,
)
_RUN, _DECISION = tables.run.c, tables.decision.c
_WAITING = sorted(one.value for one in STATES_BEFORE_INTENT)
_CLAIMED, _REVISION = tables.claimed_groups, tables.provisioning_revision
_GET_REVISION = select(_REVISION.c.revision)
Part = TypeVar("Part", int, str)
# As long as a session lasts at most.
CLAIMS_HOLD = 12 * HOUR
# The rows of each table that were found to be of Keyturn: during a first sync thousands of them
# are read again after each change, and to compute the MAC of each takes most of the time.
_VALID: WeakKeyDictionary[SeenHead, dict[str, frozenset[tuple[Any, ...]]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class UserRow:
    """An account. Times are microseconds since 1970, UTC."""

    user_id: str
    person: str
    """The id of its person, unless people.yaml names the account."""
    user_name: str
    external_id: str
    email: str
    name: str
    document: Mapping[str, Any]
    """What the provider sent, by the names of SCIM."""
    is_active: bool
    stay: str
    created_at: int
    changed_at: int
    groups: Sequence["GroupName"] = field(default=(), compare=False)


@dataclass(frozen=True)
class GroupName:
    group_id: str
    name: str


@dataclass(frozen=True)
class GroupRow:
    """A group, with the ids of its members, sorted."""

    group_id: str
    name: str
    external_id: str
    created_at: int
    changed_at: int
    members: Sequence[str] = ()


def lock_revision(tx: Transaction) -> None:
    """Begin a change of people: no other does so until this transaction ends."""
    tx.insert_once(_REVISION, id=1, revision=0)
    tx.sql.execute(_GET_REVISION.with_for_update())


def count_change(tx: Transaction) -> None:
    """Let every process read the people again."""
    tx.sql.execute(update(_REVISION).values(revision=_REVISION.c.revision + 1))


def get_revision(tx: Transaction) -> int:
    return tx.sql.execute(_GET_REVISION).scalar_one_or_none() or 0


def read_people(tx: Transaction, revision: int) -> ProvisionedPeople:
    """Return what providers say now. Rows that Keyturn did not write say nothing."""
    memory = _VALID.setdefault(tx.seen_head, {})

    def list_valid(table: Table, query: Select[Any]) -> list[Any]:
        known, memory[table.name] = memory.get(table.name, frozenset()), frozenset()
        found = [
            row
            for row in tx.sql.execute(query)
            if tuple(row) in known or row_mac.is_mac_valid(tx, table, row)
        ]
        memory[table.name] = frozenset(map(tuple, found))
        return found

    names = {row.group_id: row.name for row in list_valid(_GROUP, select(_GROUP))}
    groups: dict[str, list[str]] = {}
    for row in list_valid(_MEMBER, select(_MEMBER)):
        if row.group_id in names:
            groups.setdefault(row.user_id, []).append(names[row.group_id])
    users = list_valid(_USER, select(_USER).order_by(_USER.c.created_at, _USER.c.user_id))
    return ProvisionedPeople(
        revision,
        users=[
            ProvisionedUser(
                id=row.user_id,
                person=row.person,
                user_name=row.user_name,
                external_id=row.external_id,
                name=row.name,
                email=row.email,
                other_addresses=_list_addresses(row.document),
                is_active=row.is_active,
                stay=row.stay,
                groups=tuple(sorted(groups.get(row.user_id, ()))),
            )
            for row in users
            if row.deleted_at is None
        ],
        former_names={row.person: row.name for row in users if row.deleted_at is not None},
        claims={
            row.person: ClaimedGroups(row.issuer, tuple(json.loads(row.group_names)))
            for row in _list_valid(tx, _CLAIMED, _select_current_claims(tx))
        },
    )


def _list_addresses(document: str) -> Sequence[str]:
    """Return all addresses that the provider sent, sorted."""
    emails = json.loads(document).get("emails") or ()
    return tuple(sorted({one["value"] for one in emails if one.get("value")}))


def list_current_claims(tx: Transaction) -> frozenset[str]:
    """Return the people whose groups of a token hold now."""
    query = _select_current_claims(tx).with_only_columns(_CLAIMED.c.person)
    return frozenset(tx.sql.execute(query).scalars())


def _select_current_claims(tx: Transaction) -> Select[Any]:
    return select(_CLAIMED).where(_CLAIMED.c.read_at > tx.now - CLAIMS_HOLD)


def _list_valid(tx: Transaction, table: Any, query: Select[Any]) -> Iterable[Any]:
    return [row for row in tx.sql.execute(query) if row_mac.is_mac_valid(tx, table, row)]


# --- accounts ---


def _select_users() -> Select[Any]:
    return select(_USER).where(_USER.c.deleted_at.is_(None))


def find_user(tx: Transaction, user_id: str) -> UserRow | None:
    """Return an account that is not deleted."""
    found = find_users(tx, user_id=user_id)
    return found[0] if found else None


def find_users(
    tx: Transaction,
    *,
    user_id: str | None = None,
    user_name: str = "",
    external_id: str = "",
    email: str = "",
) -> list[UserRow]:
    """Return the accounts with this id, user name, external id or e-mail address."""
    query = _select_users()
    if user_id is not None:
        query = query.where(_USER.c.user_id == user_id)
    if user_name:
        query = query.where(_USER.c.user_key == fold_address(user_name))
    if external_id:
        query = query.where(_USER.c.external_id == external_id)
    if email:
        query = query.where(func.lower(_USER.c.email) == email.lower())
    return _build_users(tx, query.order_by(_USER.c.created_at, _USER.c.user_id))


def list_users(tx: Transaction, *, offset: int, limit: int) -> list[UserRow]:
    """Return some accounts, the oldest first."""
    query = _select_users().order_by(_USER.c.created_at, _USER.c.user_id)
    return _build_users(tx, query.offset(offset).limit(limit))


def count_users(tx: Transaction) -> int:
    query = select(func.count()).select_from(_USER).where(_USER.c.deleted_at.is_(None))
    return tx.sql.execute(query).scalar_one()


def list_known_users(tx: Transaction, user_ids: Collection[str]) -> frozenset[str]:
    """Return those of these accounts that exist."""
    known: set[str] = set()
    for part in _split(sorted(user_ids)):
        query = _select_users().with_only_columns(_USER.c.user_id)
        known.update(tx.sql.execute(query.where(_USER.c.user_id.in_(part))).scalars())
    return frozenset(known)


def add_user(tx: Transaction, user: UserRow) -> None:
    tx.sql.execute(insert(_USER).values(row_mac.add_mac(tx, _USER, _encode_user(user))))


def update_user(tx: Transaction, user: UserRow) -> None:
    values = row_mac.add_mac(tx, _USER, _encode_user(user))
    tx.sql.execute(update(_USER).where(_USER.c.user_id == user.user_id).values(values))


def delete_user(tx: Transaction, user: UserRow) -> None:
    """Keep only the id and the name of an account, for what its person has done."""
    gone = replace(user, external_id="", email="", document={}, is_active=False)
    values = {**_encode_user(gone), "user_key": None, "deleted_at": tx.now}
    values = row_mac.add_mac(tx, _USER, values)
    tx.sql.execute(update(_USER).where(_USER.c.user_id == user.user_id).values(values))
    tx.sql.execute(delete(_MEMBER).where(_MEMBER.c.user_id == user.user_id))


def _encode_user(user: UserRow) -> dict[str, Any]:
    return {
        "user_id": user.user_id,
        "person": user.person,
        "user_name": user.user_name,
        "user_key": fold_address(user.user_name),
        "external_id": user.external_id,
        "email": user.email,
        "name": user.name,
        "document": json.dumps(user.document, ensure_ascii=False, sort_keys=True),
        "is_active": user.is_active,
        "stay": user.stay,
        "created_at": user.created_at,
        "changed_at": user.changed_at,
        "deleted_at": None,
    }


def _build_users(tx: Transaction, query: Select[Any]) -> list[UserRow]:
    found = _list_valid(tx, _USER, query)
    groups = _list_groups_of(tx, [row.user_id for row in found])
    return [
        UserRow(
            user_id=row.user_id,
            person=row.person,
            user_name=row.user_name,
            external_id=row.external_id,
            email=row.email,
            name=row.name,
            document=json.loads(row.document),
            is_active=row.is_active,
            stay=row.stay,
            created_at=row.created_at,
            changed_at=row.changed_at,
            groups=groups.get(row.user_id, ()),
        )
        for row in found
    ]


def _list_groups_of(tx: Transaction, user_ids: Sequence[str]) -> Mapping[str, Sequence[GroupName]]:
    groups: dict[str, list[GroupName]] = {}
    if not user_ids:
        return groups
    query = (
        select(_MEMBER.c.user_id, _GROUP.c.group_id, _GROUP.c.name)
        .join(_GROUP, _GROUP.c.group_id == _MEMBER.c.group_id)
        .where(_MEMBER.c.user_id.in_(user_ids))
        .order_by(_GROUP.c.group_key)
    )
    for row in tx.sql.execute(query):
        groups.setdefault(row.user_id, []).append(GroupName(row.group_id, row.name))
    return groups


# --- groups ---


def find_group(tx: Transaction, group_id: str) -> GroupRow | None:
    found = find_groups(tx, group_id=group_id)
    return found[0] if found else None


def find_groups(
    tx: Transaction, *, group_id: str | None = None, name: str = "", external_id: str = ""
) -> list[GroupRow]:
    """Return the groups with this id, name or external id."""
    query = select(_GROUP)
    if group_id is not None:
        query = query.where(_GROUP.c.group_id == group_id)
    if name:
        query = query.where(_GROUP.c.group_key == fold_address(name))
    if external_id:
        query = query.where(_GROUP.c.external_id == external_id)
    return _build_groups(tx, query.order_by(_GROUP.c.created_at, _GROUP.c.group_id))


def list_groups(tx: Transaction, *, offset: int, limit: int) -> list[GroupRow]:
    """Return some groups, the oldest first."""
    query = select(_GROUP).order_by(_GROUP.c.created_at, _GROUP.c.group_id)
    return _build_groups(tx, query.offset(offset).limit(limit))


def count_groups(tx: Transaction) -> int:
    return tx.sql.execute(select(func.count()).select_from(_GROUP)).scalar_one()


def add_group(tx: Transaction, group: GroupRow) -> None:
    tx.sql.execute(insert(_GROUP).values(row_mac.add_mac(tx, _GROUP, _encode_group(group))))
    add_members(tx, group.group_id, group.members)


def update_group(tx: Transaction, group: GroupRow) -> None:
    """Change a group, without its members."""
    values = row_mac.add_mac(tx, _GROUP, _encode_group(group))
    tx.sql.execute(update(_GROUP).where(_GROUP.c.group_id == group.group_id).values(values))


def delete_group(tx: Transaction, group_id: str) -> None:
    for table in (_MEMBER, _GROUP):
        tx.sql.execute(delete(table).where(table.c.group_id == group_id))


def add_members(tx: Transaction, group_id: str, user_ids: Sequence[str]) -> None:
    for part in _split(user_ids):
        new = [{"group_id": group_id, "user_id": one} for one in part]
        tx.sql.execute(insert(_MEMBER), [row_mac.add_mac(tx, _MEMBER, one) for one in new])


def remove_members(tx: Transaction, group_id: str, user_ids: Sequence[str]) -> None:
    for part in _split(user_ids):
        named = _MEMBER.c.group_id == group_id, _MEMBER.c.user_id.in_(part)
        tx.sql.execute(delete(_MEMBER).where(*named))


def _encode_group(group: GroupRow) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "name": group.name,
        "group_key": fold_address(group.name),
        "external_id": group.external_id,
        "created_at": group.created_at,
        "changed_at": group.changed_at,
    }


def _build_groups(tx: Transaction, query: Select[Any]) -> list[GroupRow]:
    found = _list_valid(tx, _GROUP, query)
    members: dict[str, list[str]] = {}
    if found:
        of_these = _MEMBER.c.group_id.in_([row.group_id for row in found])
        for row in _list_valid(tx, _MEMBER, select(_MEMBER).where(of_these)):
            members.setdefault(row.group_id, []).append(row.user_id)
    return [
        GroupRow(
            group_id=row.group_id,
            name=row.name,
            external_id=row.external_id,
            created_at=row.created_at,
            changed_at=row.changed_at,
            members=tuple(sorted(members.get(row.group_id, ()))),
        )
        for row in found
    ]


# --- groups of tokens ---


def get_claims(tx: Transaction, person: str) -> ClaimedGroups:
    """Return the groups of a person's last token; none if they do not hold any more."""
    query = _select_current_claims(tx).where(_CLAIMED.c.person == person)
    for row in _list_valid(tx, _CLAIMED, query):
        return ClaimedGroups(row.issuer, tuple(json.loads(row.group_names)))
    return ClaimedGroups("", ())


def put_claims(tx: Transaction, person: str, claims: ClaimedGroups) -> None:
    delete_claims(tx, person)
    values = {
        "person": person,
        "issuer": claims.issuer,
        "group_names": json.dumps(claims.groups, ensure_ascii=False),
        "read_at": tx.now,
    }
    tx.sql.execute(insert(_CLAIMED).values(row_mac.add_mac(tx, _CLAIMED, values)))


def delete_claims(tx: Transaction, person: str) -> None:
    tx.sql.execute(delete(_CLAIMED).where(_CLAIMED.c.person == person))


# --- runs ---


def list_waiting(tx: Transaction) -> list[int]:
    """Return the requests of which nothing was sent yet."""
    query = select(_RUN.id).where(_RUN.state.in_(_WAITING), _RUN.parent.is_(None))
    return [*tx.sql.execute(query.order_by(_RUN.id)).scalars()]


def list_waiting_approved_by(tx: Transaction, people: Iterable[str]) -> list[int]:
    """Return those of them that one of these people approved."""
    query = select(_RUN.id).join(tables.decision, _DECISION.run == _RUN.id).distinct()
    query = query.where(_DECISION.person.in_(sorted(people)), _RUN.state.in_(_WAITING))
    return [*tx.sql.execute(query.where(_DECISION.approves).order_by(_RUN.id)).scalars()]


def remove_approvals(tx: Transaction, runs: Sequence[int], people: Iterable[str]) -> None:
    """Remove the approvals of these people from runs; the log keeps them."""
    of_people = _DECISION.person.in_(sorted(people)), _DECISION.approves
    for part in _split(runs):
        tx.sql.execute(delete(tables.decision).where(_DECISION.run.in_(part), *of_people))


def _split(names: Sequence[Part]) -> Iterable[Sequence[Part]]:
    """Yield parts that one statement can name."""
    return (names[n : n + 500] for n in range(0, len(names), 500))

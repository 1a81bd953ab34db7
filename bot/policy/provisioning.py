"""People whom an identity provider adds and removes, joined to those of people.yaml. Pure.

A provider gives the roles that the policy maps its groups to, and nothing else: areas, signing
keys and Slack accounts are of people.yaml alone. An entry there with `provisioned` is the person
of one account of the provider, and is in force only as long as that account is active.
"""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bot.policy.people import OidcAccount, Organisation, Person, Provisioning

# More than there are people: all are joined again after each change.
_REMEMBERED = 20_000
# Letters and digits that look alike, as one of them.
_LOOKS = str.maketrans("i1|0", "lllo")


@dataclass(frozen=True)
class ProvisionedUser:
    """An account of the identity provider."""

    id: str
    """The id that Keyturn gave it: a UUID, never used for another account."""
    person: str
    """The id of its person, unless people.yaml names the account."""
    user_name: str
    external_id: str
    """Its id with the provider; "" if the provider sent none."""
    name: str
    email: str
    is_active: bool
    stay: str
    """A name for the time since it was activated last: each deactivation revokes it for good."""
    groups: Sequence[str] = ()
    """The names of its groups, sorted."""
    other_addresses: Sequence[str] = ()
    """What else it may be known by: never used but to find that it is another person."""


@dataclass(frozen=True)
class ClaimedGroups:
    """The groups that the token of a person's last sign-in named."""

    issuer: str
    groups: Sequence[str]


@dataclass(frozen=True)
class ProvisionedPeople:
    """What providers say of people, as of one revision."""

    revision: int
    users: Sequence[ProvisionedUser] = field(default=(), compare=False)
    """Accounts that are not deleted, the oldest first."""
    former_names: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """The names of people whose account was deleted, by id."""
    claims: Mapping[str, ClaimedGroups] = field(default_factory=dict[str, ClaimedGroups])
    """By the id of the person."""
    revoked_stays: frozenset[str] = frozenset()
    """Those that the change log revokes, and whose rows say otherwise."""

    @property
    def active_users(self) -> Iterator[ProvisionedUser]:
        return (one for one in self.users if one.is_active and one.stay not in self.revoked_stays)

    def without_stays(self, revoked: Collection[str]) -> "ProvisionedPeople":
        """Return it without accounts whose deactivation the change log holds."""
        stays = frozenset(one.stay for one in self.users if one.is_active).intersection(revoked)
        return self if stays == self.revoked_stays else replace(self, revoked_stays=stays)


@dataclass(frozen=True)
class JoinedPeople:
    """Who is in force, by id, and why an account of the provider is not."""

    people: Mapping[str, Person]
    conflicts: Mapping[str, str]
    """By the id of the account, in words."""


def join_people(written: Organisation, provisioned: ProvisionedPeople) -> JoinedPeople:
    """Return the people of people.yaml and of the provider, without entries whose account is gone.

    written: as the files have it.
    """
    rules = written.provisioning
    if rules is None:
        return JoinedPeople(written.list_unbound_people(), {})
    users = {one.id: one for one in provisioned.active_users}
    taken = _Taken(written)
    people = {**written.list_unbound_people()}
    for name, person in written.people.items():
        if person.provisioned and (user := users.pop(person.provisioned, None)):
            joined = _add_roles(person, rules.get_roles(user.groups))
            people[name] = taken.add_account(joined, user, rules)
    conflicts = {
        user.id: conflict
        for user in users.values()
        if (conflict := taken.find_conflict(user, rules.issuer))
    }
    added = [one for one in users.values() if one.id not in conflicts]
    people |= {one.person: _build_person(one, rules) for one in added}
    for name, claimed in provisioned.claims.items():
        if name in people and rules.groups_claim and rules.issuer == claimed.issuer:
            people[name] = _add_roles(people[name], rules.get_roles(claimed.groups))
    shown = _with_distinct_names(people, provisioned.users, written)
    return JoinedPeople(shown, conflicts)


def _add_roles(person: Person, roles: Sequence[str]) -> Person:
    every = tuple(dict.fromkeys((*person.roles, *roles)))
    return person if every == tuple(person.roles) else person.model_copy(update={"roles": every})


def _list_accounts(user: ProvisionedUser, rules: Provisioning) -> Sequence[OidcAccount]:
    """Return the account with which a provisioned person signs in, if there is one."""
    if not (rules.issuer and user.external_id):
        return ()
    claim = rules.subject_claim
    return (OidcAccount(issuer=rules.issuer, subject=user.external_id, claim=claim),)


def _build_person(user: ProvisionedUser, rules: Provisioning) -> Person:
    return _build_from(
        user, tuple(rules.get_roles(user.groups)), tuple(_list_accounts(user, rules))
    )


@lru_cache(maxsize=_REMEMBERED)
def _build_from(
    user: ProvisionedUser, roles: tuple[str, ...], accounts: tuple[OidcAccount, ...]
) -> Person:
    return Person(
        id=user.person, name=user.name, email=user.email or None, roles=roles, oidc=accounts
    )


class _Taken:
    """What already identifies a person of people.yaml, so that one human is not two people."""

    def __init__(self, written: Organisation) -> None:
        self._addresses: dict[str, str] = {}
        self._accounts: dict[tuple[str, str], str] = {}
        self._people = written.people
        for person in written.people.values():
            for address in (person.id, person.email or ""):
                self._addresses.setdefault(fold_address(address), person.id)
            for account in person.oidc:
                self._accounts.setdefault((account.issuer, account.subject), person.id)
        self._addresses.pop("", None)

    def add_account(self, person: Person, user: ProvisionedUser, rules: Provisioning) -> Person:
        """Return a person of people.yaml with the sign-in of their account, unless it has one."""
        has_own = any(account.issuer == rules.issuer for account in person.oidc)
        if has_own or (rules.issuer or "", user.external_id) in self._accounts:
            return person
        return person.model_copy(update={"oidc": (*person.oidc, *_list_accounts(user, rules))})

    def find_conflict(self, user: ProvisionedUser, issuer: str | None) -> str:
        """Return why an account may be a person of people.yaml; "" if it is not one."""
        addresses = map(fold_address, (user.user_name, user.email, *user.other_addresses))
        found = (
            next((self._addresses[one] for one in addresses if one in self._addresses), "")
            or self._accounts.get((issuer or "", user.external_id))
            or (user.person if user.person in self._people else "")
        )
        if not found:
            return ""
        if self._people[found].provisioned:
            return f"{found} of people.yaml, who has its address, is another account"
        return f"may be {found} of people.yaml: add provisioned: {user.id} there"


def fold_address(text: str) -> str:
    """Return a user name or an e-mail address as it is compared."""
    return unicodedata.normalize("NFKC", text).casefold()


def _with_distinct_names(
    people: Mapping[str, Person], users: Iterable[ProvisionedUser], written: Organisation
) -> Mapping[str, Person]:
    """Return the people, of whom no provisioned one is shown like another person.

    The provider chooses names; approvers read them. So a name that another person has, or that is
    not plain Latin, is shown with the user name, which is unique and in ASCII.
    """
    counted: dict[str, int] = {}
    # Also people of people.yaml who are not in force: no one is taken for a person of before.
    for person in {**written.people, **people}.values():
        key = _fold_name(person.name)
        counted[key] = counted.get(key, 0) + 1
    user_names = {one.person: one.user_name for one in users}
    shown = dict(people)
    for name, person in people.items():
        user_name = user_names.get(name)
        if user_name and (counted[_fold_name(person.name)] > 1 or not _is_plain(person.name)):
            text = person.name if user_name == person.name else f"{person.name} ({user_name})"
            shown[name] = person.model_copy(update={"name": text})
    return shown


@lru_cache(maxsize=_REMEMBERED)
def _fold_name(name: str) -> str:
    """Return what a reader sees of a name: without case, marks, spaces and points."""
    parts = unicodedata.normalize("NFKD", name).casefold().translate(_LOOKS)
    return "".join(one for one in parts if one.isalnum()).replace("rn", "m").replace("vv", "w")


@lru_cache(maxsize=_REMEMBERED)
def _is_plain(name: str) -> bool:
    """Return whether every letter is ASCII but for its marks, and no user name is part of it."""
    parts = unicodedata.normalize("NFKD", name)
    plain = "".join(one for one in parts if not unicodedata.combining(one))
    return plain.isascii() and not {"(", "@"}.intersection(plain)

"""Proposals of people from the member list that Slack exports. Pure.

Source of the format: the CSV file of Slack's page Manage members, *Export member list*.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from bot.model.errors import InvalidRequestError
from bot.model.text import escape_to_one_line
from bot.policy import Policy, SlackAccount
from bot.policy.provisioning import ProvisionedPeople, ProvisionedUser, fold_address

_COLUMNS = ("email", "status", "userid", "fullname")
# Guests, bots and former members are not proposed.
_MEMBERS = frozenset({"member", "admin", "owner", "primary owner"})
_MAX_ROWS = 100_000


@dataclass(frozen=True)
class SlackMember:
    """A full member of the workspace."""

    user: str
    name: str
    email: str


@dataclass(frozen=True)
class Proposal:
    """An entry for people.yaml, for a person to review."""

    id: str
    lines: Sequence[str]
    is_known: bool
    """Whether people.yaml has the person, and only their Slack account is new."""


def parse_members(text: str) -> list[SlackMember]:
    """Return the active full members. Raises InvalidRequestError for another file."""
    reader = csv.DictReader(StringIO(text.removeprefix("\ufeff")))
    missing = [one for one in _COLUMNS if one not in (reader.fieldnames or ())]
    if missing:
        raise InvalidRequestError(
            f"the file has no column {missing[0]}: take the CSV file that Slack sends you for "
            "Manage members, Export member list"
        )
    members: list[SlackMember] = []
    try:
        for number, row in enumerate(reader):
            if number >= _MAX_ROWS:
                raise InvalidRequestError(f"the file has more than {_MAX_ROWS} rows: shorten it")
            if (row["status"] or "").strip().lower() in _MEMBERS:
                user, email = (row["userid"] or "").strip(), (row["email"] or "").strip()
                members.append(SlackMember(user, (row["fullname"] or "").strip(), email))
    except csv.Error as error:
        raise InvalidRequestError(f"the file is not CSV: {error}") from None
    return [one for one in members if one.user and one.email]


def propose_people(
    policy: Policy, members: Iterable[SlackMember], *, team: str
) -> Iterator[Proposal]:
    """Yield a proposal for each member whose Slack account no one in people.yaml has.

    Members are matched by their e-mail address: a person compares each before it is in force.
    """
    written = policy.written.people.values()
    by_address = {fold_address(one.email): one for one in written if one.email}
    taken = {account.user for one in written for account in one.slack}
    users = (policy.provisioned or ProvisionedPeople(0)).users
    accounts = {
        fold_address(address): user for user in users for address in (user.user_name, user.email)
    }
    bound = {one.provisioned for one in written if one.provisioned}
    ids = set(policy.written.people)
    for member in members:
        if member.user in taken or not _is_account(team, member.user):
            continue
        taken.add(member.user)
        slack = f"slack: [{{team: {team}, user: {member.user}}}]"
        address = fold_address(member.email)
        if person := by_address.get(address):
            line = f"# {person.id}, by the address {_quote(member.email)}: add {slack}"
            yield Proposal(person.id, [line], is_known=True)
            continue
        user = accounts.get(address)
        number = _make_id(member.email, ids)
        ids.add(number)
        yield Proposal(
            number,
            [
                *_format_entry(
                    number, member, slack, user if user and user.id not in bound else None
                )
            ],
            is_known=False,
        )


def format_proposals(proposals: Sequence[Proposal]) -> str:
    """Return the file: known people as comments, and a mapping of the new ones."""
    known = [line for one in proposals if one.is_known for line in one.lines]
    new = [line for one in proposals if not one.is_known for line in one.lines]
    return "\n".join(
        [
            "# Proposed from Slack's member list, by e-mail address alone. Compare each entry",
            "# with the person, then copy it to people.yaml. Without roles, a person may do what",
            "# the rules permit everyone, and what the groups of the identity provider give.",
            *known,
            *(["people:", *new] if new else ["# No new people."]),
            "",
        ]
    )


def _format_entry(
    number: str, member: SlackMember, slack: str, user: ProvisionedUser | None
) -> Iterator[str]:
    yield f"  {number}:"
    yield f"    name: {_quote(member.name or member.email)}"
    yield f"    email: {_quote(member.email)}"
    yield f"    {slack}"
    if user is not None:
        yield f"    provisioned: {user.id}  # {_escape(user.user_name)}"


def _make_id(email: str, ids: Iterable[str]) -> str:
    local = email.partition("@")[0].lower()
    slug = "".join(one if one.isascii() and one.isalnum() else "-" for one in local)
    slug = "-".join(filter(None, slug.split("-")))[:50].strip("-") or "person"
    known, number = set(ids), 2
    found = slug
    while found in known:
        found, number = f"{slug}-{number}", number + 1
    return found


def _is_account(team: str, user: str) -> bool:
    try:
        SlackAccount(team=team, user=user)
    except ValueError:
        return False
    return True


def _quote(text: str) -> str:
    """Return a text as YAML and JSON quote it, on one line."""
    return json.dumps(_escape(text), ensure_ascii=False)


def _escape(text: str) -> str:
    return escape_to_one_line(text)[:200]

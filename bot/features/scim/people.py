"""Where each person of the policy is from, as page and command list it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.policy import Policy
from bot.policy.provisioning import ProvisionedPeople, join_people

FILES, PROVIDER, BOTH = "people.yaml", "identity provider", "people.yaml and identity provider"


@dataclass(frozen=True)
class ListedPerson:
    """One person, in force or not."""

    id: str
    name: str
    source: str
    roles: Sequence[str]
    groups: Sequence[str] = ()
    account: str = ""
    """The id and user name of the account; "" for a person of people.yaml alone."""
    problem: str = ""
    """Why the person has no rights; "" if they are in force."""


def list_people(policy: Policy) -> Sequence[ListedPerson]:
    """Return everyone of people.yaml and of the provider, by name."""
    provisioned = policy.provisioned or ProvisionedPeople(0)
    conflicts = join_people(policy.written, provisioned).conflicts
    by_account = {one.id: one for one in provisioned.users}
    bound = {one.provisioned: one.id for one in policy.written.people.values() if one.provisioned}
    listed: list[ListedPerson] = []
    for person in policy.written.people.values():
        user = by_account.get(person.provisioned or "")
        in_force = policy.find_person(person.id)
        problem = ""
        if person.provisioned and user is None:
            problem = "no account has the id in provisioned: the person has no rights"
        elif in_force is None:
            problem = "the account is not active" if person.provisioned else "banned"
        claimed = provisioned.claims.get(person.id)
        groups = dict.fromkeys(
            (*(user.groups if user else ()), *(claimed.groups if claimed else ()))
        )
        listed.append(
            ListedPerson(
                id=person.id,
                name=person.name,
                source=BOTH if person.provisioned else FILES,
                roles=tuple(in_force.roles if in_force else ()),
                groups=tuple(groups),
                account=f"{user.id} {user.user_name}" if user else "",
                problem=problem,
            )
        )
    for user in provisioned.users:
        if user.id in bound:
            continue
        in_force = policy.find_person(user.person)
        problem = conflicts.get(user.id, "")
        if not problem and in_force is None:
            problem = "banned" if user.is_active else "the account is not active"
        listed.append(
            ListedPerson(
                id=user.person,
                name=in_force.name if in_force else user.name,
                source=PROVIDER,
                roles=tuple(in_force.roles if in_force else ()),
                groups=tuple(user.groups),
                account=f"{user.id} {user.user_name}",
                problem=problem,
            )
        )
    return sorted(listed, key=lambda one: (one.name.casefold(), one.id))

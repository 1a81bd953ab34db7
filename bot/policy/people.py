"""The people and the areas, as the policy directory describes them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from connectors.command import clean
from connectors.inventory import Name

Text = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(clean)]

FactorDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class SlackIdentity(BaseModel):
    """One Slack account. The ids alone tell who somebody is: names and e-mail can be changed.

    team: T…; user: U… or W…; enterprise: E… on Enterprise Grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: Annotated[str, Field(pattern=r"^T[A-Z0-9]{1,20}$")]
    user: Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{1,20}$")]
    enterprise: Annotated[str, Field(pattern=r"^E[A-Z0-9]{1,20}$")] | None = None


class Person(BaseModel):
    """Somebody with one id here, whatever accounts they have elsewhere.

    factors: digests of second factors that count as theirs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    name: Text
    email: Annotated[str, Field(pattern=r"^[^@\s<>]+@[^@\s<>]+$", max_length=254)] | None = None
    roles: Sequence[Name] = ()
    slack: Sequence[SlackIdentity] = ()
    factors: Sequence[FactorDigest] = ()


class Area(BaseModel):
    """A part of production. owners: the people who have the final say there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Text
    owners: Annotated[Sequence[Name], Field(min_length=1)]
    channel: Annotated[str, Field(pattern=r"^[CG][A-Z0-9]{1,20}$")] | None = None


class Household(BaseModel):
    """All people and areas together, since each names the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    people: Mapping[Name, Person]
    areas: Mapping[Name, Area]

    @model_validator(mode="after")
    def _owners_exist(self) -> "Household":
        for area in self.areas.values():
            for owner in area.owners:
                if owner not in self.people:
                    raise ValueError(f"area {area.name}: owner {owner} is not among the people")
        return self

    @model_validator(mode="after")
    def _accounts_are_one_persons(self) -> "Household":
        whose: dict[tuple[str, str], str] = {}
        for person in self.people.values():
            for account in person.slack:
                other = whose.setdefault((account.team, account.user), person.id)
                if other != person.id:
                    raise ValueError(
                        f"Slack account {account.user} belongs to both {other} and {person.id}"
                    )
        return self

    def by_slack(self, *, team: str, enterprise: str | None, user: str) -> Person | None:
        """Return whose account this is; None for strangers."""
        for person in self.people.values():
            for account in person.slack:
                same_home = account.team == team or (
                    account.enterprise is not None and account.enterprise == enterprise
                )
                if same_home and account.user == user:
                    return person
        return None

"""The people and the areas, as the policy directory describes them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bot.model.plain_text import check_printable
from connectors.command import refuse_invisible
from connectors.inventory import Name

Text = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(check_printable)]

Issuer = Annotated[str, Field(pattern=r"^https?://[^\s?#]{1,200}$")]

FactorDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class SlackAccount(BaseModel):
    """One Slack account. The ids alone tell who somebody is: names and e-mail can be changed.

    team: T…; user: U… or W…; enterprise: E… on Enterprise Grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: Annotated[str, Field(pattern=r"^T[A-Z0-9]{1,20}$")]
    user: Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{1,20}$")]
    enterprise: Annotated[str, Field(pattern=r"^E[A-Z0-9]{1,20}$")] | None = None

    def can_be_same_account(self, other: "SlackAccount") -> bool:
        """Say whether both can be one account: on Enterprise Grid it is the same in every team.

        Of a team without its enterprise nobody knows whether it is in the other's.
        """
        if self.user != other.user:
            return False
        if self.team == other.team or self.enterprise == other.enterprise is not None:
            return True
        return (self.enterprise is None) != (other.enterprise is None)


class OidcAccount(BaseModel):
    """Somebody's account with an OpenID Connect provider. subject: unique there, never reused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Issuer
    subject: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(refuse_invisible)]


class Person(BaseModel):
    """Somebody with one id here, whatever accounts they have elsewhere.

    factors: digests of second factors that count as theirs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    name: Text
    email: Annotated[str, Field(pattern=r"^[^@\s<>]+@[^@\s<>]+$", max_length=254)] | None = None
    roles: Sequence[Name] = ()
    slack: Sequence[SlackAccount] = ()
    oidc: Sequence[OidcAccount] = ()
    factors: Sequence[FactorDigest] = ()


class Area(BaseModel):
    """A part of production. owners: the people who have the final say there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Text
    owners: Annotated[Sequence[Name], Field(min_length=1)]
    channel: Annotated[str, Field(pattern=r"^[CG][A-Z0-9]{1,20}$")] | None = None


class MisplacedValueError(ValueError):
    """Something that does not fit. where: the keys that lead to it."""

    def __init__(self, message: str, *where: str) -> None:
        super().__init__(message)
        self.where = where


class Organisation(BaseModel):
    """All people and areas together, since each names the other.

    roles: that rules may speak of even while nobody has them.
    sign_in_by_email: the issuers whose word for an address that they have verified is taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    people: Mapping[Name, Person]
    areas: Mapping[Name, Area]
    roles: Sequence[Name] = ()
    sign_in_by_email: Sequence[Issuer] = ()

    @property
    def held_roles(self) -> frozenset[str]:
        """Every role that somebody has."""
        return frozenset(role for person in self.people.values() for role in person.roles)

    @model_validator(mode="after")
    def _check_owners_exist(self) -> "Organisation":
        for area in self.areas.values():
            for owner in area.owners:
                if owner not in self.people:
                    raise MisplacedValueError(
                        f"area {area.name}: owner {owner} is not among the people of people.yaml",
                        *("areas", area.name, "owners"),
                    )
        return self

    @model_validator(mode="after")
    def _check_slack_accounts_unique(self) -> "Organisation":
        known: list[tuple[Person, SlackAccount]] = []
        for person in self.people.values():
            for account in person.slack:
                other = next(
                    (one for one, its in known if its.can_be_same_account(account)), person
                )
                if other != person:
                    raise MisplacedValueError(
                        f"Slack account {account.user} may belong to both {other.id} and "
                        f"{person.id}: give it to one of them, or say the enterprise of each",
                        *("people", person.id, "slack"),
                    )
                known.append((person, account))
        return self

    def find_by_slack(self, *, team: str, enterprise: str | None, user: str) -> Person | None:
        """Return whose account this is; None for strangers."""
        for person in self.people.values():
            for account in person.slack:
                same_home = account.team == team or (
                    account.enterprise is not None and account.enterprise == enterprise
                )
                if same_home and account.user == user:
                    return person
        return None

    @model_validator(mode="after")
    def _check_oidc_accounts_unique(self) -> "Organisation":
        known: dict[OidcAccount, Person] = {}
        for person in self.people.values():
            for subject in person.oidc:
                other = known.setdefault(subject, person)
                if other != person:
                    raise MisplacedValueError(
                        f"subject {subject.subject} of {subject.issuer} cannot belong to both "
                        f"{other.id} and {person.id}: give it to one of them",
                        *("people", person.id, "oidc"),
                    )
        return self

    @model_validator(mode="after")
    def _check_addresses_unique(self) -> "Organisation":
        known: dict[str, Person] = {}
        for person in self.people.values() if self.sign_in_by_email else ():
            other = known.setdefault((person.email or person.id).casefold(), person)
            if other != person:
                raise MisplacedValueError(
                    f"{other.id} and {person.id} have the address {person.email}, and "
                    "sign_in_by_email says that an address tells who somebody is: give each one "
                    "of their own",
                    *("people", person.id, "email"),
                )
        return self

    def find_by_oidc(self, *, issuer: str, subject: str) -> Person | None:
        """Return whose account with an OpenID Connect provider this is; None for strangers."""
        wanted = OidcAccount.model_construct(issuer=issuer, subject=subject)
        return next((one for one in self.people.values() if wanted in one.oidc), None)

    def find_by_email(self, *, issuer: str, email: str) -> Person | None:
        """Return whose verified address this is, if the policy takes the issuer's word for it.

        Whoever has a subject there is known by that alone.
        """
        if issuer not in self.sign_in_by_email or not email:
            return None
        for person in self.people.values():
            pinned = any(account.issuer == issuer for account in person.oidc)
            if not pinned and (person.email or "").casefold() == email.casefold():
                return person
        return None

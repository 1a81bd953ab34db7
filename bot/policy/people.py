"""The people and areas of the policy directory. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    model_validator,
)

from bot.model.plain_text import check_printable
from bot.signing.sshsig import PublicKey, SignatureError, parse_public_key
from connectors.inventory import Name
from connectors.visible_text import refuse_invisible

Text = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(check_printable)]

Issuer = Annotated[str, Field(pattern=r"^https?://[^\s?#]{1,200}$")]

FactorDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


_MAX_KEY_LINE = 4000
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def _parse_signing_key(line: object) -> PublicKey:
    if isinstance(line, PublicKey):
        return line
    if not isinstance(line, str) or len(line) > _MAX_KEY_LINE:
        raise ValueError("a signing key is one line of a .pub file, as text")
    try:
        return parse_public_key(check_printable(line.strip()))
    except SignatureError as error:
        raise ValueError(
            f"the line {error}: use the .pub file of an ed25519, ecdsa or -sk key, not rsa"
        ) from None


SigningKey = Annotated[InstanceOf[PublicKey], BeforeValidator(_parse_signing_key)]


ClaimName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_:/.-]{0,99}$")]

# A group of a provider, by its name there.
GroupName = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(check_printable)]


class SlackAccount(BaseModel):
    """One Slack account, identified by ids alone: names and addresses can be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: Annotated[str, Field(pattern=r"^T[A-Z0-9]{1,20}$")]
    """`T…`"""
    user: Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{1,20}$")]
    """`U…` or `W…`"""
    enterprise: Annotated[str, Field(pattern=r"^E[A-Z0-9]{1,20}$")] | None = None
    """`E…` on Enterprise Grid"""

    def can_be_same_account(self, other: "SlackAccount") -> bool:
        """Return whether both can be one account: on Enterprise Grid, all teams share accounts.

        A team without an enterprise could belong to the enterprise of the other account.
        """
        if self.user != other.user:
            return False
        if self.team == other.team or self.enterprise == other.enterprise is not None:
            return True
        return (self.enterprise is None) != (other.enterprise is None)


class OidcAccount(BaseModel):
    """An account with an OpenID Connect provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Issuer
    subject: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(refuse_invisible)]
    """Unique at the issuer, and never reused."""
    claim: ClaimName = "sub"
    """The claim of the issuer's tokens that has it."""


class Person(BaseModel):
    """A person with one id and any number of accounts elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    name: Text
    email: Annotated[str, Field(pattern=r"^[^@\s<>]+@[^@\s<>]+$", max_length=254)] | None = None
    roles: Sequence[Name] = ()
    slack: Sequence[SlackAccount] = ()
    oidc: Sequence[OidcAccount] = ()
    factors: Sequence[FactorDigest] = ()
    """The digests of second factors that are accepted without a confirmation."""
    signing_keys: Annotated[Sequence[SigningKey], Field(max_length=10)] = ()
    """The public keys with which the person signs plans, as lines of `.pub` files."""
    provisioned: Annotated[str, Field(pattern=_UUID)] | None = None
    """The id of the account with which the identity provider adds and removes this person."""


class MisplacedValueError(ValueError):
    """A value is invalid together with others. path: the keys that lead to it."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = path


class Provisioning(BaseModel):
    """What an identity provider may say of people: the section `provisioning` of people.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: Mapping[GroupName, Sequence[Name]] = {}
    """The roles that each group of the provider gives."""
    never: Sequence[Name] = ("administrator",)
    """Roles that no group may give: only people.yaml does."""
    issuer: Issuer | None = None
    """The OpenID Connect provider with which provisioned people sign in."""
    subject_claim: ClaimName = "sub"
    """The claim of its tokens that has the account's externalId."""
    groups_claim: ClaimName | None = None
    """The claim of its tokens that names groups, which hold for twelve hours."""

    @model_validator(mode="after")
    def _check_never(self) -> "Provisioning":
        for group, roles in self.groups.items():
            for role in roles:
                if role in self.never:
                    raise MisplacedValueError(
                        f"group {group} may not give the role {role}: write it to the people who "
                        f"have it, or remove {role} from never",
                        *("provisioning", "groups", group),
                    )
        if self.groups_claim and not self.issuer:
            raise MisplacedValueError(
                "groups_claim needs the issuer whose tokens have it: add issuer", "provisioning"
            )
        return self

    def get_roles(self, groups: Sequence[str]) -> Sequence[str]:
        """Return the roles that these groups give, sorted."""
        given = {role for group in groups for role in self.groups.get(group, ())}
        return tuple(sorted(given.difference(self.never)))


class Area(BaseModel):
    """A part of production."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Text
    owners: Annotated[Sequence[Name], Field(min_length=1)]
    """The people who have the final say there."""
    channel: Annotated[str, Field(pattern=r"^[CG][A-Z0-9]{1,20}$")] | None = None
    alert_agent: Name | None = None
    """The agent that checks hosts for alerts in the channel; None to wait for a person."""


class Organisation(BaseModel):
    """All people and areas, in one model because they refer to each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    people: Mapping[Name, Person]
    areas: Mapping[Name, Area]
    roles: Sequence[Name] = ()
    """Roles that rules may name even while no person has them."""
    sign_in_by_email: Sequence[Issuer] = ()
    """The issuers whose verified e-mail addresses identify a person."""
    verify_user: bool = False
    """Whether each signature must be of a device that asked for a fingerprint or a PIN."""
    provisioning: Provisioning | None = None
    """What an identity provider may say of people; None if none may."""

    @property
    def held_roles(self) -> frozenset[str]:
        """Every role that a person has, or that a group of the provider gives."""
        mapped = self.provisioning.groups.values() if self.provisioning else ()
        held = (person.roles for person in self.people.values())
        return frozenset(role for roles in (*held, *mapped) for role in roles)

    def list_unbound_people(self) -> Mapping[Name, Person]:
        """Return the people who are in force whatever a provider says."""
        return {name: one for name, one in self.people.items() if not one.provisioned}

    def with_people(self, people: Mapping[Name, Person]) -> "Organisation":
        """Return this organisation with these people in force, and owners among them only."""
        if people == self.people:
            return self.without_unknown_owners()
        return self.model_copy(update={"people": people}).without_unknown_owners()

    def without_unknown_owners(self) -> "Organisation":
        """Return this organisation without owners of areas that people.yaml does not have."""
        areas = {
            name: area.model_copy(
                update={"owners": [one for one in area.owners if one in self.people]}
            )
            for name, area in self.areas.items()
        }
        return self.model_copy(update={"areas": areas})

    @model_validator(mode="after")
    def _check_alert_agents_have_channel(self) -> "Organisation":
        for area in self.areas.values():
            if area.alert_agent and not area.channel:
                raise MisplacedValueError(
                    f"area {area.name} has an alert_agent and no channel: add the channel whose "
                    "alerts it answers",
                    *("areas", area.name, "alert_agent"),
                )
        return self

    @model_validator(mode="after")
    def _check_slack_accounts_unique(self) -> "Organisation":
        by_user: dict[str, list[tuple[Person, SlackAccount]]] = defaultdict(list)
        for person in self.people.values():
            for account in person.slack:
                known = by_user[account.user]
                other = next(
                    (one for one, its in known if its.can_be_same_account(account)), person
                )
                if other != person:
                    raise MisplacedValueError(
                        f"Slack account {account.user} may belong to both {other.id} and "
                        f"{person.id}: give it to one of them, or add the enterprise of each",
                        *("people", person.id, "slack"),
                    )
                known.append((person, account))
        return self

    @model_validator(mode="after")
    def _check_signing_keys_unique(self) -> "Organisation":
        known: dict[bytes, Person] = {}
        for person in self.people.values():
            for key in person.signing_keys:
                # As a key of a passkey and as one of a file, it is the same key.
                other = known.setdefault(key.point, person)
                if other != person:
                    raise MisplacedValueError(
                        f"the signing key {key.fingerprint} belongs to both "
                        f"{other.id} and {person.id}: each person signs with keys of their own",
                        *("people", person.id, "signing_keys"),
                    )
        return self

    def find_by_slack(self, *, team: str, enterprise: str | None, user: str) -> Person | None:
        """Return the person with this Slack account, or None."""
        for person in self.people.values():
            for account in person.slack:
                same_workspace = account.team == team or (
                    account.enterprise is not None and account.enterprise == enterprise
                )
                if same_workspace and account.user == user:
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
                        f"subject {subject.subject} of {subject.issuer} belongs to both "
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
                    f"{other.id} and {person.id} have the same address {person.email}, but with "
                    "sign_in_by_email an address must identify one person: give each a different "
                    "address",
                    *("people", person.id, "email"),
                )
        return self

    @model_validator(mode="after")
    def _check_provisioned(self) -> "Organisation":
        known: dict[str, Person] = {}
        for person in self.people.values():
            if self.provisioning is None:
                if person.provisioned:
                    raise MisplacedValueError(
                        f"{person.id} has provisioned, and there is no section provisioning: add "
                        "it, or remove the line",
                        *("people", person.id, "provisioned"),
                    )
                continue
            if not (person.email or person.provisioned):
                raise MisplacedValueError(
                    f"{person.id} needs an email, or provisioned: without either, an account of "
                    "the provider could be the same human as a second person",
                    *("people", person.id),
                )
            other = known.setdefault(person.provisioned or person.id, person)
            if other != person:
                raise MisplacedValueError(
                    f"the account {person.provisioned} belongs to both {other.id} and "
                    f"{person.id}: give it to one of them",
                    *("people", person.id, "provisioned"),
                )
        return self

    def find_by_oidc(self, *, issuer: str, subject: str, claim: str = "sub") -> Person | None:
        """Return the person with this OpenID Connect account, or None."""
        wanted = OidcAccount.model_construct(issuer=issuer, subject=subject, claim=claim)
        return next((one for one in self.people.values() if wanted in one.oidc), None)

    def find_by_email(self, *, issuer: str, email: str) -> Person | None:
        """Return the person with this verified address if the policy trusts the issuer, or None.

        A person with an account at the issuer is identified by its subject alone.
        """
        if issuer not in self.sign_in_by_email or not email:
            return None
        for person in self.people.values():
            pinned = any(account.issuer == issuer for account in person.oidc)
            if not pinned and (person.email or "").casefold() == email.casefold():
                return person
        return None

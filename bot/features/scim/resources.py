"""Users and groups of SCIM 2.0, with the attributes that Keyturn keeps, and their rows.

All others that a provider sends are ignored. Source: RFC 7643.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field
from scim2_models import (
    URN,
    AuthenticationScheme,
    CaseExact,
    ComplexAttribute,
    Context,
    ETag,
    Filter,
    Meta,
    Mutability,
    Patch,
    Reference,
    Required,
    Resource,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Uniqueness,
)
from scim2_models import Bulk as BulkSupport
from scim2_models import ChangePassword as PasswordSupport
from scim2_models import Sort as SortSupport

from bot.features.scim.actions import Account, check_account
from bot.features.scim.rows import GroupRow, UserRow
from bot.model.times import to_datetime

MAX_RESULTS = 200


class UserName(ComplexAttribute):
    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None


class Email(ComplexAttribute):
    value: str | None = None
    type: str | None = None
    primary: bool | None = None


class MemberOf(ComplexAttribute):
    value: Annotated[str | None, Mutability.read_only, CaseExact.true] = None
    ref: Annotated[Reference["Group"] | None, Mutability.read_only] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    display: Annotated[str | None, Mutability.read_only] = None


class User(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    """A unique name for the person, in ASCII."""

    name: UserName | None = None
    """The parts of the person's name."""

    Name: ClassVar[type[ComplexAttribute]] = UserName

    display_name: str | None = None
    """The name that Keyturn shows."""

    active: bool | None = None
    """Whether the person has any rights."""

    emails: list[Email] | None = None
    """The addresses of the person; the primary one counts."""

    Emails: ClassVar[type[ComplexAttribute]] = Email

    groups: Annotated[list[MemberOf] | None, Mutability.read_only] = None
    """The groups of the person."""

    Groups: ClassVar[type[ComplexAttribute]] = MemberOf


class GroupMember(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    """The id of a user."""

    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    """The address of the user."""


class Group(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    """The name by which the policy maps it to roles."""

    members: list[GroupMember] | None = None
    """Its users."""

    Members: ClassVar[type[ComplexAttribute]] = GroupMember


def build_provider() -> ScimProvider:
    """Return the description of the service, with what Microsoft Entra and Okta really send."""
    return ScimProvider(
        models=[User, Group],
        config=ServiceProviderConfig(
            patch=Patch(supported=True),
            bulk=BulkSupport(supported=False, max_operations=0, max_payload_size=0),
            filter=Filter(supported=True, max_results=MAX_RESULTS),
            change_password=PasswordSupport(supported=False),
            sort=SortSupport(supported=False),
            etag=ETag(supported=False),
            authentication_schemes=[
                AuthenticationScheme(
                    type=AuthenticationScheme.Type.oauthbearertoken,
                    name="Bearer token",
                    description="The token of KEYTURN_SCIM_TOKEN",
                )
            ],
        ),
        policy=ScimPolicy(
            unknown=ScimPolicy.Unknown.ignore,
            remove_value_as_filter=ScimPolicy.RemoveValue.apply,
            unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
        ),
    )


# --- users ---

_KEPT = ("displayName", "name", "emails", "active")


def build_user(row: UserRow) -> User:
    user = User.model_validate(
        {"schemas": [str(User.__schema__)], "userName": row.user_name, **row.document}
    )
    user.id, user.external_id = row.user_id, row.external_id or None
    user.groups = [
        MemberOf(value=one.group_id, ref=_refer(f"Groups/{one.group_id}"), display=one.name)
        for one in row.groups
    ] or None
    user.meta = _build_meta("User", row.created_at, row.changed_at)
    return user


def read_account(user: User, *, was_active: bool = True) -> Account:
    """Return what a resource says of an account. Raises InvalidRequestError.

    was_active: what holds if the resource does not say it.
    """
    name = user.name or UserName()
    parts = " ".join(part for part in (name.given_name, name.family_name) if part)
    document = user.model_dump(scim_ctx=Context.DEFAULT)
    return check_account(
        user_name=user.user_name or "",
        external_id=user.external_id or "",
        names=[user.display_name or "", name.formatted or "", parts],
        email=_find_address(user.emails or []),
        is_active=was_active if user.active is None else user.active,
        document={key: document[key] for key in _KEPT if key in document},
    )


def _find_address(emails: Sequence[Email]) -> str:
    """Return the primary address, or else the first."""
    primary = next((one.value for one in emails if one.primary and one.value), None)
    return primary or next((one.value for one in emails if one.value), None) or ""


# --- groups ---


def build_group(row: GroupRow) -> Group:
    return Group(
        id=row.group_id,
        external_id=row.external_id or None,
        display_name=row.name,
        members=[GroupMember(value=one, ref=_refer(f"Users/{one}")) for one in row.members]
        or None,
        meta=_build_meta("Group", row.created_at, row.changed_at),
    )


def list_members(group: Group) -> list[str]:
    """Return the ids of the members; one that is named by its address alone, by its end."""
    found = [
        one.value or str(one.ref or "").rpartition("/")[2] for one in group.members or () if one
    ]
    return [one for one in found if one]


def _refer(place: str) -> Any:
    """Return a reference, which the service makes an address."""
    return Reference[Any](place)


def _build_meta(kind: str, created_at: int, changed_at: int) -> Meta:
    return Meta(
        resource_type=kind,
        created=to_datetime(created_at),
        last_modified=to_datetime(changed_at),
        version=f'W/"{changed_at}"',
    )

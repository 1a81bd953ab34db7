"""Users and groups in the database, as scim2-server reads and writes them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scim2_models import (
    ForbiddenException,
    InvalidFilterException,
    InvalidValueException,
    NotFoundException,
    NotImplementedException,
    PreconditionFailedException,
    Resource,
    ResourceType,
    ResponseParameters,
    SearchRequest,
    UniquenessException,
)
from scim2_models.path import CompareOperator, Comparison, LogicalExpr, LogicalOperator, ValuePath
from scim2_server.storage import ScimStorage, SearchPage

from bot.db.database import Transaction
from bot.features.scim import rows
from bot.features.scim.actions import FullError, PeopleChange, TakenError
from bot.features.scim.resources import (
    Group,
    User,
    build_group,
    build_user,
    list_members,
    read_account,
)
from bot.features.scim.rows import GroupRow, UserRow
from bot.model.errors import InvalidRequestError

_FILTER_HELP = (
    'use ATTRIBUTE eq "VALUE", with userName, externalId, id or emails.value of a user, and '
    "displayName, externalId or id of a group; more conditions can follow with and"
)
# By which attributes users and groups are found, in lower case, and the names of their columns.
_USER_KEYS = {
    "id": "user_id",
    "username": "user_name",
    "externalid": "external_id",
    "emails": "email",
    "emails.value": "email",
}
_GROUP_KEYS = {"id": "group_id", "displayname": "name", "externalid": "external_id"}


class PeopleStorage(ScimStorage):
    """Users and groups of one request, in its transaction.

    change: for a request that may write; None for one that only reads.
    """

    def __init__(self, tx: Transaction, change: PeopleChange | None = None) -> None:
        self._tx, self._given = tx, change

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: ResponseParameters[Any] | None = None,  # noqa: ARG002 - of the protocol
    ) -> Resource[Any]:
        if _is_user(resource_type):
            return build_user(_require_user(self._tx, resource_id))
        return build_group(_require_group(self._tx, resource_id))

    def search(
        self,
        resource_types: list[ResourceType],
        search_request: SearchRequest[Any],
        *,
        position: Any = None,  # noqa: ARG002 - of the protocol
    ) -> SearchPage:
        if len(resource_types) != 1:
            raise NotImplementedException(detail="search /Users or /Groups, one at a time")
        is_user = _is_user(resource_types[0])
        start, count = search_request.start_index_0 or 0, search_request.count or 0
        if search_request.filter is None:
            return _read_page(self._tx, is_user=is_user, start=start, count=count)
        key, value = _find_key(search_request.filter, _USER_KEYS if is_user else _GROUP_KEYS)
        found: list[Resource[Any]] = (
            [*map(build_user, rows.find_users(self._tx, **{key: value}))]
            if is_user
            else [*map(build_group, rows.find_groups(self._tx, **{key: value}))]
        )
        matching = [one for one in found if search_request.filter.match(one)]
        return SearchPage(len(matching), matching[start : start + count])

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:  # noqa: ARG002
        with _translate_errors():
            if isinstance(resource, User):
                return build_user(self._change.create_user(read_account(resource)))
            return build_group(self._change.create_group(*_read_group(resource)))

    def update(
        self,
        resource_type: ResourceType,  # noqa: ARG002 - of the protocol
        resource: Resource[Any],
        *,
        expected_version: str | None = None,
    ) -> Resource[Any]:
        number = resource.id or ""
        with _translate_errors():
            if isinstance(resource, User):
                user = _require_user(self._tx, number, expected_version)
                account = read_account(resource, was_active=user.is_active)
                return build_user(self._change.update_user(user, account))
            group = _require_group(self._tx, number, expected_version)
            return build_group(self._change.update_group(group, *_read_group(resource)))

    def delete(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        expected_version: str | None = None,
    ) -> None:
        if _is_user(resource_type):
            self._change.delete_user(_require_user(self._tx, resource_id, expected_version))
        else:
            self._change.delete_group(_require_group(self._tx, resource_id, expected_version))

    @property
    def _change(self) -> PeopleChange:
        if self._given is None:
            raise ForbiddenException(detail="this request only reads")
        return self._given


@contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except TakenError as error:
        raise UniquenessException(detail=str(error)) from None
    except FullError as error:
        raise ForbiddenException(detail=str(error)) from None
    except InvalidRequestError as error:
        raise InvalidValueException(detail=str(error)) from None


def _is_user(resource_type: ResourceType) -> bool:
    return resource_type.name == "User"


def _read_group(group: Resource[Any]) -> tuple[str, str, Sequence[str]]:
    assert isinstance(group, Group)  # noqa: S101 - there is no other resource
    return group.display_name or "", group.external_id or "", list_members(group)


def _require_user(tx: Transaction, user_id: str, version: str | None = None) -> UserRow:
    found = rows.find_user(tx, user_id)
    if found is None:
        raise NotFoundException(detail="there is no such user")
    _check_version(version, found.changed_at)
    return found


def _require_group(tx: Transaction, group_id: str, version: str | None = None) -> GroupRow:
    found = rows.find_group(tx, group_id)
    if found is None:
        raise NotFoundException(detail="there is no such group")
    _check_version(version, found.changed_at)
    return found


def _check_version(expected: str | None, changed_at: int) -> None:
    if expected is not None and expected != f'W/"{changed_at}"':
        raise PreconditionFailedException(detail="it has changed since: read it again")


def _read_page(tx: Transaction, *, is_user: bool, start: int, count: int) -> SearchPage:
    if is_user:
        users = rows.list_users(tx, offset=start, limit=count)
        return SearchPage(rows.count_users(tx), [build_user(one) for one in users])
    groups = rows.list_groups(tx, offset=start, limit=count)
    return SearchPage(rows.count_groups(tx), [build_group(one) for one in groups])


def _find_key(scim_filter: Any, keys: Mapping[str, str]) -> tuple[str, str]:
    """Return the column and the value by which a filter narrows what it finds to a few rows.

    Raises InvalidFilterException for one that would take a look at everyone.
    """
    for term in _list_terms(scim_filter.ast):
        for name, value in _list_equalities(term):
            if name in keys and _can_be_stored(value):
                return keys[name], value
    raise InvalidFilterException(detail=f"this filter is not supported: {_FILTER_HELP}")


def _can_be_stored(value: str) -> bool:
    """Return whether a database has such a text: none has half of a character, or U+0000."""
    try:
        return bool(value.encode()) and "\0" not in value
    except UnicodeEncodeError:
        return False


def _list_terms(node: Any) -> Sequence[Any]:
    is_conjunction = isinstance(node, LogicalExpr) and node.op == LogicalOperator.and_
    return node.terms if is_conjunction else (node,)


def _list_equalities(node: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the attributes that a term compares for equality with a text, in lower case."""
    if isinstance(node, ValuePath):
        for term in _list_terms(node.val_filter):
            yield from _list_equalities(term, f"{node.attr_path.attr}.")
    if (
        isinstance(node, Comparison)
        and node.op == CompareOperator.eq
        and isinstance(node.value, str)
    ):
        path = node.attr_path
        name = f"{path.attr}.{path.sub_attr}" if path.sub_attr else path.attr
        yield f"{prefix}{name}".lower(), node.value

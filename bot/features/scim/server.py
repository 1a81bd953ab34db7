"""SCIM 2.0 at /scim/v2, for one identity provider with a token of its own.

Off without KEYTURN_SCIM_TOKEN. scim2-server, which knows the protocol, is imported with the first
request: it takes a second. Source: RFC 7644.
"""

import hmac
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from bot.audit import events, refusals
from bot.auth.rate_limit import RateLimit
from bot.db.database import Database, StoreUnavailable
from bot.feature import ServerContext, ServerPart
from bot.features.scim.actions import PeopleActions
from bot.features.scim.departure import SOURCE
from bot.policy import NoPolicyError

if TYPE_CHECKING:
    from scim2_models import ScimProvider
    from scim2_server.requests import ScimRequest
    from scim2_server.responses import ScimResponse

PATH = "/scim/v2"
MEDIA_TYPE = "application/scim+json"
_ERROR_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error"
_MAX_BODY_BYTES = 2 * 1024 * 1024
_MAX_FILTER, _MAX_PATH, _MAX_OPERATIONS = 500, 300, 1000
# More than there can be, and less than a database counts.
_MAX_NUMBER = 9
_NUMBERS = ("startIndex", "count")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Entra sends at most 25 requests a second. A caller without a token is held to fewer.
BURST, _PER_SECOND = 200, 30.0
REFUSED_BURST, _REFUSED_PER_SECOND = 20, 1.0


def build_server_part(context: ServerContext) -> ServerPart:
    token = context.settings.scim_token.get_secret_value()
    actions = context.service.bind(PeopleActions)
    if not token:
        # People whom a provider removed before stay removed, and so do their requests.
        return ServerPart(duties=[actions.leavers.run])
    endpoint = ScimEndpoint(actions, context.database, token, f"{context.settings.address}{PATH}")
    answer = Route("/{path:path}", endpoint.answer, methods=[*_METHODS])
    return ServerPart(duties=[actions.leavers.run], routes=[Mount(PATH, routes=[answer])])


class _Refused(Exception):
    """A request is refused before its content matters. retry_seconds: 0 if no time helps."""

    def __init__(
        self, status: int, detail: str, scim_type: str = "", retry_seconds: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.scim_type, self.retry_seconds = scim_type, retry_seconds


class ScimEndpoint:
    """Answers the requests of the identity provider.

    base_url: the address of /scim/v2, as the provider sees it.
    """

    def __init__(
        self, actions: PeopleActions, database: Database, token: str, base_url: str
    ) -> None:
        self._actions, self._database, self._base_url = actions, database, base_url
        self._token = token.encode()
        self._limit = RateLimit(burst=BURST, per_second=_PER_SECOND)
        self._refused_limit = RateLimit(burst=REFUSED_BURST, per_second=_REFUSED_PER_SECOND)
        self._threads: CapacityLimiter | None = None

    async def answer(self, request: Request) -> Response:
        # Few threads, so that a provider that sends thousands of people leaves some to pages.
        self._threads = self._threads or CapacityLimiter(2)
        try:
            self._check_token(request)
            body = await _read_body(request)
            body = _check_content(request, body)
            return await to_thread.run_sync(self._handle, request, body, limiter=self._threads)
        except _Refused as refused:
            if refused.status in {401, 429}:
                await to_thread.run_sync(self._log_refusal, refused.detail)
            return _build_error(refused)

    def _check_token(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_right = scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(errors="replace"), self._token
        )
        limit = self._limit if is_right else self._refused_limit
        if wait := limit.take(0):
            raise _Refused(429, "too many requests: try again later", "", wait)
        if not is_right:
            raise _Refused(401, "send the token of KEYTURN_SCIM_TOKEN: Authorization: Bearer …")

    def _log_refusal(self, reason: str) -> None:
        refusals.log_refusal_in_own_transaction(
            self._database, events.TokenRefused(reason=reason, source=SOURCE)
        )

    def _handle(self, request: Request, body: bytes) -> Response:
        from scim2_server.requests import ScimRequest

        scim_request = ScimRequest(
            request.method,
            self._base_url,
            f"/{request.path_params['path']}",
            dict(request.query_params),
            request.headers.items(),
            body,
        )
        try:
            found = self._protocol.handle(scim_request)
        except NoPolicyError:
            return _build_error(_Refused(503, "the policy is not valid, so nothing is permitted"))
        except StoreUnavailable:
            return _build_error(_Refused(503, "the database does not answer: try again"))
        return Response(
            json.dumps(found.body) if found.body is not None else None,
            int(found.status),
            dict(found.headers),
        )

    @cached_property
    def _protocol(self) -> "_Protocol":
        return _Protocol(self._actions)


class _Protocol:
    """The protocol as scim2-server has it, with one transaction for each request."""

    def __init__(self, actions: PeopleActions) -> None:
        from scim2_server.service import ScimService

        from bot.features.scim.resources import build_provider

        self._actions = actions
        self._provider: ScimProvider = build_provider()
        self._service = ScimService(self._provider)

    def handle(self, request: "ScimRequest") -> "ScimResponse":
        """Return the response. Raises NoPolicyError and StoreUnavailable."""
        from scim2_models import SCIMException
        from scim2_server.handler import ScimHandler

        from bot.features.scim.storage import PeopleStorage

        is_read = request.method in {"GET", "HEAD"} or request.path.endswith("/.search")
        try:
            if is_read:
                return self._actions.read(
                    lambda tx: ScimHandler(self._service, PeopleStorage(tx)).handle(request)
                )
            return self._actions.change(
                lambda change: ScimHandler(self._service, PeopleStorage(change.tx, change)).handle(
                    request
                )
            )
        except SCIMException as error:
            with self._provider:
                return self._service.error_response(error)


async def _read_body(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            limit = _MAX_BODY_BYTES // 1024 // 1024
            raise _Refused(413, f"the request is larger than {limit} MiB: send fewer members")
        chunks.append(chunk)
    return b"".join(chunks)


def _check_content(request: Request, body: bytes) -> bytes:
    """Return the body; refuse what would take long to understand, before it is parsed."""
    filters: list[object] = [*request.query_params.getlist("filter")]
    numbers: list[object] = [
        one for name in _NUMBERS for one in request.query_params.getlist(name)
    ]
    if "\0" in request.path_params["path"]:
        raise _Refused(404, "there is no such resource")
    parsed = _parse_json(body) if body else None
    if isinstance(parsed, dict):
        content = cast("dict[str, object]", parsed)
        filters += _list_values(content, "filter")
        numbers += _list_values(content, *_NUMBERS)
        changed = [_clean_operations(one) for one in _list_values(content, "operations")]
        if any(changed):
            body = json.dumps(content).encode()
    if any(len(str(one).lstrip("-")) > _MAX_NUMBER for one in numbers):
        raise _Refused(400, f"startIndex and count have at most {_MAX_NUMBER} digits")
    if any(isinstance(one, str) and len(one) > _MAX_FILTER for one in filters):
        raise _Refused(400, f"a filter has at most {_MAX_FILTER} characters", "invalidFilter")
    return body


def _list_values(content: dict[str, object], *names: str) -> list[object]:
    """Return the values of attributes, whose names have no case in SCIM."""
    wanted = {one.lower() for one in names}
    return [value for key, value in content.items() if key.lower() in wanted]


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "the body is not JSON", "invalidSyntax") from None


def _clean_operations(operations: object) -> bool:
    """Return whether an operation was changed; raise for one that is too large.

    Entra removes members by {"$ref": null, "value": ID}, where null means nothing: to compare it
    would match no member, and the person would silently stay in the group.
    """
    if not isinstance(operations, list):
        return False
    given = [
        cast("dict[str, object]", one)
        for one in cast("list[object]", operations)
        if isinstance(one, dict)
    ]
    if len(given) > _MAX_OPERATIONS:
        raise _Refused(400, f"a PATCH has at most {_MAX_OPERATIONS} operations", "tooMany")
    for one in given:
        paths = _list_values(one, "path")
        if any(isinstance(path, str) and len(path) > _MAX_PATH for path in paths):
            raise _Refused(400, f"a path has at most {_MAX_PATH} characters", "invalidPath")
    removed = [one for one in given if str(one.get("op")).lower() == "remove" and "value" in one]
    for one in removed:
        one["value"] = _drop_nulls(one["value"])
    return bool(removed)


def _drop_nulls(value: object) -> object:
    if isinstance(value, list):
        return [_drop_nulls(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        known = cast("dict[str, object]", value)
        return {key: one for key, one in known.items() if one is not None}
    return value


def _build_error(refused: _Refused) -> Response:
    content = {
        "schemas": [_ERROR_SCHEMA],
        "status": str(refused.status),
        "detail": refused.detail,
    }
    if refused.scim_type:
        content["scimType"] = refused.scim_type
    headers: dict[str, str] = {}
    if refused.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="SCIM"'
    if refused.retry_seconds:
        headers["Retry-After"] = str(int(refused.retry_seconds) + 1)
    return JSONResponse(content, refused.status, headers, media_type=MEDIA_TYPE)

"""Error responses: every refusal and every error as problem+json (RFC 9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from bot import observability
from bot.api.auth import InsufficientScopeError, InvalidTokenError
from bot.model import request_form
from bot.model.request_form import InvalidValuesError
from bot.model.text import capitalise_sentence
from connectors.errors import DomainError

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "urn:keyturn:problem:"


class KeyInUseError(DomainError):
    """The first request with this Idempotency-Key is in progress, or its outcome is unknown."""

    code, status = "idempotency-key-in-use", 409


class KeyReusedError(DomainError):
    """A different request was made with this Idempotency-Key before."""

    code, status = "idempotency-key-reused", 422


class Problem(BaseModel):
    """What is wrong, and what to do."""

    type: str = Field(examples=[f"{_TYPE_PREFIX}not-allowed"])
    title: str = Field(examples=["Not allowed"])
    status: int = Field(examples=[403])
    detail: str = Field(examples=["You cannot decide run 12: it is your own request."])
    instance: str = Field(examples=["/api/v1/runs/12/approve"])
    problems: dict[str, str] | None = Field(
        None,
        description="What is wrong, by the name of the parameter or field; within a field of the "
        "body, by its JSON pointer, such as `/values/host`.",
    )


_TITLES: Mapping[int, str] = {
    400: "Invalid JSON",
    401: "Authentication required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timed out",
    409: "Conflict",
    413: "Request too large",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Service unavailable",
}
_DEFAULT_DETAILS: Mapping[int, str] = {
    400: "The body is not valid JSON.",
    404: "Check the address: /api/v1/openapi.json lists all of them.",
    405: "Use another method: /api/v1/openapi.json lists the methods of each address.",
    500: "The service's log has the details. Try again later.",
}
_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# Error responses of every operation in the OpenAPI document, by status.
RESPONSES: Mapping[str, object] = {
    str(status): {"description": _TITLES[status], "content": _CONTENT}
    for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
}


def build_problem(
    request: Request,
    status: int,
    problem_type: str,
    detail: str = "",
    *,
    problems: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem as a response. Without detail, it has the default one of the status."""
    title = _TITLES.get(status, HTTPStatus(status).phrase)
    body = Problem(
        type=_TYPE_PREFIX + problem_type,
        title=title,
        status=status,
        detail=detail or _DEFAULT_DETAILS.get(status, title),
        instance=request.url.path[:200],
        problems=dict(problems) if problems else None,
    )
    return JSONResponse(
        body.model_dump(exclude_none=True), status, dict(headers or {}), media_type=MEDIA_TYPE
    )


def build_error_response(request: Request, error: Exception) -> JSONResponse | None:
    """Return the response to an exception; None for one that is a fault of Keyturn."""
    if isinstance(error, RequestValidationError):
        return _build_validation_problem(request, error)
    if isinstance(error, HTTPException):
        return _build_http_problem(request, error)
    if not isinstance(error, DomainError):
        return None
    route = observability.route_name(request.scope["path"])
    return build_problem(
        request,
        error.status,
        error.code,
        capitalise_sentence(observability.explain_error(error, f"{request.method} {route}")),
        problems=error.problems if isinstance(error, InvalidValuesError) else None,
        headers=_build_headers(error),
    )


def install_error_handlers(app: FastAPI) -> None:
    """Register the handler of all exceptions that a route may raise."""

    def handle(request: Request, error: Exception) -> JSONResponse:
        return build_error_response(request, error) or build_problem(
            request, 500, "internal-error"
        )

    for kind in (HTTPException, RequestValidationError, DomainError):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(Exception, handle)


def _build_headers(error: DomainError) -> dict[str, str]:
    headers = {} if error.retry_seconds is None else {"Retry-After": str(error.retry_seconds)}
    if isinstance(error, InvalidTokenError):
        headers["WWW-Authenticate"] = 'Bearer realm="keyturn"'
    if isinstance(error, InsufficientScopeError):
        headers["WWW-Authenticate"] = (
            f'Bearer realm="keyturn", error="insufficient_scope", scope="{error.scope}"'
        )
    return headers


def _build_http_problem(request: Request, error: HTTPException) -> JSONResponse:
    status = error.status_code
    phrase = HTTPStatus(status).phrase
    detail = "" if error.detail == phrase or status == 400 else error.detail
    problem_type = phrase.lower().replace(" ", "-")
    return build_problem(request, status, problem_type, detail, headers=error.headers)


def _build_validation_problem(request: Request, error: RequestValidationError) -> JSONResponse:
    """Return what is wrong by its place, without repeating what was sent."""
    places: dict[str, str] = {}
    for one in error.errors():
        place = _format_location(one["loc"])[:100]
        places.setdefault(place, request_form.describe_invalid_value(one))
        known = _list_body_fields(request)
        if one["type"] == "extra_forbidden" and one["loc"] == ("body", place) and known:
            places[place] = f"is an unknown field: use {', '.join(known)}"
    if any(one["type"] == "json_invalid" for one in error.errors()):
        return build_problem(request, 400, "bad-request")
    if any(one["loc"][0] == "path" for one in error.errors()):
        return build_problem(request, 404, "not-found")
    if "body" in places and "json" not in request.headers.get("content-type", ""):
        places["body"] = "must be JSON, sent with Content-Type: application/json"
    detail = "; ".join(f"{where}: {what}" for where, what in list(places.items())[:5])
    return build_problem(request, 422, "invalid-request", detail, problems=places)


def _list_body_fields(request: Request) -> Sequence[str]:
    """Return the fields of the body that the route takes; none where it is no model."""
    body = getattr(request.scope.get("route"), "body_field", None)
    model = body.field_info.annotation if body else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ()
    return [field.alias or name for name, field in model.model_fields.items()]


def _format_location(loc: Sequence[str | int]) -> str:
    """Return a parameter's name, or a JSON pointer into the body, for pydantic's location."""
    where, *path = [str(name) for name in loc]
    if where != "body" or len(path) <= 1:
        # The index of a repeated parameter is of no use to the caller.
        return path[0] if path else where
    # Pydantic reports an invalid key below the place of its value.
    inner = path[:-1] if path[-1] == "[key]" else path
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in inner)

"""Problems: every no and every fault as problem+json (RFC 9457), in the words of the pages."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from bot import observability
from bot.api.auth import NotForThat, NoToken, TooFast
from bot.audit.verification import VerificationInProgress
from bot.db.database import StoreUnavailable
from bot.db.runs import ConcurrentUpdateError, NoSuchRun
from bot.db.schedules import NoSuchSchedule
from bot.db.view_conditions import NotEverything
from bot.model import request_form
from bot.model.errors import (
    InvalidRequestError,
    NotAllowed,
    StepUpRequired,
    TooLate,
    TooManyRequestsError,
)
from bot.model.request_form import InvalidValuesError, RequestSyntaxError
from bot.model.run import IllegalTransitionError
from bot.model.schedule import ScheduleError
from bot.model.text import capitalise_sentence
from bot.policy import NoPolicyError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_KIND = "urn:keyturn:problem:"


class StillAtIt(Exception):
    """The first request with the same key is worked on, or nobody knows how it ended."""


class UsedForSomethingElse(Exception):
    """Another request has come with the same key."""


class Problem(BaseModel):
    """What is so, and what to do.

    problems: what is wrong, by the name of the parameter or field; within a field of the body, by
    its JSON pointer, such as `/values/host`.
    """

    type: str = Field(examples=[f"{_KIND}not-yours"])
    title: str = Field(examples=["That is not for you"])
    status: int = Field(examples=[403])
    detail: str = Field(examples=["You cannot decide run 12: it is your own request."])
    instance: str = Field(examples=["/api/v1/runs/12/approve"])
    problems: dict[str, str] | None = None


_TITLES: Mapping[int, str] = {
    400: "That could not be read",
    401: "You are not signed in",
    403: "That is not for you",
    404: "There is no such thing",
    405: "That cannot be done here",
    408: "That took too long",
    409: "Somebody was faster",
    413: "That is too long",
    415: "That is no JSON",
    422: "That does not fit",
    429: "That was too much at once",
    500: "Keyturn has a fault",
    503: "Keyturn cannot work now",
}
_USUAL: Mapping[int, str] = {
    400: "The request was garbled: it is no JSON.",
    404: "The address may be mistyped: /api/v1/openapi.json lists all that there are.",
    405: "This address is for something else: /api/v1/openapi.json lists what each is for.",
    500: "It was written down in the service's log. Try it again later.",
}
_SHAPE = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# What the description says of any operation, by status. Stated once: nothing else ever comes.
RESPONSES: Mapping[str, object] = {
    str(status): {"description": _TITLES[status], "content": _SHAPE}
    for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
}

# The first that fits tells: a kind of exception stands before what it is a kind of.
_KINDS: Sequence[tuple[type[Exception], int, str]] = (
    (NoToken, 401, "no-token"),
    (NotForThat, 403, "other-scope"),
    (TooFast, 429, "too-fast"),
    (TooManyRequestsError, 429, "too-much"),
    (StillAtIt, 409, "same-key-at-work"),
    (UsedForSomethingElse, 422, "same-key-other-request"),
    (StepUpRequired, 403, "second-factor"),
    (NotAllowed, 403, "not-yours"),
    (NotEverything, 403, "not-yours"),
    (VerificationInProgress, 409, "at-it-already"),
    (TooLate, 409, "too-late"),
    (ConcurrentUpdateError, 409, "overtaken"),
    (IllegalTransitionError, 409, "too-late"),
    (NoSuchRun, 404, "no-such-run"),
    (NoSuchSchedule, 404, "no-such-schedule"),
    (RequestSyntaxError, 422, "not-understood"),
    (ScheduleError, 422, "not-understood"),
    (InvalidRequestError, 422, "unfit"),
    (NoPolicyError, 503, "no-policy"),
    (StoreUnavailable, 503, "no-database"),
)


def problem(
    request: Request,
    status: int,
    kind: str,
    detail: str = "",
    *,
    problems: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return one as a response; detail: "" for what is usually said of the status."""
    title = _TITLES.get(status, HTTPStatus(status).phrase)
    told = Problem(
        type=_KIND + kind,
        title=title,
        status=status,
        detail=detail or _USUAL.get(status, title),
        instance=request.url.path[:200],
        problems=dict(problems) if problems else None,
    )
    return JSONResponse(
        told.model_dump(exclude_none=True), status, dict(headers or {}), media_type=MEDIA_TYPE
    )


def answer(request: Request, error: Exception) -> JSONResponse | None:
    """Return what an exception means to the caller; None if it is a fault of ours."""
    if isinstance(error, RequestValidationError):
        return _misfit(request, error)
    if isinstance(error, HTTPException):
        return _http(request, error)
    found = next(((s, k) for kind, s, k in _KINDS if isinstance(error, kind)), None)
    if found is None:
        return None
    status, kind = found
    return problem(
        request,
        status,
        kind,
        _words(request, error),
        problems=error.problems if isinstance(error, InvalidValuesError) else None,
        headers=_headers(error),
    )


def install(app: FastAPI) -> None:
    """Give every exception that a request may meet its answer."""

    def told(request: Request, error: Exception) -> JSONResponse:
        return answer(request, error) or problem(request, 500, "fault")

    for kind in (HTTPException, RequestValidationError, *(kind for kind, _, _ in _KINDS)):
        app.add_exception_handler(kind, told)
    app.add_exception_handler(Exception, told)


def _words(request: Request, error: Exception) -> str:
    """Return the message, unless it is for those who run Keyturn only."""
    if isinstance(error, NoPolicyError):
        log.error("there is no valid policy: %s", error)
        return (
            "The policy files cannot be used as they are, so nobody may do anything. "
            "`keyturn policy check` says where and what to do."
        )
    if isinstance(error, StoreUnavailable):
        log.critical(
            "%s %s: %s", request.method, observability.route_name(request.scope["path"]), error
        )
        return (
            "The database does not answer, so nothing was done. Try it again in a moment; "
            "whoever runs Keyturn finds the reason in its log."
        )
    return capitalise_sentence(str(error))


def _headers(error: Exception) -> dict[str, str]:
    match error:
        case NoToken():
            return {"WWW-Authenticate": 'Bearer realm="keyturn"'}
        case NotForThat():
            said = f'Bearer realm="keyturn", error="insufficient_scope", scope="{error.scope}"'
            return {"WWW-Authenticate": said}
        case TooFast():
            return {"Retry-After": str(error.seconds)}
        case TooManyRequestsError():
            return {"Retry-After": "60"}
        case StoreUnavailable() | NoPolicyError():
            return {"Retry-After": "5"}
        case _:
            return {}


def _http(request: Request, error: HTTPException) -> JSONResponse:
    status = error.status_code
    phrase = HTTPStatus(status).phrase
    ours = "" if error.detail == phrase or status == 400 else error.detail
    kind = phrase.lower().replace(" ", "-")
    return problem(request, status, kind, ours, headers=error.headers)


def _misfit(request: Request, error: RequestValidationError) -> JSONResponse:
    """Say what does not fit, by its place; what was sent is not repeated."""
    places: dict[str, str] = {}
    for one in error.errors():
        places.setdefault(_place(one["loc"])[:100], request_form.describe_invalid_value(one))
    if any(one["type"] == "json_invalid" for one in error.errors()):
        return problem(request, 400, "bad-request")
    if any(one["loc"][0] == "path" for one in error.errors()):
        return problem(request, 404, "not-found")
    if "body" in places and "json" not in request.headers.get("content-type", ""):
        places["body"] = "must be JSON, sent with Content-Type: application/json"
    detail = "; ".join(f"{where}: {what}" for where, what in list(places.items())[:5])
    return problem(request, 422, "unfit", detail, problems=places)


def _place(loc: Sequence[str | int]) -> str:
    """Return what callers know the place of a value by, from that which pydantic tells."""
    where, *path = [str(part) for part in loc]
    if where != "body" or len(path) <= 1:
        # Of a parameter that is given several times, which one it was can be seen.
        return path[0] if path else where
    # A key that does not fit stands where its value would.
    inner = path[:-1] if path[-1] == "[key]" else path
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in inner)

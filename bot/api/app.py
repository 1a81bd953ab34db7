"""Builds the API out of the parts it is handed."""

import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from bot.api import (
    calendar,
    catalogue,
    compare,
    erasure,
    errors,
    form_options,
    health,
    hosts,
    me,
    middleware,
    policy,
    preview,
    progress,
    runs,
    schedules,
    timeline,
    wait_report,
)
from bot.api.deps import ApiParts
from bot.api.long_poll import Waiters
from bot.api.webhooks_out import Told

_ROOMS = (
    catalogue,
    hosts,
    timeline,
    # Before the runs, whose address would take its own for a number.
    compare,
    runs,
    progress,
    erasure,
    schedules,
    calendar,
    form_options,
    policy,
    preview,
    me,
    wait_report,
    health,
)
_ABOUT = """Two keys for production: what the pages do, for programs.

Come with `Authorization: Bearer kt_…`. Errors are problem+json (RFC 9457). A POST may carry an
`Idempotency-Key`: the same request with it has one effect, for a day. Pages lead on by `next`."""


def build(parts: ApiParts) -> FastAPI:
    """Return the application, which is served under /api/v1."""
    app = FastAPI(
        title="Keyturn",
        version=version("keyturn"),
        description=_ABOUT,
        openapi_url=None,
        servers=[{"url": "/api/v1"}],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.waiters = Waiters(parts)
    errors.install(app)
    # Routers within the router would be put together anew, and looked through for each request.
    app.router.routes += [route for room in _ROOMS for route in room.router.routes]
    app.add_route("/openapi.json", _description(app), include_in_schema=False)
    app.webhooks.post("run", summary="Tell that something happened to a run", tags=["hooks"])(told)
    _describe_problems(app)
    app.add_middleware(
        middleware.Guard, secure=parts.base_url.startswith("https:"), refuse=_refuse
    )
    return app


def told(told: Told) -> None:
    """Sent to subscriptions, signed as Standard Webhooks say; any 2xx is a yes.

    Without one it is sent again for about a day, each time after twice as long, and what happened
    to the same run later waits. Several may come for one `entry`, with the same `webhook-id`.
    """


def _refuse(request: Request, status: int) -> Response:
    words = {
        408: "The request came in too slowly.",
        413: f"That is more than {middleware.MOST_BYTES // 1024} KiB. Say it in fewer words.",
    }
    return errors.problem(request, status, "too-much", words[status])


def _description(app: FastAPI) -> Callable[[Request], Response]:
    """Return the endpoint that describes all. It is put together once, which takes a second.

    FastAPI's own would do so in the event loop, where meanwhile nobody else is answered.
    """
    once = threading.Lock()
    drawn: list[bytes] = []

    def description(request: Request) -> Response:  # noqa: ARG001 - as Starlette calls it
        with once:
            if not drawn:
                drawn.append(bytes(JSONResponse(app.openapi()).body))
        return Response(drawn[0], media_type="application/json")

    return description


def _describe_problems(app: FastAPI) -> None:
    """Say in the description which problems any operation may answer with."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        whole = plain()
        whole["components"]["schemas"]["Problem"] = errors.Problem.model_json_schema()
        for path in cast("dict[str, dict[str, Any]]", whole["paths"]).values():
            for operation in path.values():
                operation["responses"] |= errors.RESPONSES
        return whole

    app.openapi = described  # pyright: ignore[reportAttributeAccessIssue] - FastAPI's own way

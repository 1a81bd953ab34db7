"""Build the API application from its parts."""

import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from bot.api import (
    catalogue,
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
    timeline,
)
from bot.api.deps import ApiParts
from bot.api.long_poll import Waiters
from bot.api.run_event import receive_run_event

_MODULES = (
    catalogue,
    hosts,
    timeline,
    runs,
    progress,
    form_options,
    policy,
    preview,
    me,
    health,
)
_DESCRIPTION = """Audited runbooks with approvals.

Send `Authorization: Bearer kt_…` with each request. Errors are problem+json (RFC 9457). A POST may
carry an `Idempotency-Key`: repeats with the same key have one effect for a day. The member `next`
of a page is the address of the next page."""


def build_api(parts: ApiParts) -> FastAPI:
    """Return the application that is mounted at /api/v1."""
    app = FastAPI(
        title="Keyturn",
        version=version("keyturn"),
        description=_DESCRIPTION,
        openapi_url=None,
        servers=[{"url": "/api/v1"}],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.waiters = Waiters(parts)
    errors.install_error_handlers(app)
    # include_router() would copy each route, and match nested routers for each request.
    routers = [*(module.router for module in _MODULES), *parts.routers]
    app.router.routes += [route for router in routers for route in router.routes]
    app.add_route("/openapi.json", _build_openapi_endpoint(app), include_in_schema=False)
    app.webhooks.post("run", summary="Receive an event of a run", tags=["webhooks"])(
        receive_run_event
    )
    _add_problem_responses(app)
    app.add_middleware(middleware.RequestGuard, secure=parts.base_url.startswith("https:"))
    return app


def _build_openapi_endpoint(app: FastAPI) -> Callable[[Request], Response]:
    """Return the endpoint of the OpenAPI document, which is built once; that takes a second.

    FastAPI's own endpoint would block the event loop meanwhile.
    """
    lock = threading.Lock()
    documents: list[bytes] = []

    def get_openapi(request: Request) -> Response:  # noqa: ARG001 - as Starlette calls it
        with lock:
            if not documents:
                documents.append(bytes(JSONResponse(app.openapi()).body))
        return Response(documents[0], media_type="application/json")

    return get_openapi


def _add_problem_responses(app: FastAPI) -> None:
    """Add the error responses to every operation of the OpenAPI document."""
    build_openapi = app.openapi

    def build_with_problems() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        document = build_openapi()
        document["components"]["schemas"]["Problem"] = errors.Problem.model_json_schema()
        for path in cast("dict[str, dict[str, Any]]", document["paths"]).values():
            for operation in path.values():
                operation["responses"] |= errors.RESPONSES
        return document

    # As FastAPI documents it.
    app.openapi = build_with_problems  # pyright: ignore[reportAttributeAccessIssue]

"""Builds the web door out of the parts it is handed."""

import logging

from fastapi import FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from bot.web import (
    audit_log,
    bans,
    compare,
    delegations,
    emergency,
    erasure,
    errors,
    health,
    health_page,
    home,
    hosts,
    login,
    middleware,
    oidc,
    output,
    policy,
    request,
    run,
    run_proof,
    runs,
    saved_views,
    schedules,
    second_factor,
    sessions,
    step_up,
    stream,
    timeline,
    tokens,
    wait_report,
)
from bot.web.assets import STATIC_DIRECTORY, describe_missing_assets
from bot.web.deps import WebDependencies

_ROUTER_MODULES = (
    home,
    runs,
    audit_log,
    # Before the run's page, whose address would take its own for a number.
    compare,
    run,
    stream,
    run_proof,
    erasure,
    hosts,
    timeline,
    saved_views,
    request,
    wait_report,
    health_page,
    schedules,
    delegations,
    policy,
    login,
    output,
    oidc,
    sessions,
    second_factor,
    step_up,
    tokens,
    bans,
    emergency,
    health,
)

log = logging.getLogger(__name__)


def build_app(parts: WebDependencies) -> FastAPI:
    """Return the application. It refuses every POST that does not come from its own pages."""
    app = FastAPI(title="Keyturn", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.parts = parts
    if bare := describe_missing_assets():
        log.error("the pages %s", bare)
    app.state.looks = stream.ProgressCache()
    errors.install_error_handlers(app, parts)
    # Routers within the router would be looked through anew for each request.
    app.router.routes += [route for room in _ROUTER_MODULES for route in room.router.routes]
    # Pages are not compressed: how long they become would tell of what stands in them.
    app.mount(
        "/static",
        GZipMiddleware(_StaticFilesWithCache(directory=STATIC_DIRECTORY), compresslevel=6),
        "static",
    )
    app.add_middleware(middleware.RequestGuard, origin=parts.origin, build_refusal=_build_refusal)
    return app


def _build_refusal(status: int, message: str) -> Response:
    """Draw a refusal for a request that nothing has looked into."""
    bare = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    return errors.render_refusal(bare, status, message)


class _StaticFilesWithCache(StaticFiles):
    """Files whose address holds a hash of their content: kept for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        hashed = scope.get("query_string", b"").startswith(b"v=")
        answer.headers["Cache-Control"] = (
            "public, max-age=31536000, immutable" if hashed else "no-cache"
        )
        return answer

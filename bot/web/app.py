"""Build the web application."""

import logging

from fastapi import FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from bot.web import (
    access,
    bans,
    change_log,
    changes,
    compare,
    emergency,
    errors,
    health,
    home,
    hosts,
    login,
    middleware,
    oidc,
    policy,
    request,
    run,
    runs,
    second_factor,
    sessions,
    signing,
    site_search,
    stream,
    tokens,
)
from bot.web.assets import STATIC_DIRECTORY, describe_missing_assets
from bot.web.change_feed import ChangeFeed
from bot.web.deps import WebDependencies

_ROUTER_MODULES = (
    home,
    runs,
    change_log,
    # Before `run`, whose route /runs/{number} would match /runs/compare.
    compare,
    signing,
    run,
    stream,
    hosts,
    changes,
    request,
    access,
    policy,
    site_search,
    login,
    oidc,
    sessions,
    second_factor,
    tokens,
    bans,
    emergency,
    health,
)

log = logging.getLogger(__name__)


def build_app(deps: WebDependencies) -> FastAPI:
    """Return the web application. It refuses POST requests that do not come from its own pages."""
    app = FastAPI(title="Keyturn", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.deps = deps
    if missing := describe_missing_assets():
        log.error("the pages %s", missing)
    app.state.progress_cache = stream.ProgressCache()
    limits = deps.stream_slots.limits
    app.state.change_feed = ChangeFeed(
        deps.database,
        deps.policies,
        max_age=2 * limits.poll_seconds,
        session_seconds=limits.session_check_seconds,
    )
    errors.install_error_handlers(app, deps)
    # Add the routes directly: nested routers would be searched for each request.
    routers = [
        *(one.router for one in deps.pages),
        *(module.router for module in _ROUTER_MODULES),
    ]
    app.router.routes += [route for router in routers for route in router.routes]
    # Pages are not compressed, because the compressed size leaks their content (BREACH).
    app.mount(
        "/static",
        GZipMiddleware(_StaticFilesWithCache(directory=STATIC_DIRECTORY), compresslevel=6),
        "static",
    )
    app.add_middleware(
        middleware.RequestGuard,
        origin=deps.origin,
        open_path=signing.RETURN_PATH,
        build_refusal=_build_refusal,
    )
    return app


def _build_refusal(status: int, message: str) -> Response:
    """Return the page of a refusal by the request guard."""
    bare = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    return errors.render_refusal(bare, status, message)


class _StaticFilesWithCache(StaticFiles):
    """Static files; browsers cache those whose address has a hash for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        hashed = scope.get("query_string", b"").startswith(b"v=")
        response.headers["Cache-Control"] = (
            "public, max-age=31536000, immutable" if hashed else "no-cache"
        )
        return response

"""Builds the web door out of the parts it is handed."""

import logging

from fastapi import FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from bot.web import (
    around_page,
    ask_page,
    bans_page,
    brake_page,
    compare_page,
    condition_page,
    erasure_page,
    guard,
    health,
    history,
    home,
    hosts_page,
    log_page,
    login,
    mandates_page,
    oidc,
    output_page,
    policy_page,
    proof_page,
    report_page,
    run_page,
    schedules_page,
    second_factor,
    sessions_page,
    step_up,
    stream,
    tokens_page,
    trouble,
    views_page,
)
from bot.web.outfit import STATIC, lacking
from bot.web.parts import WebParts

_ROOMS = (
    home,
    history,
    log_page,
    # Before the run's page, whose address would take its own for a number.
    compare_page,
    run_page,
    stream,
    proof_page,
    erasure_page,
    hosts_page,
    around_page,
    views_page,
    ask_page,
    report_page,
    condition_page,
    schedules_page,
    mandates_page,
    policy_page,
    login,
    output_page,
    oidc,
    sessions_page,
    second_factor,
    step_up,
    tokens_page,
    bans_page,
    brake_page,
    health,
)

log = logging.getLogger(__name__)


def build(parts: WebParts) -> FastAPI:
    """Return the application. It refuses every POST that does not come from its own pages."""
    app = FastAPI(title="Keyturn", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.parts = parts
    if bare := lacking():
        log.error("the pages %s", bare)
    app.state.looks = stream.Looks()
    trouble.install(app, parts)
    # Routers within the router would be looked through anew for each request.
    app.router.routes += [route for room in _ROOMS for route in room.router.routes]
    # Pages are not compressed: how long they become would tell of what stands in them.
    app.mount("/static", GZipMiddleware(_Files(directory=STATIC), compresslevel=6), "static")
    app.add_middleware(guard.Guard, origin=parts.origin, refuse=_refuse)
    return app


def _refuse(status: int, words: str) -> Response:
    """Draw a refusal for a request that nothing has looked into."""
    bare = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    return trouble.refusal(bare, status, words)


class _Files(StaticFiles):
    """Files whose address holds a hash of their content: kept for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        hashed = scope.get("query_string", b"").startswith(b"v=")
        answer.headers["Cache-Control"] = (
            "public, max-age=31536000, immutable" if hashed else "no-cache"
        )
        return answer

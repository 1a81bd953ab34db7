"""Hooks that others call: what happened elsewhere becomes an entry beside our own changes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.api import errors, middleware
from bot.audit import inbound_events, refusals
from bot.db.database import Database, StoreUnavailable
from bot.policy import NoPolicyError, PolicySource
from bot.webhooks import formats
from bot.webhooks.config import WebhookConfig, WebhookSource
from bot.webhooks.formats import InvalidBodyError, StaleEventError, WebhookEvent
from bot.webhooks.signature import SignatureError, check_signature

log = logging.getLogger(__name__)

_MINUTE = 60.0


class Incoming:
    """Takes what sources send. clock: seconds since 1970."""

    def __init__(
        self,
        hooks: WebhookConfig,
        database: Database,
        policies: PolicySource,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._hooks, self._database, self._policies = hooks, database, policies
        self._clock = clock
        self._lately = {name: deque[float]() for name in hooks.sources}

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        try:
            return await asyncio.to_thread(self._taken, request, body)
        except (StoreUnavailable, NoPolicyError) as trouble:
            log.error("an event could not be kept: %s", trouble)
            return errors.problem(
                request, 503, "unavailable", "It cannot be kept now: send it again in a moment."
            )

    def _taken(self, request: Request, body: bytes) -> Response:
        now = self._clock()
        source = self._hooks.sources.get(request.path_params["name"])
        try:
            if source is None:
                raise SignatureError("there is no such source")
            check_signature(
                source.signature_scheme, source.secret, request.headers, body, now=int(now)
            )
        except SignatureError as no:
            # Which of them it was is nobody's business but the log's.
            whose = source.name if source else ""
            refusals.log_refusal_in_own_transaction(
                self._database, refusals.WEBHOOK_REFUSED, source=whose, reason=str(no)
            )
            return errors.problem(
                request, 401, "not-signed", "This is not signed by a source that is known here."
            )
        if self._too_much(source, now):
            answer = errors.problem(
                request,
                429,
                "too-much",
                f"More than {source.max_per_minute} a minute: send it later.",
            )
            answer.headers["Retry-After"] = "60"
            return answer
        try:
            told = formats.parse_events(
                source.format,
                body,
                delivery_id=request.headers.get("webhook-id", ""),
                inventory=self._policies.get_policy().inventory,
                now=int(now),
            )
        except StaleEventError as old:
            return errors.problem(request, 409, "too-old", f"Nothing was noted: {old}.")
        except InvalidBodyError as trouble:
            return errors.problem(request, 422, "not-understood", str(trouble))
        return JSONResponse({"noted": self._noted(source, told)}, 202 if told else 200)

    def _noted(self, source: WebhookSource, told: Sequence[WebhookEvent]) -> list[int]:
        """Return the numbers of the new entries: what was told before has one already."""
        with self._database.transaction() as tx:
            entries = [
                inbound_events.record_event(
                    tx,
                    source.name,
                    one.key,
                    hosts=tuple(one.hosts),
                    happened_at=one.happened_at,
                    details={
                        "title": one.title,
                        "category": one.category,
                        "reported_by": one.person,
                        "detail": one.detail,
                        "url": one.url,
                    },
                )
                for one in told
            ]
        return [entry.seq for entry in entries if entry is not None]

    def _too_much(self, source: WebhookSource, now: float) -> bool:
        lately = self._lately[source.name]
        while lately and lately[0] <= now - _MINUTE:
            lately.popleft()
        if len(lately) >= source.max_per_minute:
            return True
        lately.append(now)
        return False


def build(incoming: Incoming, *, secure: bool) -> Starlette:
    """Return the application, which is served under /hooks."""
    app = Starlette(routes=[Route("/{name}", incoming.answer, methods=["POST"])])
    app.add_middleware(middleware.Guard, secure=secure, refuse=_refuse)
    return app


def _refuse(request: Request, status: int) -> Response:
    words = {
        408: "The request came in too slowly.",
        413: f"That is more than {middleware.MOST_BYTES // 1024} KiB.",
    }
    return errors.problem(request, status, "too-much", words[status])

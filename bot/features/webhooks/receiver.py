"""Incoming webhooks: events of other systems become entries of the change log."""

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
from bot.audit import change_log, events, refusals
from bot.db import dedup
from bot.db.database import Database, StoreUnavailable
from bot.features.webhooks import formats as webhook_formats
from bot.features.webhooks.config import WebhookConfig, WebhookSource
from bot.features.webhooks.formats import InvalidBodyError, StaleEventError, WebhookEvent
from bot.integrations.webhook_signature import SignatureError, check_signature
from bot.policy import NoPolicyError, PolicySource

log = logging.getLogger(__name__)

_MINUTE = 60.0


class WebhookReceiver:
    """Receives events from the configured sources.

    Args:
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        config: WebhookConfig,
        database: Database,
        policies: PolicySource,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._database, self._policies = config, database, policies
        self._clock = clock
        self._recent = {name: deque[float]() for name in config.sources}

    async def receive(self, request: Request) -> Response:
        body = await request.body()
        try:
            return await asyncio.to_thread(self._record, request, body)
        except (StoreUnavailable, NoPolicyError) as error:
            log.error("cannot record a webhook event: %s", error)
            return errors.build_problem(
                request, 503, "unavailable", "The event cannot be recorded now: send it again."
            )

    def _record(self, request: Request, body: bytes) -> Response:
        now = self._clock()
        source = self._config.sources.get(request.path_params["name"])
        try:
            if source is None:
                raise SignatureError("unknown source")
            check_signature(
                source.signature_scheme, source.secret, request.headers, body, now=int(now)
            )
        except SignatureError as error:
            # The response does not reveal whether the source exists; the log has the reason.
            name = source.name if source else ""
            refusals.log_refusal_in_own_transaction(
                self._database, events.WebhookRefused(source=name, reason=str(error))
            )
            return errors.build_problem(
                request,
                401,
                "invalid-signature",
                "The signature does not match a known source: check its name and secret.",
            )
        if self._exceeds_rate(source, now):
            return errors.build_problem(
                request,
                429,
                "rate-limited",
                f"More than {source.max_per_minute} events per minute: send it later.",
                headers={"Retry-After": "60"},
            )
        try:
            received = webhook_formats.parse_events(
                source.format,
                body,
                delivery_id=request.headers.get("webhook-id", ""),
                inventory=self._policies.get_policy().inventory,
                now=int(now),
            )
        except StaleEventError as error:
            return errors.build_problem(
                request, 409, "event-too-old", f"Nothing was recorded: {error}."
            )
        except InvalidBodyError as error:
            return errors.build_problem(request, 422, "invalid-request", str(error))
        entries = self._append_entries(source, received)
        return JSONResponse({"entries": entries}, 202 if received else 200)

    def _append_entries(
        self, source: WebhookSource, received: Sequence[WebhookEvent]
    ) -> list[int]:
        """Return the numbers of the new entries; an event that was recorded before has none."""
        with self._database.transaction() as tx:
            return [
                change_log.append_entry(
                    tx,
                    events.ExternalEvent(
                        source=source.name,
                        title=event.title,
                        hosts=tuple(event.hosts),
                        occurred_at=event.happened_at,
                        category=event.category,
                        reported_by=event.person,
                        detail=event.detail,
                        url=event.url,
                    ),
                    host=event.hosts[0] if len(event.hosts) == 1 else "",
                ).seq
                for event in received
                if dedup.remember_event(tx, source.name, event.key)
            ]

    def _exceeds_rate(self, source: WebhookSource, now: float) -> bool:
        recent = self._recent[source.name]
        while recent and recent[0] <= now - _MINUTE:
            recent.popleft()
        if len(recent) >= source.max_per_minute:
            return True
        recent.append(now)
        return False


def build_webhook_app(receiver: WebhookReceiver, *, secure: bool) -> Starlette:
    """Return the application that is mounted at /hooks."""
    app = Starlette(routes=[Route("/{name}", receiver.receive, methods=["POST"])])
    app.add_middleware(middleware.RequestGuard, secure=secure)
    return app

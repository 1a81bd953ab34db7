"""What a server runs for webhooks: the address of each source, and a sender for each target."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.routing import Mount

from bot.api import schemas
from bot.api.run_event import RunEventOut
from bot.audit import events
from bot.db import runs
from bot.db.database import Database
from bot.feature import ServerContext, ServerPart
from bot.features.webhooks import payloads
from bot.features.webhooks.config import (
    WebhookConfig,
    WebhookSubscription,
    load_webhook_config,
    render_webhook_config,
)
from bot.features.webhooks.receiver import WebhookReceiver, build_webhook_app
from bot.integrations.delivery_sender import DeliverySender
from bot.integrations.safe_http import Resolve, request, resolve_name
from bot.integrations.webhook_queue import PendingDelivery, SubscriptionFilter, describe_deliveries
from bot.maintenance.housekeeping import log_setting_change
from bot.web.deps import ComponentHealth


def build_server_part(context: ServerContext) -> ServerPart:
    """Raises WebhookConfigError."""
    config, settings = _load_webhooks(context), context.settings
    receiver = WebhookReceiver(config, context.database, context.policies)
    is_https = urlsplit(settings.address).scheme == "https"
    senders = [
        WebhookSender(one, context.database, settings.address)
        for one in config.subscriptions.values()
    ]
    # A warning, because all else works.
    checks = {"subscriptions": lambda: ComponentHealth(describe_deliveries(context.database))}
    return ServerPart(
        tasks=[sender.run for sender in senders],
        routes=[Mount("/hooks", build_webhook_app(receiver, secure=is_https))],
        health_checks=checks if senders else {},
    )


def _load_webhooks(context: ServerContext) -> WebhookConfig:
    """Return the configured webhooks and log their change."""
    config = load_webhook_config(context.settings.hooks)
    context.redactor.add_secrets(*config.secrets)
    if context.settings.hooks is not None:
        with context.database.transaction() as tx:
            changed = events.WebhooksChanged(webhooks=render_webhook_config(config))
            log_setting_change(tx, changed)
    return config


class WebhookSender(DeliverySender):
    """Sends the events of one subscription until it is cancelled.

    Args:
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        subscription: WebhookSubscription,
        database: Database,
        base_url: str,
        *,
        clock: Callable[[], float] = time.time,
        resolve: Resolve = resolve_name,
    ) -> None:
        super().__init__(
            subscription.name,
            database,
            SubscriptionFilter(
                subscription.kinds, frozenset(subscription.areas), subscription.events
            ),
        )
        self._subscription, self._base_url = subscription, base_url
        self._clock, self._resolve = clock, resolve

    def send_delivery(self, item: PendingDelivery) -> None:
        """Raises DeliveryError and NoSuchRun."""
        with self._database.reading() as tx:
            event = self._build_event(
                item, runs.get_run(tx, item.run), runs.list_decisions(tx, item.run)
            )
        payload = payloads.build_payload(
            self._subscription, event, self._base_url, timestamp=int(self._clock())
        )
        if payload is None:
            return
        request(
            "POST",
            self._subscription.url,
            payload.body,
            payload.headers,
            private=self._subscription.private,
            resolve=self._resolve,
            max_bytes=0,
        )

    def _build_event(
        self, item: PendingDelivery, run: runs.Run, decisions: list[runs.Decision]
    ) -> RunEventOut:
        return RunEventOut(
            type="run",
            event=item.kind,
            entry=item.seq,
            at=schemas.to_datetime(item.at),
            run=schemas.RunOut.from_run(run, decisions, self._base_url),
        )

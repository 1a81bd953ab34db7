"""Outgoing webhooks: send the events of runs to subscriptions, in order for each run."""

import time
from collections.abc import Callable

from bot.api import schemas
from bot.api.run_event import RunEventOut
from bot.db import runs
from bot.db.database import Database
from bot.features.webhooks.config import WebhookSubscription
from bot.integrations import webhook_signature
from bot.integrations.delivery_sender import DeliverySender
from bot.integrations.safe_http import Resolve, request, resolve_name
from bot.integrations.webhook_queue import PendingDelivery, SubscriptionFilter


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
            body = self._build_body(
                item, runs.get_run(tx, item.run), runs.list_decisions(tx, item.run)
            )
        message_id = f"{self._subscription.name}-{item.seq}"
        headers = webhook_signature.build_signature_headers(
            self._subscription.secret, message_id, body, timestamp=int(self._clock())
        )
        request(
            "POST",
            self._subscription.url,
            body,
            headers,
            private=self._subscription.private,
            resolve=self._resolve,
            max_bytes=0,
        )

    def _build_body(
        self, item: PendingDelivery, run: runs.Run, decisions: list[runs.Decision]
    ) -> bytes:
        event = RunEventOut(
            type="run",
            event=item.kind,
            entry=item.seq,
            at=schemas.to_datetime(item.at),
            run=schemas.RunOut.from_run(run, decisions, self._base_url),
        )
        return event.model_dump_json().encode()

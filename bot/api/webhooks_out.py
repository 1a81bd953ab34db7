"""Outgoing webhooks: send the events of runs to subscriptions, in order for each run."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import Field

from bot.api import schemas
from bot.db import runs
from bot.db.database import Database
from bot.integrations import webhook_queue, webhook_signature
from bot.integrations.delivery_sender import DeliverySender
from bot.integrations.safe_http import Resolve, post, resolve_name
from bot.integrations.webhook_config import WebhookSubscription
from bot.integrations.webhook_queue import PendingDelivery, SubscriptionFilter


class RunEventOut(schemas.OutputModel):
    """An event of a run, and the run as it is when the event is sent."""

    type: Literal["run"]
    event: str = Field(examples=["approved", "started", "succeeded"])
    entry: int = Field(
        description="Number of its change log entry. A repeat has the same number, and later "
        "events of the run have a higher one."
    )
    at: datetime
    run: schemas.RunOut


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
        post(
            self._subscription.url,
            body,
            headers,
            private=self._subscription.private,
            resolve=self._resolve,
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


def describe_deliveries(database: Database) -> str:
    """Return the numbers of pending and failed deliveries, for the public readiness page.

    It names no subscription: everyone who reaches the service can read that page.
    """
    with database.reading() as tx:
        counts = webhook_queue.count_deliveries(tx).values()
    pending, failed = sum(one for one, _ in counts), sum(one for _, one in counts)
    if not pending and not failed:
        return "all delivered"
    return f"{pending} pending" + (f", {failed} failed: run `keyturn webhooks`" if failed else "")

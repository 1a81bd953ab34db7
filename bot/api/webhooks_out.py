"""Outgoing webhooks: send the events of runs to subscriptions, in order for each run."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import Field

from bot.api import schemas
from bot.db import runs
from bot.db.database import Database, StoreUnavailable
from bot.db.runs import NoSuchRun
from bot.webhooks import signature, webhook_queue
from bot.webhooks.config import WebhookSubscription
from bot.webhooks.safe_http import DeliveryError, Resolve, post, resolve_name
from bot.webhooks.webhook_queue import PendingDelivery, SubscriptionFilter

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
# Longer than one attempt can take: after it another process may take over the delivery.
CLAIM_SECONDS = 60.0


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


class WebhookSender:
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
        self._subscription, self._database = subscription, database
        self._base_url = base_url
        self._clock, self._resolve = clock, resolve
        self._filter = SubscriptionFilter(
            subscription.kinds, frozenset(subscription.areas), subscription.events
        )

    async def run(self) -> None:
        while True:
            try:
                while await asyncio.to_thread(self.send_due):
                    pass
            except StoreUnavailable as error:
                log.error("cannot send events to %s: %s", self._subscription.name, error)
            except Exception:
                # Other subscriptions are not affected, and this one is tried again.
                log.exception("cannot send events to %s", self._subscription.name)
            await asyncio.sleep(_POLL_SECONDS)

    def send_due(self) -> bool:
        """Read new log entries and send what is due; return whether anything was tried."""
        with self._database.reading() as tx:
            is_behind = webhook_queue.is_behind(tx, self._subscription.name)
        if is_behind:
            with self._database.transaction() as tx:
                webhook_queue.read_new_entries(tx, self._subscription.name, self._filter)
        with self._database.reading() as tx:
            due = webhook_queue.list_due_deliveries(tx, self._subscription.name)
        tried = [self._deliver(item) for item in due]
        return any(tried)

    def _deliver(self, item: PendingDelivery) -> bool:
        """Send one delivery and record the result; return whether it reached the subscription."""
        with self._database.transaction() as tx:
            if not webhook_queue.claim_delivery(tx, item, seconds=CLAIM_SECONDS):
                return False
        try:
            self._send(item)
        except (DeliveryError, NoSuchRun) as error:
            log.warning(
                "%s did not receive entry %d: %s", self._subscription.name, item.seq, error
            )
            return self._record_failure(item, str(error), for_good=not _can_retry(error))
        except StoreUnavailable:
            raise
        except Exception as error:
            # It counts as an attempt, so that it ends and does not hold up other deliveries.
            log.exception("cannot send entry %d to %s", item.seq, self._subscription.name)
            return self._record_failure(item, f"internal error: {type(error).__name__}")
        with self._database.transaction() as tx:
            webhook_queue.mark_delivered(tx, item)
        return True

    def _send(self, item: PendingDelivery) -> None:
        """Raises DeliveryError and NoSuchRun."""
        with self._database.reading() as tx:
            body = self._build_body(
                item, runs.get_run(tx, item.run), runs.list_decisions(tx, item.run)
            )
        message_id = f"{self._subscription.name}-{item.seq}"
        headers = signature.build_signature_headers(
            self._subscription.secret, message_id, body, timestamp=int(self._clock())
        )
        post(
            self._subscription.url,
            body,
            headers,
            private=self._subscription.private,
            resolve=self._resolve,
        )

    def _record_failure(
        self, item: PendingDelivery, reason: str, *, for_good: bool = False
    ) -> bool:
        with self._database.transaction() as tx:
            webhook_queue.mark_failed(tx, item, reason, for_good=for_good)
        return False

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


def _can_retry(error: Exception) -> bool:
    """Return whether another attempt could succeed."""
    return isinstance(error, DeliveryError) and not error.for_good


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

"""Send the events of runs, in order for each run, and retry for about a day."""

import asyncio
import logging
from abc import ABC, abstractmethod

from bot.db.database import Database, StoreUnavailable
from bot.db.runs import NoSuchRun
from bot.integrations import webhook_queue
from bot.integrations.safe_http import DeliveryError
from bot.integrations.webhook_queue import PendingDelivery, SubscriptionFilter

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
# Longer than one attempt can take: after it another process may take over the delivery.
CLAIM_SECONDS = 60.0


class DeliverySender(ABC):
    """Sends the events of one subscription until it is cancelled.

    Args:
        name: Of the subscription.
        wanted: The events that it receives.
    """

    def __init__(self, name: str, database: Database, wanted: SubscriptionFilter) -> None:
        self._name, self._database, self._filter = name, database, wanted

    @abstractmethod
    def send_delivery(self, item: PendingDelivery) -> None:
        """Send one event. Raises DeliveryError and NoSuchRun."""

    async def run(self) -> None:
        while True:
            try:
                while await asyncio.to_thread(self.send_due):
                    pass
            except StoreUnavailable as error:
                log.error("cannot send events to %s: %s", self._name, error)
            except Exception:
                # Other subscriptions are not affected, and this one is tried again.
                log.exception("cannot send events to %s", self._name)
            await asyncio.sleep(_POLL_SECONDS)

    def send_due(self) -> bool:
        """Read new log entries and send what is due; return whether anything was tried."""
        with self._database.reading() as tx:
            is_behind = webhook_queue.is_behind(tx, self._name)
        if is_behind:
            with self._database.transaction() as tx:
                webhook_queue.read_new_entries(tx, self._name, self._filter)
        with self._database.reading() as tx:
            due = webhook_queue.list_due_deliveries(tx, self._name)
        tried = [self._deliver(item) for item in due]
        return any(tried)

    def _deliver(self, item: PendingDelivery) -> bool:
        """Send one delivery and record the result; return whether it reached the subscription."""
        with self._database.transaction() as tx:
            if not webhook_queue.claim_delivery(tx, item, seconds=CLAIM_SECONDS):
                return False
        try:
            self.send_delivery(item)
        except (DeliveryError, NoSuchRun) as error:
            log.warning("%s did not receive entry %d: %s", self._name, item.seq, error)
            return self._record_failure(item, str(error), for_good=not _can_retry(error))
        except StoreUnavailable:
            raise
        except Exception as error:
            # It counts as an attempt, so that it ends and does not hold up other deliveries.
            log.exception("cannot send entry %d to %s", item.seq, self._name)
            return self._record_failure(item, f"internal error: {type(error).__name__}")
        with self._database.transaction() as tx:
            webhook_queue.mark_delivered(tx, item)
        return True

    def _record_failure(
        self, item: PendingDelivery, reason: str, *, for_good: bool = False
    ) -> bool:
        with self._database.transaction() as tx:
            webhook_queue.mark_failed(tx, item, reason, for_good=for_good)
        return False


def _can_retry(error: Exception) -> bool:
    """Return whether another attempt could succeed."""
    return isinstance(error, DeliveryError) and not error.for_good

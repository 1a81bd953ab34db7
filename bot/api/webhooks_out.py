"""Telling: subscriptions hear of what happens to runs, each run's news in their order."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import Field

from bot.api import schemas
from bot.api.safe_http import NotReached, Resolve, post, resolved
from bot.db import runs
from bot.db.database import Database, StoreUnavailable
from bot.db.runs import NoSuchRun
from bot.webhooks import signature, webhook_queue
from bot.webhooks.config import WebhookSubscription
from bot.webhooks.webhook_queue import PendingDelivery, SubscriptionFilter

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
# Longer than one attempt can take: whoever dies over it leaves it to another after that.
CLAIM_SECONDS = 60.0


class Told(schemas.Shape):
    """What happened to a run, and the run as it is when this is sent.

    entry: the number of the one in the change log that tells of it: the same whenever it is sent
    again, and higher for whatever happened later. Of one run, deliveries come in that order.
    """

    type: Literal["run"]
    event: str = Field(examples=["approved", "started", "succeeded"])
    entry: int
    at: datetime
    run: schemas.RunShape


class WebhookSender:
    """Tells one subscription, for as long as it is run. clock: seconds since 1970."""

    def __init__(
        self,
        to: WebhookSubscription,
        database: Database,
        base_url: str,
        *,
        clock: Callable[[], float] = time.time,
        resolve: Resolve = resolved,
    ) -> None:
        self._to, self._database, self._base_url = to, database, base_url
        self._clock, self._resolve = clock, resolve
        self._wanted = SubscriptionFilter(to.kinds, frozenset(to.areas), to.events)

    async def run(self) -> None:
        while True:
            try:
                while await asyncio.to_thread(self.once):
                    pass
            except StoreUnavailable as trouble:
                log.error("%s could not be told: %s", self._to.name, trouble)
            except Exception:
                # The others are told all the same, and this one in a moment.
                log.exception("%s could not be told", self._to.name)
            await asyncio.sleep(_LOOK_SECONDS)

    def once(self) -> bool:
        """Read on in the log and tell what is due; return whether something was told."""
        with self._database.reading() as tx:
            behind = webhook_queue.is_behind(tx, self._to.name)
        if behind:
            with self._database.transaction() as tx:
                webhook_queue.read_new_entries(tx, self._to.name, self._wanted)
        with self._database.reading() as tx:
            waiting = webhook_queue.list_due_deliveries(tx, self._to.name)
        told = [self._tell(item) for item in waiting]
        return any(told)

    def _tell(self, item: PendingDelivery) -> bool:
        with self._database.transaction() as tx:
            if not webhook_queue.claim_delivery(tx, item, seconds=CLAIM_SECONDS):
                return False
        try:
            self._send(item)
        except (NotReached, NoSuchRun) as no:
            log.warning("%s was not told of entry %d: %s", self._to.name, item.seq, no)
            return self._failed(item, str(no), for_good=not _may_yet(no))
        except StoreUnavailable:
            raise
        except Exception as fault:
            # It counts as a try, so that it has an end, and what is behind it is told meanwhile.
            log.exception("%s could not be told of entry %d", self._to.name, item.seq)
            return self._failed(item, f"Keyturn has a fault: {type(fault).__name__}")
        with self._database.transaction() as tx:
            webhook_queue.mark_delivered(tx, item)
        return True

    def _send(self, item: PendingDelivery) -> None:
        """Raises NotReached, and NoSuchRun."""
        with self._database.reading() as tx:
            body = self._body(item, runs.get_run(tx, item.run), runs.list_decisions(tx, item.run))
        name = f"{self._to.name}-{item.seq}"
        headers = signature.build_signature_headers(
            self._to.secret, name, body, timestamp=int(self._clock())
        )
        post(self._to.url, body, headers, private=self._to.private, resolve=self._resolve)

    def _failed(self, item: PendingDelivery, why: str, *, for_good: bool = False) -> bool:
        with self._database.transaction() as tx:
            webhook_queue.mark_failed(tx, item, why, for_good=for_good)
        return False

    def _body(self, item: PendingDelivery, run: runs.Run, votes: list[runs.Decision]) -> bytes:
        told = Told(
            type="run",
            event=item.kind,
            entry=item.seq,
            at=schemas.to_datetime(item.at),
            run=schemas.RunShape.of(run, votes, self._base_url),
        )
        return told.model_dump_json().encode()


def _may_yet(no: Exception) -> bool:
    """Say whether there is sense in trying again."""
    return isinstance(no, NotReached) and not no.for_good


def describe_deliveries(database: Database) -> str:
    """Say how many could not be told, and not who: strangers may look whether all is well."""
    with database.reading() as tx:
        found = webhook_queue.count_deliveries(tx).values()
    waiting, dead = sum(one for one, _ in found), sum(one for _, one in found)
    if not waiting and not dead:
        return "all were told"
    return f"{waiting} wait" + (f", {dead} given up: keyturn hooks says what" if dead else "")

"""The outbox: delivers the news of runs, at least once, and never holds a run up.

What is pending is only that a run has news. It is drawn when it is sent, as it is by then, and
each run by one sender at a time: so a late message cannot overwrite a newer one.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.db import home_queue, outbox, runs
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.outbox import PendingRunUpdate, PostedMessage
from bot.model.run import Run, State
from bot.slack import routing
from bot.slack.actions import CARD
from bot.slack.alerts import BreakGlassAlerts
from bot.slack.approver_dms import ApproverCards, build_reminders
from bot.slack.blocks import Message, context, escape_mrkdwn
from bot.slack.client import (
    CLOSED_CHANNEL_ERRORS,
    GONE_MESSAGE_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_code,
    get_retry_seconds,
    is_retryable,
    with_message_name,
)
from bot.slack.declined_erasure import DeclinedErasureMessages
from bot.slack.home import HomeTabs, list_concerned_users
from bot.slack.rate_limit import ChannelRateLimit
from bot.slack.routing import Audience
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import (
    format_full_output,
    is_output_cut,
    render_card,
    render_follow_up,
    render_result,
)

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_POLL_SECONDS = 1.0
# Others may try after that; while a delivery goes on, it is prolonged in time.
_LEASE_SECONDS = 15.0
_MAX_TURN_SECONDS = 5.0
_DELIVERY_TIMEOUT_SECONDS = 45.0
_GRACE_SECONDS = 3.0
_MAX_PARALLEL_DELIVERIES = 8
# A run that is planned within this time is shown with its plan at once.
_PLANNING_SECONDS = 1.0
_UPDATE_INTERVAL_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0
_REDRAW_INTERVAL_SECONDS = 30.0

_WHISPER, _HINT, _FOLLOWED = "whisper", "hint", "followed"


@dataclass(frozen=True)
class _Delivery:
    update: PendingRunUpdate
    run_view: SlackRunView
    posted_messages: dict[str, PostedMessage]


class _DeliveryAttempt:
    """Tells one part after the other: what Slack refuses of one keeps no other from being told."""

    def __init__(self) -> None:
        self.errors: list[SlackApiError] = []

    async def deliver_part(self, part: Coroutine[Any, Any, Result]) -> Result | None:
        """Tell it. Raises SlackApiError where Slack is away: then it takes none of the others."""
        try:
            return await part
        except SlackApiError as refused:
            if is_retryable(refused):
                raise
            self.errors.append(refused)
            return None


class Outbox:
    """Call run() in the event loop, and wake() from any thread when there may be news."""

    def __init__(
        self,
        database: Database,
        stories: SlackRunViewBuilder,
        voice: MessageSender,
        *,
        default_channel: str = "",
        alarm_channel: str = "",
        home_tabs: HomeTabs | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender_name, self._home_tabs = str(uuid4()), home_tabs
        self._database, self._view_builder, self._message_sender = database, stories, voice
        self._default_channel, self._clock = default_channel, clock
        self._alerts = BreakGlassAlerts(
            voice, self._store_message, channel=alarm_channel or default_channel
        )
        self._approver_cards = ApproverCards(voice, self._store_message)
        self._declined_erasures = DeclinedErasureMessages(voice, self._store_message)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        # How many places are free: nothing is claimed that would wait for one, as it is drawn and
        # others are kept from it when it is claimed.
        self._free_slots = _MAX_PARALLEL_DELIVERIES
        self._sent_at: dict[int, float] = {}
        self._channel_rate = ChannelRateLimit(clock)
        # When those that wait for their channel have their turn, by run.
        self._turns: dict[int, float] = {}
        self._redrawn_at = clock()
        self._tasks: set[asyncio.Task[None]] = set()
        # Whether it has looked for news at least once.
        self.is_ready = False

    def wake_up(self) -> None:
        """Look for news now."""
        if self._loop is not None:
            # The loop may be closed already: then the next process finds the news.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def run_until_cancelled(self) -> None:
        """Deliver until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                self._woken.clear()
                for delivery in await self._claim_due():
                    self._start_task(self._deliver_update(delivery))
                if self._home_tabs is not None:
                    self._start_task(self._home_tabs.draw_due_homes())
                self.is_ready = True
                # Python 3.11's wait_for loses a cancellation that comes with the wake-up.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._woken.wait()
        finally:
            # What is half said is finished, or it would be said again after the next start.
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
            await self._write_in_transaction(lambda tx: outbox.release(tx, self._sender_name))

    async def deliver_due(self) -> None:
        """Deliver all that is due now, and return when it is told or postponed."""
        while due := await self._claim_due():
            await asyncio.gather(*(self._deliver_update(delivery) for delivery in due))
        if self._home_tabs is not None:
            await self._home_tabs.draw_due_homes()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _claim_due(self) -> list[_Delivery]:
        """Claim what is due, as far as there are places, and give each of it one."""
        most, self._free_slots = self._free_slots, 0
        due = await self._claim_safely(most) if most else []
        self._free_slots += most - len(due)
        return due

    async def _claim_safely(self, limit: int) -> list[_Delivery]:
        try:
            return await asyncio.to_thread(self._claim_deliveries, limit)
        except StoreUnavailable as trouble:
            log.warning("the outbox waits for the database: %s", trouble)
        except Exception:
            log.exception("the outbox could not look for news")
        return []

    def _claim_deliveries(self, limit: int) -> list[_Delivery]:
        self._announce_long_runs()
        with self._database.reading() as tx:
            if not outbox.list_pending_updates(tx, most=1):
                return []
        with self._database.transaction() as tx:
            ready = (
                delivery
                for item in outbox.lock_pending_update(tx)
                if not self._is_too_early((delivery := self._build_delivery(tx, item)).run_view)
                and self._is_channel_ready(tx, delivery)
                and outbox.claim_update(tx, item, sender=self._sender_name, seconds=_LEASE_SECONDS)
            )
            return list(islice(ready, limit))

    def _build_delivery(self, tx: Transaction, update: PendingRunUpdate) -> _Delivery:
        return _Delivery(
            update, self._build_run_view(tx, update), outbox.list_messages(tx, update.run)
        )

    def _build_run_view(self, tx: Transaction, update: PendingRunUpdate) -> SlackRunView:
        return replace(
            self._view_builder.build_slack_run_view(tx, update.run), attempts=update.attempts
        )

    def _is_channel_ready(self, tx: Transaction, delivery: _Delivery) -> bool:
        """Return whether the channel takes one more message now; else it waits for its turn."""
        now, run = self._clock(), delivery.update.run
        turn = self._turns.pop(run, None)
        if turn is None:
            turn = now + self._channel_rate.reserve_turn(
                _get_channel(delivery, default=self._default_channel)
            )
        if turn <= now:
            return True
        self._turns[run] = turn
        # Whoever takes over from us waits no longer than that.
        outbox.claim_update(
            tx, delivery.update, sender="", seconds=min(turn - now, _MAX_TURN_SECONDS)
        )
        return False

    def _announce_long_runs(self) -> None:
        """Have the cards of what takes minutes drawn anew: they say how long it has taken."""
        if self._clock() - self._redrawn_at < _REDRAW_INTERVAL_SECONDS:
            return
        self._redrawn_at = self._clock()
        with self._database.reading() as tx:
            long = [
                run.id for run in runs.list_unfinished_briefly(tx) if _is_long_running(run, tx.now)
            ]
        if long:
            with self._database.transaction() as tx:
                for number in long:
                    outbox.announce_run(tx, number)

    def _is_too_early(self, story: SlackRunView) -> bool:
        """Return whether it is better to wait: there will be more to say in a moment."""
        run = story.run
        if run.state is State.PLANNING:
            return story.now - run.requested_at < _PLANNING_SECONDS * 1_000_000
        since = self._clock() - self._sent_at.get(run.id, -_UPDATE_INTERVAL_SECONDS)
        return run.state is State.RUNNING and since < _UPDATE_INTERVAL_SECONDS

    async def _deliver_update(self, delivery: _Delivery) -> None:
        item = delivery.update
        keeping = asyncio.create_task(self._renew_lease(item))
        try:
            async with asyncio.timeout(_DELIVERY_TIMEOUT_SECONDS):
                await self._send_messages(delivery.run_view, delivery.posted_messages)
        except SlackApiError as refused:
            wait = get_retry_seconds(refused)
            await self._postpone_update(item, get_error_code(refused), wait)
        except (ClientError, SlackClientError, TimeoutError) as trouble:
            await self._postpone_update(item, str(trouble) or type(trouble).__name__, None)
        except Exception as fault:
            log.exception("the news of run %d could not be told", item.run)
            await self._postpone_update(item, repr(fault), None)
        else:
            await self._mark_delivered(item, delivery.run_view)
        finally:
            keeping.cancel()
            self._free_slots += 1
        self._woken.set()

    async def _renew_lease(self, update: PendingRunUpdate) -> None:
        """Keep others from what is being told, for as long as it takes."""
        while True:
            await asyncio.sleep(_LEASE_SECONDS / 3)

            def write(tx: Transaction) -> None:
                outbox.renew(tx, update, sender=self._sender_name, seconds=_LEASE_SECONDS)

            await self._write_in_transaction(write)

    async def _mark_delivered(self, update: PendingRunUpdate, story: SlackRunView) -> None:
        run = story.run
        self._sent_at[run.id] = self._clock()
        if run.is_ended:
            self._sent_at.pop(run.id, None)

        def write(tx: Transaction) -> None:
            outbox.mark_delivered(tx, update, sender=self._sender_name)
            home_queue.mark_homes_due(tx, list_concerned_users(story))

        await self._write_in_transaction(write)

    async def _postpone_update(
        self, update: PendingRunUpdate, reason: str, wait: float | None
    ) -> None:
        seconds = min(2.0**update.attempts, _MAX_RETRY_SECONDS) if wait is None else wait
        # Senders that were refused together shall not come back together.
        seconds *= 1 + random.random() / 4  # noqa: S311 - no secret
        log.warning("the news of run %d waits %.1f s: %s", update.run, seconds, reason)

        def write(tx: Transaction) -> None:
            outbox.postpone_update(
                tx, update, seconds=seconds, why=reason, sender=self._sender_name
            )

        await self._write_in_transaction(write)

    # --- what is said ---

    async def _send_messages(self, story: SlackRunView, notices: dict[str, PostedMessage]) -> None:
        posted, attempt = notices.get(CARD), _DeliveryAttempt()
        await attempt.deliver_part(self._alerts.send_alerts(story, notices))
        await attempt.deliver_part(self._declined_erasures.send_declined_erasure(story, notices))
        match routing.get_audience(story, is_posted=posted is not None):
            case Audience.NOBODY:
                pass
            case Audience.REQUESTER:
                await attempt.deliver_part(self._send_ephemeral(story, notices))
            case Audience.CHANNEL:
                await self._send_to_channel(story, notices, posted, attempt)
        if attempt.errors:
            raise attempt.errors[0]

    async def _send_to_channel(
        self,
        story: SlackRunView,
        notices: dict[str, PostedMessage],
        posted: PostedMessage | None,
        attempt: "_DeliveryAttempt",
    ) -> None:
        refused = len(attempt.errors)
        place = await attempt.deliver_part(self._update_card(story, posted))
        if len(attempt.errors) > refused:
            if posted is None:
                return
            place = MessageLocation(posted.channel, posted.ts)
        # First: how it ended reaches people whatever becomes of the rest.
        await attempt.deliver_part(self._send_result(story, place, notices))
        await attempt.deliver_part(self._send_hint(story, place, notices))
        await attempt.deliver_part(self._send_reminders(story, place, notices))
        await attempt.deliver_part(self._approver_cards.update_copies(story, place, notices))

    async def _send_ephemeral(
        self, story: SlackRunView, notices: dict[str, PostedMessage]
    ) -> None:
        if _WHISPER in notices or not story.requester:
            return
        message, channel = render_card(story), story.run.origin.channel
        if story.attempts:
            # A whisper cannot be found again: whoever has it already gets one message more.
            told = await self._message_sender.send_direct_message(
                story.requester, with_message_name(message, story, _WHISPER)
            )
        else:
            told = MessageLocation(
                await self._message_sender.send_ephemeral(channel, story.requester, message), ""
            )
        await self._store_message(story, _WHISPER, told, message)

    async def _update_card(
        self, story: SlackRunView, posted: PostedMessage | None
    ) -> MessageLocation | None:
        """Bring the card up to date, and return where it stands; None if there is nowhere."""
        message = render_card(story)
        if posted is not None:
            place = MessageLocation(posted.channel, posted.ts)
            if posted.digest == message.digest:
                return place
            if await self._update_message(place, message):
                await self._store_message(story, CARD, place, message)
                return place
        # What takes the place of another is another message.
        slot = CARD if posted is None else f"{CARD} {posted.ts}"
        place = await self._post_card(story, with_message_name(message, story, slot))
        if place is not None:
            await self._store_message(story, CARD, place, message)
        return place

    async def _update_message(self, place: MessageLocation, message: Message) -> bool:
        """Update a card; False if it is gone or its channel is closed: then it is posted anew."""
        try:
            await self._message_sender.update_message(place, message)
        except SlackApiError as refused:
            if get_error_code(refused) not in GONE_MESSAGE_ERRORS | CLOSED_CHANNEL_ERRORS:
                raise
            return False
        return True

    async def _post_card(self, story: SlackRunView, message: Message) -> MessageLocation | None:
        for channel in routing.list_channels(story, default_channel=self._default_channel):
            try:
                return await self._message_sender.post_message(channel, message)
            except SlackApiError as refused:
                if get_error_code(refused) not in CLOSED_CHANNEL_ERRORS:
                    raise
                log.warning("%s cannot be posted to: %s", channel, get_error_code(refused))
        if not story.requester:
            log.error("there is no channel to tell of run %d in", story.run.id)
            return None
        return await self._message_sender.send_direct_message(
            story.requester, _add_invitation(story, message)
        )

    async def _send_hint(
        self, story: SlackRunView, place: MessageLocation | None, notices: dict[str, PostedMessage]
    ) -> None:
        """Tell the asker where the card is, if it is not where they asked."""
        origin = story.run.origin
        asked_here = origin.source == "slack" and place is not None and story.requester
        if not asked_here or place is None or place.channel in {origin.channel, ""}:
            return
        if _HINT in notices or place.channel.startswith("D"):
            return
        lines = [
            f"Run {story.run.id} – {escape_mrkdwn(story.run.title)} – is in <#{place.channel}>."
        ]
        if not origin.channel.startswith("D"):
            lines.append(_format_invitation(origin.channel))
        message = Message(" ".join(lines), [context(*lines)])
        told = await self._message_sender.send_direct_message(
            story.requester, with_message_name(message, story, _HINT)
        )
        await self._store_message(story, _HINT, told, message)

    async def _send_reminders(
        self, story: SlackRunView, place: MessageLocation | None, notices: dict[str, PostedMessage]
    ) -> None:
        """Call those whose approval is waited for, each time once."""
        for slot, message in build_reminders(story).items():
            if place is not None and slot not in notices:
                nudge = with_message_name(message, story, slot)
                told = await self._message_sender.post_message(
                    place.channel, nudge, thread=place.ts
                )
                await self._store_message(story, slot, told, message)

    async def _send_result(
        self, story: SlackRunView, place: MessageLocation | None, notices: dict[str, PostedMessage]
    ) -> None:
        over = story.run.report is not None and story.run.kind == "change"
        slot = _FOLLOWED if over else f"result {story.run.state}"
        if place is None or slot in notices or not routing.needs_requester_mention(story):
            return
        message = with_message_name(
            render_follow_up(story) if over else render_result(story), story, slot
        )
        told = await self._message_sender.post_message(place.channel, message, thread=place.ts)
        await self._store_message(story, slot, told, message)
        if not over and is_output_cut(story):
            await self._upload_output(story, place)

    async def _upload_output(self, story: SlackRunView, place: MessageLocation) -> None:
        """Add all that the hosts said as a file; the page has it too, so this is tried once."""
        name = f"run-{story.run.id}.txt"
        title = f"What {story.run.host} said in run {story.run.id}"
        try:
            await self._message_sender.upload_file(
                place, name=name, title=title, content=format_full_output(story)
            )
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("the output of run %d is no file: %s", story.run.id, trouble)

    async def _store_message(
        self, story: SlackRunView, slot: str, place: MessageLocation, message: Message
    ) -> None:
        notice = PostedMessage(story.run.id, slot, place.channel, place.ts, message.digest)
        await self._write_in_transaction(lambda tx: outbox.store_message(tx, notice))

    async def _write_in_transaction(self, write: Callable[[Transaction], None]) -> None:
        """Write it down, or say that the message may come twice: it shows the same then."""

        def in_transaction() -> None:
            with self._database.transaction() as tx:
                write(tx)

        try:
            await asyncio.to_thread(in_transaction)
        except StoreUnavailable as trouble:
            log.warning("what was told could not be written down: %s", trouble)


def _get_channel(delivery: _Delivery, *, default: str) -> str:
    """Return where it is told; "" if nowhere, which takes nobody's turn."""
    posted = delivery.posted_messages.get(CARD)
    if posted is not None:
        return posted.channel
    if routing.get_audience(delivery.run_view, is_posted=False) is Audience.NOBODY:
        return ""
    return next(iter(routing.list_channels(delivery.run_view, default_channel=default)), "")


def _is_long_running(run: Run, now: int) -> bool:
    started = run.state is State.RUNNING and run.parent is None and run.started_at
    return bool(started) and now - (run.started_at or now) > 60_000_000


def _add_invitation(story: SlackRunView, message: Message) -> Message:
    channel = story.run.origin.channel
    if not channel or channel.startswith("D"):
        return message
    return replace(message, blocks=[*message.blocks, context(_format_invitation(channel))])


def _format_invitation(channel: str) -> str:
    return f"Keyturn cannot write in <#{channel}>: type /invite @Keyturn there."

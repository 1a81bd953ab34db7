"""The outbox: delivers the state of runs to Slack at least once, without delaying a run.

A pending update only records that a run has changed. Its messages are rendered when they are sent,
and by one sender per run at a time: so a late message cannot overwrite a newer one.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from slack_sdk.errors import SlackApiError

from bot.db import home_queue, outbox, runs
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.outbox import SHARED_CARD, PendingRunUpdate
from bot.model.run import Run, State
from bot.slack import routing
from bot.slack.blocks import Message, context, escape_mrkdwn
from bot.slack.client import (
    CALL_ERRORS,
    CLOSED_CHANNEL_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_cause,
    get_retry_seconds,
    is_retryable,
    is_unreachable,
    with_message_name,
)
from bot.slack.home import HomeTabs, list_concerned_users
from bot.slack.notifications import (
    build_reminders,
    send_break_glass_alerts,
    send_notice,
    update_copies,
)
from bot.slack.routing import Audience
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_forms import render_plan_message
from bot.slack.run_message import (
    format_full_output,
    is_output_cut,
    render_card,
    render_follow_up,
    render_remark,
    render_result,
)
from bot.slack.run_posts import CARD, REMARK, RunPosts
from bot.slack.storms import (
    find_storm,
    is_urgent,
    read_members,
    render_shared_card,
    send_calls,
)
from bot.slack.threads import write_or_log
from bot.slack.unfurls import Unfurls
from bot.slack.watching import list_watchers, notify_watcher

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_POLL_SECONDS = 1.0
# After that another sender may try. A delivery renews its lease while it takes place.
_LEASE_SECONDS = 15.0
_MAX_TURN_SECONDS = 5.0
_DELIVERY_TIMEOUT_SECONDS = 45.0
_GRACE_SECONDS = 3.0
_MAX_PARALLEL_DELIVERIES = 8
# The first card of a run that is planned within this time already shows the plan.
_PLANNING_SECONDS = 1.0
_UPDATE_INTERVAL_SECONDS = 1.0
_MAX_RETRY_SECONDS, _MAX_DOUBLINGS = 60.0, 6
# While Slack cannot be reached, one update is tried so often: its success lets all others go.
_PROBE_SECONDS = 1.0
_REDRAW_INTERVAL_SECONDS = 30.0

_MESSAGES_PER_SECOND = 1.0
_BURST_SIZE = 10

_EPHEMERAL, _PLAN, _HINT, _FOLLOW_UP = "whisper", "plan", "hint", "followed"


class ChannelRateLimit:
    """Limits messages per channel: about one a second, in bursts after a pause.

    clock: returns monotonic seconds.
    Source: https://docs.slack.dev/apis/web-api/rate-limits
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Until when the messages of each channel take, at one a second.
        self._busy_until: dict[str, float] = {}

    def reserve_turn(self, channel: str) -> float:
        """Reserve the next turn and return in how many seconds it is. channel: "" for none."""
        if not channel:
            return 0.0
        now = self._clock()
        until = max(self._busy_until.get(channel, -math.inf), now)
        self._busy_until[channel] = until + 1 / _MESSAGES_PER_SECOND
        if len(self._busy_until) > 1000:
            self._busy_until = {name: end for name, end in self._busy_until.items() if end > now}
        return max(0.0, until - now - (_BURST_SIZE - 1) / _MESSAGES_PER_SECOND)


@dataclass(frozen=True)
class _Delivery:
    update: PendingRunUpdate
    posts: RunPosts


class _DeliveryAttempt:
    """Sends the parts of an update; if Slack refuses one, the others are still sent."""

    def __init__(self) -> None:
        self.errors: list[SlackApiError] = []

    async def deliver_part(self, part: Coroutine[Any, Any, Result]) -> Result | None:
        """Send one part. Raises SlackApiError if Slack is unavailable or limits our rate."""
        try:
            return await part
        except SlackApiError as error:
            if is_retryable(error):
                raise
            self.errors.append(error)
            return None


class Outbox:
    """Runs in the event loop (run_until_cancelled); wake_up() can be called from any thread."""

    def __init__(
        self,
        database: Database,
        view_builder: SlackRunViewBuilder,
        sender: MessageSender,
        *,
        default_channel: str = "",
        alarm_channel: str = "",
        home_tabs: HomeTabs | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender_name, self._home_tabs = str(uuid4()), home_tabs
        self._database, self._view_builder, self._message_sender = database, view_builder, sender
        self._default_channel, self._clock = default_channel, clock
        self._alert_channel = alarm_channel or default_channel
        self._unfurls = Unfurls(database, view_builder, sender, default_channel=default_channel)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        # How many deliveries may start. Nothing is claimed that would have to wait, since a claim
        # renders the run and excludes other senders.
        self._free_slots = _MAX_PARALLEL_DELIVERIES
        self._sent_at: dict[int, float] = {}
        self._channel_rate = ChannelRateLimit(clock)
        # When each run that waits for its channel has its turn.
        self._turns: dict[int, float] = {}
        self._redrawn_at = clock()
        # When Slack is tried again; None while it can be reached.
        self._probe_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Whether it has searched for pending updates at least once.
        self.is_ready = False

    def wake_up(self) -> None:
        """Search for pending updates now."""
        if self._loop is not None:
            # If the loop is closed already, the next process finds the update.
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
            # Finish deliveries, or they would be repeated after the next start.
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
            await write_or_log(
                self._database, lambda tx: outbox.release_claims(tx, self._sender_name)
            )

    async def deliver_due(self) -> None:
        """Deliver all that is due now; return when it is delivered or postponed."""
        while due := await self._claim_due():
            await asyncio.gather(*(self._deliver_update(delivery) for delivery in due))
        if self._home_tabs is not None:
            await self._home_tabs.draw_due_homes()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _claim_due(self) -> list[_Delivery]:
        """Claim what is due, at most as many updates as deliveries may start."""
        most, self._free_slots = self._free_slots, 0
        due = await self._claim_safely(most) if most else []
        self._free_slots += most - len(due)
        return due

    async def _claim_safely(self, limit: int) -> list[_Delivery]:
        try:
            return await asyncio.to_thread(self._claim_deliveries, limit)
        except StoreUnavailable as error:
            log.warning("the outbox cannot deliver: the database is unavailable: %s", error)
        except Exception:
            log.exception("the outbox cannot search for pending updates")
        return []

    def _claim_deliveries(self, limit: int) -> list[_Delivery]:
        self._announce_long_runs()
        self._release_probe()
        with self._database.reading() as tx:
            if not outbox.list_pending_updates(tx, most=1):
                return []
        with self._database.transaction() as tx:
            ready = (
                delivery
                for item in outbox.lock_pending_updates(tx)
                if not self._is_too_early((delivery := self._build_delivery(tx, item)).posts)
                and self._is_channel_ready(tx, self._find_storm(tx, delivery))
                and outbox.claim_update(tx, item, sender=self._sender_name, seconds=_LEASE_SECONDS)
            )
            return list(islice(ready, limit))

    def _build_delivery(self, tx: Transaction, update: PendingRunUpdate) -> _Delivery:
        run_view = replace(
            self._view_builder.build_slack_run_view(tx, update.run), attempts=update.attempts
        )
        posted = outbox.list_messages(tx, update.run)
        posts = RunPosts(self._database, self._message_sender, run_view, posted)
        posts.watchers = list_watchers(tx, posts, self._view_builder)
        return _Delivery(update, posts)

    def _find_storm(self, tx: Transaction, delivery: _Delivery) -> _Delivery:
        posts, default_channel = delivery.posts, self._default_channel
        posts.storm = find_storm(tx, posts, default_channel=default_channel)
        return delivery

    def _is_channel_ready(self, tx: Transaction, delivery: _Delivery) -> bool:
        """Return whether the channel takes one more message now; else it waits for its turn."""
        now, run = self._clock(), delivery.update.run
        turn = self._turns.pop(run, None)
        if turn is None:
            turn = now + self._channel_rate.reserve_turn(
                _get_channel(delivery.posts, default=self._default_channel)
            )
        if turn <= now or is_urgent(delivery.posts.run_view):
            return True
        self._turns[run] = turn
        # A sender that takes over waits no longer than that.
        outbox.claim_update(
            tx, delivery.update, sender="", seconds=min(turn - now, _MAX_TURN_SECONDS)
        )
        return False

    def _announce_long_runs(self) -> None:
        """Update the cards of long runs, which show the run time."""
        if self._clock() - self._redrawn_at < _REDRAW_INTERVAL_SECONDS:
            return
        self._redrawn_at = self._clock()
        with self._database.reading() as tx:
            numbers = [
                run.id for run in runs.list_unfinished_briefly(tx) if _is_long_running(run, tx.now)
            ]
        if numbers:
            with self._database.transaction() as tx:
                for number in numbers:
                    outbox.announce_run(tx, number)

    def _release_probe(self) -> None:
        """Let one postponed update be tried, if Slack could not be reached before."""
        if self._probe_at is None or self._clock() < self._probe_at:
            return
        self._probe_at = self._clock() + _PROBE_SECONDS
        with self._database.transaction() as tx:
            outbox.retry_postponed(tx, most=1)

    def _is_too_early(self, posts: RunPosts) -> bool:
        """Return whether to wait: the run is about to change again."""
        run = posts.run_view.run
        if run.state is State.PLANNING:
            return posts.run_view.view.now - run.requested_at < _PLANNING_SECONDS * 1_000_000
        since = self._clock() - self._sent_at.get(run.id, -_UPDATE_INTERVAL_SECONDS)
        changes_often = run.state is State.RUNNING or SHARED_CARD in posts.posted
        return changes_often and since < _UPDATE_INTERVAL_SECONDS

    async def _deliver_update(self, delivery: _Delivery) -> None:
        item = delivery.update
        keeping = asyncio.create_task(self._renew_lease(item))
        try:
            async with asyncio.timeout(_DELIVERY_TIMEOUT_SECONDS):
                await self._send_messages(delivery.posts)
        except CALL_ERRORS as error:
            wait = get_retry_seconds(error)
            await self._postpone_update(item, get_error_cause(error), wait)
            if is_unreachable(error) and self._probe_at is None:
                self._probe_at = self._clock() + _PROBE_SECONDS
        except Exception as error:
            log.exception("cannot deliver the update of run %d", item.run)
            await self._postpone_update(item, repr(error), None)
        else:
            await self._mark_delivered(item, delivery.posts.run_view)
        finally:
            keeping.cancel()
            self._free_slots += 1
        self._woken.set()

    async def _renew_lease(self, update: PendingRunUpdate) -> None:
        """Renew the lease of a delivery until cancelled."""
        while True:
            await asyncio.sleep(_LEASE_SECONDS / 3)

            def write(tx: Transaction) -> None:
                outbox.renew_claim(tx, update, sender=self._sender_name, seconds=_LEASE_SECONDS)

            await write_or_log(self._database, write)

    async def _mark_delivered(self, update: PendingRunUpdate, run_view: SlackRunView) -> None:
        run = run_view.run
        self._sent_at[run.id] = self._clock()
        if run.is_ended:
            self._sent_at.pop(run.id, None)
        was_unreachable, self._probe_at = self._probe_at is not None, None

        def write(tx: Transaction) -> None:
            if was_unreachable:
                outbox.retry_postponed(tx)
            outbox.mark_delivered(tx, update, sender=self._sender_name)
            home_queue.mark_homes_due(tx, list_concerned_users(run_view))

        await write_or_log(self._database, write)

    async def _postpone_update(
        self, update: PendingRunUpdate, reason: str, wait: float | None
    ) -> None:
        seconds = (
            min(2.0 ** min(update.attempts, _MAX_DOUBLINGS), _MAX_RETRY_SECONDS)
            if wait is None
            else wait
        )
        # Spread the retries of senders that were refused at the same time.
        seconds *= 1 + random.random() / 4  # noqa: S311 - no secret
        level = logging.WARNING if self._probe_at is None else logging.DEBUG
        log.log(
            level, "the update of run %d is retried in %.1f s: %s", update.run, seconds, reason
        )

        def write(tx: Transaction) -> None:
            outbox.postpone_update(
                tx, update, seconds=seconds, why=reason, sender=self._sender_name
            )

        await write_or_log(self._database, write)

    # --- messages ---

    async def _send_messages(self, posts: RunPosts) -> None:
        run_view, attempt = posts.run_view, _DeliveryAttempt()
        default_channel = self._default_channel
        await attempt.deliver_part(
            send_break_glass_alerts(posts, alert_channel=self._alert_channel)
        )
        for notice in run_view.notices:
            await attempt.deliver_part(send_notice(posts, notice, default_channel=default_channel))
        if run_view.run.state is State.PLANNED:
            plan = render_plan_message(run_view)
            await attempt.deliver_part(self._send_ephemeral(posts, _PLAN, plan))
        is_posted = CARD in posts.posted or posts.storm is not None
        match routing.get_audience(run_view, is_posted=is_posted):
            case Audience.NONE:
                pass
            case Audience.REQUESTER:
                card = render_card(run_view)
                await attempt.deliver_part(self._send_ephemeral(posts, _EPHEMERAL, card))
            case Audience.CHANNEL:
                await self._send_to_channel(posts, attempt)
        for user in posts.watchers:
            await attempt.deliver_part(notify_watcher(posts, user))
        await attempt.deliver_part(self._unfurls.update_unfurls(posts))
        if attempt.errors:
            raise attempt.errors[0]

    async def _send_to_channel(self, posts: RunPosts, attempt: "_DeliveryAttempt") -> None:
        error_count = len(attempt.errors)
        shared = await attempt.deliver_part(self._update_shared_card(posts))
        if posts.shares_card:
            location = shared
            if location is None:
                # Its first post announces the runs that share it.
                return
        else:
            location = await attempt.deliver_part(self._update_card(posts))
        if len(attempt.errors) > error_count and not posts.shares_card:
            if CARD not in posts.posted:
                return
            location = posts.get_location(CARD)
        # First, so that people get the result even if the other messages fail.
        await attempt.deliver_part(self._send_result(posts, location))
        await attempt.deliver_part(_send_hint(posts, location))
        await attempt.deliver_part(_send_remarks(posts, location))
        if not posts.shares_card:
            await attempt.deliver_part(_send_reminders(posts, location))
        await attempt.deliver_part(update_copies(posts, location))

    async def _send_ephemeral(self, posts: RunPosts, slot: str, message: Message) -> None:
        """Show a message to the requester only, once."""
        requester = posts.run_view.requester
        if slot in posts.posted or not requester:
            return
        if posts.run_view.attempts:
            # An ephemeral message cannot be searched for: the requester may get one more.
            await posts.send_once(slot, message, requester)
            return
        channel = posts.run_view.run.origin.channel
        sent_in = await self._message_sender.send_ephemeral(channel, requester, message)
        await posts.store(slot, MessageLocation(sent_in, ""), message)

    async def _update_card(self, posts: RunPosts) -> MessageLocation | None:
        """Post or update the card and return its location; None if no channel takes it."""
        return await self._post_or_update(posts, CARD, render_card(posts.run_view))

    async def _update_shared_card(self, posts: RunPosts) -> MessageLocation | None:
        """Post or update the card that a run shares, if it leads; return where it is."""
        if posts.storm is None or posts.storm.leader != posts.run_view.run.id:
            return posts.storm.location if posts.storm else None
        members = await asyncio.to_thread(self._read_members, posts.storm.leader)
        message = render_shared_card(posts.run_view, members)
        location = await self._post_or_update(posts, SHARED_CARD, message)
        await send_calls(posts, location)
        return location

    def _read_members(self, leader: int) -> Sequence[Run]:
        with self._database.reading() as tx:
            return read_members(tx, leader)

    async def _post_or_update(
        self, posts: RunPosts, slot: str, message: Message
    ) -> MessageLocation | None:
        name = slot
        if slot in posts.posted:
            location = posts.get_location(slot)
            if await posts.update(slot, message):
                return location
            # A replacement has a name of its own.
            name = f"{slot} {location.ts}"
        named_message = with_message_name(message, posts.run_view, name)
        new_location = await self._post_card(posts.run_view, named_message)
        if new_location is not None:
            is_shared = slot == SHARED_CARD
            await posts.store(slot, new_location, message, is_new_thread=is_shared)
        return new_location

    async def _post_card(self, run_view: SlackRunView, message: Message) -> MessageLocation | None:
        for channel in routing.list_channels(run_view, default_channel=self._default_channel):
            try:
                return await self._message_sender.post_message(channel, message)
            except SlackApiError as error:
                if get_error_cause(error) not in CLOSED_CHANNEL_ERRORS:
                    raise
                log.warning("cannot post in %s: %s", channel, get_error_cause(error))
        if not run_view.requester:
            log.error("no channel takes the card of run %d", run_view.run.id)
            return None
        return await self._message_sender.send_direct_message(
            run_view.requester, _add_invitation(run_view, message)
        )

    async def _send_result(self, posts: RunPosts, location: MessageLocation | None) -> None:
        run_view = posts.run_view
        if location is None or not routing.needs_requester_mention(run_view):
            return
        if run_view.run.report is not None and run_view.run.kind == "change":
            await posts.post_once(_FOLLOW_UP, render_follow_up(run_view), location)
            return
        slot = f"result {run_view.run.state}"
        is_new = await posts.post_once(slot, render_result(run_view), location)
        if is_new and is_output_cut(run_view):
            await self._upload_output(run_view, location)

    async def _upload_output(self, run_view: SlackRunView, location: MessageLocation) -> None:
        """Post the full output as a file, in one attempt: the web page has it too."""
        name = f"run-{run_view.run.id}.txt"
        title = f"Output of {run_view.run.host} in run {run_view.run.id}"
        try:
            await self._message_sender.upload_file(
                location, name=name, title=title, content=format_full_output(run_view)
            )
        except CALL_ERRORS as error:
            cause = get_error_cause(error)
            log.warning("cannot upload the output of run %d: %s", run_view.run.id, cause)


async def _send_hint(posts: RunPosts, location: MessageLocation | None) -> None:
    """Send the requester a link to the card if it is in another channel than the request."""
    run, requester = posts.run_view.run, posts.run_view.requester
    if run.origin.source != "slack" or not requester or location is None:
        return
    if location.channel in {run.origin.channel, ""} or location.channel.startswith("D"):
        return
    lines = [f"Run {run.id} – {escape_mrkdwn(run.title)} – is in <#{location.channel}>."]
    if not run.origin.channel.startswith("D"):
        lines.append(_format_invitation(run.origin.channel))
    await posts.send_once(_HINT, Message(" ".join(lines), [context(*lines)]), requester)


async def _send_remarks(posts: RunPosts, location: MessageLocation | None) -> None:
    """Post questions and answers in the card's thread, and update those that changed."""
    for remark in posts.run_view.discussion.remarks:
        slot, message = f"{REMARK}{remark.entry_number}", render_remark(posts.run_view, remark)
        if slot in posts.posted:
            await posts.update_or_forget(slot, message)
        else:
            await posts.post_once(slot, message, location)


async def _send_reminders(posts: RunPosts, location: MessageLocation | None) -> None:
    """Post the reminders that are due in the card's thread, each once."""
    for slot, message in build_reminders(posts.run_view).items():
        await posts.post_once(slot, message, location)


def _get_channel(posts: RunPosts, *, default: str) -> str:
    """Return the channel of a delivery; "" without one, which needs no turn."""
    for slot in (CARD, SHARED_CARD):
        if slot in posts.posted:
            return posts.get_location(slot).channel
    if posts.storm is not None and posts.storm.leader != posts.run_view.run.id:
        # Only its result is posted, in the thread of the card.
        location = posts.storm.location if posts.run_view.run.is_ended else None
        return location.channel if location else ""
    if routing.get_audience(posts.run_view, is_posted=False) is Audience.NONE:
        return ""
    return next(iter(routing.list_channels(posts.run_view, default_channel=default)), "")


def _is_long_running(run: Run, now: int) -> bool:
    started = run.state is State.RUNNING and run.parent is None and run.started_at
    return bool(started) and now - (run.started_at or now) > 60_000_000


def _add_invitation(run_view: SlackRunView, message: Message) -> Message:
    channel = run_view.run.origin.channel
    if not channel or channel.startswith("D"):
        return message
    return replace(message, blocks=[*message.blocks, context(_format_invitation(channel))])


def _format_invitation(channel: str) -> str:
    return f"Keyturn cannot post in <#{channel}>. Type /invite @Keyturn there."

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
from bot.db.outbox import PendingNews, PostedMessage
from bot.model.run import Run, State
from bot.slack import routing
from bot.slack.actions import CARD
from bot.slack.alerts import Alarms
from bot.slack.approver_dms import Copies, nudges
from bot.slack.blocks import Message, context, mrkdwn
from bot.slack.client import (
    CLOSED_PLACES,
    GONE_MESSAGES,
    Place,
    Voice,
    error_of,
    is_away,
    named,
    retry_after,
)
from bot.slack.declined_erasure import Declines
from bot.slack.home import Homes, concerned
from bot.slack.rate_limit import Pace
from bot.slack.routing import Audience
from bot.slack.run_facts import Stories, Story
from bot.slack.run_message import (
    full_output,
    is_output_cut,
    render_card,
    render_follow_up,
    render_result,
)

log = logging.getLogger(__name__)

Said = TypeVar("Said")

_POLL_SECONDS = 1.0
# Others may try after that; while a delivery goes on, it is prolonged in time.
_LEASE_SECONDS = 15.0
_TURN_SECONDS = 5.0
_DELIVERY_SECONDS = 45.0
_GRACE_SECONDS = 3.0
_AT_ONCE = 8
# A run that is planned within this time is shown with its plan at once.
_LOOKING_SECONDS = 1.0
_BETWEEN_UPDATES = 1.0
_LONGEST_WAIT = 60.0
_BETWEEN_LOOKS = 30.0

_WHISPER, _HINT, _FOLLOWED = "whisper", "hint", "followed"


@dataclass(frozen=True)
class _Delivery:
    item: PendingNews
    story: Story
    notices: dict[str, PostedMessage]


class _Attempt:
    """Tells one part after the other: what Slack refuses of one keeps no other from being told."""

    def __init__(self) -> None:
        self.refused: list[SlackApiError] = []

    async def at(self, part: Coroutine[Any, Any, Said]) -> Said | None:
        """Tell it. Raises SlackApiError where Slack is away: then it takes none of the others."""
        try:
            return await part
        except SlackApiError as refused:
            if is_away(refused):
                raise
            self.refused.append(refused)
            return None


class Outbox:
    """Call run() in the event loop, and wake() from any thread when there may be news."""

    def __init__(
        self,
        database: Database,
        stories: Stories,
        voice: Voice,
        *,
        default_channel: str = "",
        alarm_channel: str = "",
        homes: Homes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._homes = str(uuid4()), homes
        self._database, self._stories, self._voice = database, stories, voice
        self._default, self._clock = default_channel, clock
        self._alarms = Alarms(voice, self._remember, channel=alarm_channel or default_channel)
        self._copies = Copies(voice, self._remember)
        self._declines = Declines(voice, self._remember)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        # How many places are free: nothing is claimed that would wait for one, as it is drawn and
        # others are kept from it when it is claimed.
        self._free = _AT_ONCE
        self._sent: dict[int, float] = {}
        self._pace = Pace(clock)
        # When those that wait for their channel have their turn, by run.
        self._turns: dict[int, float] = {}
        self._timed = clock()
        self._under_way: set[asyncio.Task[None]] = set()
        # Whether it has looked for news at least once.
        self.waiting = False

    def wake(self) -> None:
        """Look for news now."""
        if self._loop is not None:
            # The loop may be closed already: then the next process finds the news.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def run(self) -> None:
        """Deliver until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                self._woken.clear()
                for delivery in await self._due():
                    self._begin(self._deliver(delivery))
                if self._homes is not None:
                    self._begin(self._homes.draw())
                self.waiting = True
                # Python 3.11's wait_for loses a cancellation that comes with the wake-up.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._woken.wait()
        finally:
            # What is half said is finished, or it would be said again after the next start.
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=_GRACE_SECONDS)
            await self._write(lambda tx: outbox.release(tx, self._name))

    async def flush(self) -> None:
        """Deliver all that is due now, and return when it is told or postponed."""
        while due := await self._due():
            await asyncio.gather(*(self._deliver(delivery) for delivery in due))
        if self._homes is not None:
            await self._homes.draw()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _due(self) -> list[_Delivery]:
        """Claim what is due, as far as there are places, and give each of it one."""
        most, self._free = self._free, 0
        due = await self._claimed(most) if most else []
        self._free += most - len(due)
        return due

    async def _claimed(self, most: int) -> list[_Delivery]:
        try:
            return await asyncio.to_thread(self._claim, most)
        except StoreUnavailable as trouble:
            log.warning("the outbox waits for the database: %s", trouble)
        except Exception:
            log.exception("the outbox could not look for news")
        return []

    def _claim(self, most: int) -> list[_Delivery]:
        self._keep_time()
        with self._database.reading() as tx:
            if not outbox.list_pending_news(tx, most=1):
                return []
        with self._database.transaction() as tx:
            ready = (
                delivery
                for item in outbox.lock_pending_news(tx)
                if not self._early((delivery := self._drawn(tx, item)).story)
                and self._its_turn(tx, delivery)
                and outbox.claim_news(tx, item, sender=self._name, seconds=_LEASE_SECONDS)
            )
            return list(islice(ready, most))

    def _drawn(self, tx: Transaction, item: PendingNews) -> _Delivery:
        return _Delivery(item, self._story(tx, item), outbox.list_messages(tx, item.run))

    def _story(self, tx: Transaction, item: PendingNews) -> Story:
        return replace(self._stories.of(tx, item.run), tries=item.tries)

    def _its_turn(self, tx: Transaction, delivery: _Delivery) -> bool:
        """Return whether the channel takes one more message now; else it waits for its turn."""
        now, run = self._clock(), delivery.item.run
        turn = self._turns.pop(run, None)
        if turn is None:
            turn = now + self._pace.wait(_channel(delivery, default=self._default))
        if turn <= now:
            return True
        self._turns[run] = turn
        # Whoever takes over from us waits no longer than that.
        outbox.claim_news(tx, delivery.item, sender="", seconds=min(turn - now, _TURN_SECONDS))
        return False

    def _keep_time(self) -> None:
        """Have the cards of what takes minutes drawn anew: they say how long it has taken."""
        if self._clock() - self._timed < _BETWEEN_LOOKS:
            return
        self._timed = self._clock()
        with self._database.reading() as tx:
            long = [
                run.id for run in runs.list_unfinished_briefly(tx) if _takes_minutes(run, tx.now)
            ]
        if long:
            with self._database.transaction() as tx:
                for number in long:
                    outbox.announce_run(tx, number)

    def _early(self, story: Story) -> bool:
        """Return whether it is better to wait: there will be more to say in a moment."""
        run = story.run
        if run.state is State.ASKED:
            return story.now - run.asked < _LOOKING_SECONDS * 1_000_000
        since = self._clock() - self._sent.get(run.id, -_BETWEEN_UPDATES)
        return run.state is State.RUNNING and since < _BETWEEN_UPDATES

    async def _deliver(self, delivery: _Delivery) -> None:
        item = delivery.item
        keeping = asyncio.create_task(self._keep(item))
        try:
            async with asyncio.timeout(_DELIVERY_SECONDS):
                await self._tell(delivery.story, delivery.notices)
        except SlackApiError as refused:
            wait = retry_after(refused)
            await self._postpone(item, error_of(refused), wait)
        except (ClientError, SlackClientError, TimeoutError) as trouble:
            await self._postpone(item, str(trouble) or type(trouble).__name__, None)
        except Exception as fault:
            log.exception("the news of run %d could not be told", item.run)
            await self._postpone(item, repr(fault), None)
        else:
            await self._told(item, delivery.story)
        finally:
            keeping.cancel()
            self._free += 1
        self._woken.set()

    async def _keep(self, item: PendingNews) -> None:
        """Keep others from what is being told, for as long as it takes."""
        while True:
            await asyncio.sleep(_LEASE_SECONDS / 3)

            def write(tx: Transaction) -> None:
                outbox.renew(tx, item, sender=self._name, seconds=_LEASE_SECONDS)

            await self._write(write)

    async def _told(self, item: PendingNews, story: Story) -> None:
        run = story.run
        self._sent[run.id] = self._clock()
        if run.over:
            self._sent.pop(run.id, None)

        def write(tx: Transaction) -> None:
            outbox.mark_told(tx, item, sender=self._name)
            home_queue.mark_homes_due(tx, concerned(story))

        await self._write(write)

    async def _postpone(self, item: PendingNews, why: str, wait: float | None) -> None:
        seconds = min(2.0**item.tries, _LONGEST_WAIT) if wait is None else wait
        # Senders that were refused together shall not come back together.
        seconds *= 1 + random.random() / 4  # noqa: S311 - no secret
        log.warning("the news of run %d waits %.1f s: %s", item.run, seconds, why)

        def write(tx: Transaction) -> None:
            outbox.postpone_news(tx, item, seconds=seconds, why=why, sender=self._name)

        await self._write(write)

    # --- what is said ---

    async def _tell(self, story: Story, notices: dict[str, PostedMessage]) -> None:
        posted, attempt = notices.get(CARD), _Attempt()
        await attempt.at(self._alarms.sound(story, notices))
        await attempt.at(self._declines.tell(story, notices))
        match routing.of_card(story, posted=posted is not None):
            case Audience.NOBODY:
                pass
            case Audience.ASKER:
                await attempt.at(self._whisper(story, notices))
            case Audience.CHANNEL:
                await self._in_channel(story, notices, posted, attempt)
        if attempt.refused:
            raise attempt.refused[0]

    async def _in_channel(
        self,
        story: Story,
        notices: dict[str, PostedMessage],
        posted: PostedMessage | None,
        attempt: "_Attempt",
    ) -> None:
        refused = len(attempt.refused)
        place = await attempt.at(self._card(story, posted))
        if len(attempt.refused) > refused:
            if posted is None:
                return
            place = Place(posted.channel, posted.ts)
        # First: how it ended reaches people whatever becomes of the rest.
        await attempt.at(self._result(story, place, notices))
        await attempt.at(self._hint(story, place, notices))
        await attempt.at(self._nudges(story, place, notices))
        await attempt.at(self._copies.bring_up_to_date(story, place, notices))

    async def _whisper(self, story: Story, notices: dict[str, PostedMessage]) -> None:
        if _WHISPER in notices or not story.asker:
            return
        message, channel = render_card(story), story.run.origin.channel
        if story.tries:
            # A whisper cannot be found again: whoever has it already gets one message more.
            told = await self._voice.tell(story.asker, named(message, story, _WHISPER))
        else:
            told = Place(await self._voice.whisper(channel, story.asker, message), "")
        await self._remember(story, _WHISPER, told, message)

    async def _card(self, story: Story, posted: PostedMessage | None) -> Place | None:
        """Bring the card up to date, and return where it stands; None if there is nowhere."""
        message = render_card(story)
        if posted is not None:
            place = Place(posted.channel, posted.ts)
            if posted.digest == message.digest:
                return place
            if await self._updated(place, message):
                await self._remember(story, CARD, place, message)
                return place
        # What takes the place of another is another message.
        slot = CARD if posted is None else f"{CARD} {posted.ts}"
        place = await self._posted(story, named(message, story, slot))
        if place is not None:
            await self._remember(story, CARD, place, message)
        return place

    async def _updated(self, place: Place, message: Message) -> bool:
        """Update a card; False if it is gone or its channel is closed: then it is posted anew."""
        try:
            await self._voice.update(place, message)
        except SlackApiError as refused:
            if error_of(refused) not in GONE_MESSAGES | CLOSED_PLACES:
                raise
            return False
        return True

    async def _posted(self, story: Story, message: Message) -> Place | None:
        for channel in routing.channels(story, default=self._default):
            try:
                return await self._voice.post(channel, message)
            except SlackApiError as refused:
                if error_of(refused) not in CLOSED_PLACES:
                    raise
                log.warning("%s cannot be posted to: %s", channel, error_of(refused))
        if not story.asker:
            log.error("there is no channel to tell of run %d in", story.run.id)
            return None
        return await self._voice.tell(story.asker, _with_invitation(story, message))

    async def _hint(
        self, story: Story, place: Place | None, notices: dict[str, PostedMessage]
    ) -> None:
        """Tell the asker where the card is, if it is not where they asked."""
        origin = story.run.origin
        asked_here = origin.door == "slack" and place is not None and story.asker
        if not asked_here or place is None or place.channel in {origin.channel, ""}:
            return
        if _HINT in notices or place.channel.startswith("D"):
            return
        lines = [f"Run {story.run.id} – {mrkdwn(story.run.title)} – is in <#{place.channel}>."]
        if not origin.channel.startswith("D"):
            lines.append(_invitation(origin.channel))
        message = Message(" ".join(lines), [context(*lines)])
        told = await self._voice.tell(story.asker, named(message, story, _HINT))
        await self._remember(story, _HINT, told, message)

    async def _nudges(
        self, story: Story, place: Place | None, notices: dict[str, PostedMessage]
    ) -> None:
        """Call those whose approval is waited for, each time once."""
        for slot, message in nudges(story).items():
            if place is not None and slot not in notices:
                nudge = named(message, story, slot)
                told = await self._voice.post(place.channel, nudge, thread=place.ts)
                await self._remember(story, slot, told, message)

    async def _result(
        self, story: Story, place: Place | None, notices: dict[str, PostedMessage]
    ) -> None:
        over = story.run.report is not None and story.run.kind == "change"
        slot = _FOLLOWED if over else f"result {story.run.state}"
        if place is None or slot in notices or not routing.calls_asker(story):
            return
        message = named(render_follow_up(story) if over else render_result(story), story, slot)
        told = await self._voice.post(place.channel, message, thread=place.ts)
        await self._remember(story, slot, told, message)
        if not over and is_output_cut(story):
            await self._share(story, place)

    async def _share(self, story: Story, place: Place) -> None:
        """Add all that the hosts said as a file; the page has it too, so this is tried once."""
        name = f"run-{story.run.id}.txt"
        title = f"What {story.run.host} said in run {story.run.id}"
        try:
            await self._voice.share(place, name=name, title=title, content=full_output(story))
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("the output of run %d is no file: %s", story.run.id, trouble)

    async def _remember(self, story: Story, slot: str, place: Place, message: Message) -> None:
        notice = PostedMessage(story.run.id, slot, place.channel, place.ts, message.digest)
        await self._write(lambda tx: outbox.store_message(tx, notice))

    async def _write(self, write: Callable[[Transaction], None]) -> None:
        """Write it down, or say that the message may come twice: it shows the same then."""

        def in_transaction() -> None:
            with self._database.transaction() as tx:
                write(tx)

        try:
            await asyncio.to_thread(in_transaction)
        except StoreUnavailable as trouble:
            log.warning("what was told could not be written down: %s", trouble)


def _channel(delivery: _Delivery, *, default: str) -> str:
    """Return where it is told; "" if nowhere, which takes nobody's turn."""
    posted = delivery.notices.get(CARD)
    if posted is not None:
        return posted.channel
    if routing.of_card(delivery.story, posted=False) is Audience.NOBODY:
        return ""
    return next(iter(routing.channels(delivery.story, default=default)), "")


def _takes_minutes(run: Run, now: int) -> bool:
    started = run.state is State.RUNNING and run.parent is None and run.started
    return bool(started) and now - (run.started or now) > 60_000_000


def _with_invitation(story: Story, message: Message) -> Message:
    channel = story.run.origin.channel
    if not channel or channel.startswith("D"):
        return message
    return replace(message, blocks=[*message.blocks, context(_invitation(channel))])


def _invitation(channel: str) -> str:
    return f"Keyturn cannot write in <#{channel}>: type /invite @Keyturn there."

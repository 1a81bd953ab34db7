"""Homes: the Home tabs of those who look at them, kept up to date."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.db import home_queue, runs, schedules, search
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.home_queue import Home
from bot.db.schedules import ScheduleState
from bot.model.canonical import hash_canonical
from bot.model.run import Run, State
from bot.model.run_states import describe_run
from bot.slack.blocks import (
    Block,
    Element,
    View,
    actions,
    bold,
    bullets,
    button,
    code,
    context,
    emoji,
    header,
    line,
    link,
    rich,
    shortened,
    when,
    words,
)
from bot.slack.client import Voice, error_of, retry_after
from bot.slack.replies import ASK, COMMAND
from bot.slack.run_facts import Stories, Story
from bot.slack.run_message import render_card

# What the button says that opens the choice of everything.
ANYTHING = "anything"
# A Home holds a hundred blocks, and a card up to a dozen.
_MOST_CARDS = 5
_MOST_LISTED = 8
_DIVIDER: Block = {"type": "divider"}


@dataclass(frozen=True)
class Coming:
    """A schedule that fires. at: when next, in words."""

    name: str
    number: int
    at: str


@dataclass(frozen=True)
class Seen:
    """All that one Home tells. names: of people, by their ids. now: microseconds.

    mine, changed: the newest first.
    """

    person: str
    now: int
    names: Mapping[str, str]
    base_url: str
    to_decide: Sequence[Story]
    mine: Sequence[Run]
    moving: Sequence[Run]
    changed: Sequence[Run]
    coming: Sequence[Coming]


def tab(seen: Seen, *, dated: bool = True) -> View:
    """Draw a Home. dated: say when; left out to see whether anything else has changed."""
    ask = button(
        "Ask for Something", action=f"{ASK}-0", value=ANYTHING, label="Ask for a check or a change"
    )
    blocks = [actions("ask", ask), *_to_decide(seen)]
    blocks += _section("Your requests", seen.mine, seen, f"Ask with {COMMAND}, or above.")
    blocks += _section("Running now", seen.moving, seen, "Nothing is running.")
    blocks += _section("Recent changes", seen.changed, seen, "Nothing was changed yet.")
    blocks += _coming(seen)
    if dated:
        blocks.append(context(f"As of {when(seen.now)}"))
    return {"type": "home", "blocks": blocks}


def refusal(why: str) -> View:
    return {"type": "home", "blocks": [rich(line(words(why)))]}


def _to_decide(seen: Seen) -> list[Block]:
    waiting = seen.to_decide
    title = header(f"Waiting for you · {len(waiting)}" if waiting else "Waiting for you")
    if not waiting:
        return [title, context("Nothing waits for your approval.")]
    blocks = [title]
    for story in waiting[:_MOST_CARDS]:
        head, *rest = render_card(story).blocks
        blocks += [rich(line(bold(str(head["text"]["text"])))), *rest, _DIVIDER]
    more = waiting[_MOST_CARDS:]
    if more:
        blocks.append(rich(bullets(*(_listed(story.run, seen) for story in more[:_MOST_LISTED]))))
    return blocks


def _section(title: str, found: Sequence[Run], seen: Seen, nothing: str) -> list[Block]:
    if not found:
        return [header(title), context(nothing)]
    return [header(title), rich(bullets(*(_listed(run, seen) for run in found[:_MOST_LISTED])))]


def _listed(run: Run, seen: Seen) -> list[Element]:
    status = describe_run(run)
    title = shortened(run.title, 150)
    page = f"{seen.base_url}/runs/{run.id}"
    named = link(page, title) if seen.base_url else bold(title)
    said: list[Element] = [emoji(status.emoji), words(f" {status.label}: "), named]
    if run.asked_by != seen.person:
        said.append(words(f" – {seen.names.get(run.asked_by, run.asked_by)}"))
    if run.state is State.WAITING:
        said += [words(" – "), code(f"{COMMAND} withdraw {run.id}")]
    return said


def _coming(seen: Seen) -> list[Block]:
    if not seen.coming:
        return []
    told = [
        [bold(one.name), words(f" – {one.at} – "), code(f"{COMMAND} schedule {one.number}")]
        for one in seen.coming[:_MOST_LISTED]
    ]
    return [header("Schedules"), rich(bullets(*told))]


log = logging.getLogger(__name__)

# Longer than one drawing can take; others may try after that.
_LEASE_SECONDS = 15.0
_PATIENCE_SECONDS = 10.0
_AGAIN_SECONDS = 20.0
_MOST = 200
_LATEST = 40
# Slack's words for somebody who has no Home any more.
_GONE = frozenset({"user_disabled", "user_not_found", "account_inactive", "not_enabled"})


@dataclass(frozen=True)
class _Drawing:
    home: Home
    seen: Seen


class Homes:
    """Call draw() often; it draws what is due."""

    def __init__(self, database: Database, stories: Stories, voice: Voice) -> None:
        self._database, self._stories, self._voice = database, stories, voice
        self._drawing = False

    def opened(self, user: str, person: str) -> None:
        with self._database.transaction() as tx:
            home_queue.open_home(tx, user, person)

    async def refuse(self, user: str, why: str) -> None:
        """Tell somebody whom we do not know, where they would see their Home."""
        try:
            await self._voice.publish(user, refusal(why))
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.info("the Home of %s could not be drawn: %s", user, trouble)

    async def draw(self) -> None:
        """Draw all that is due, one after the other, unless that is under way."""
        if self._drawing:
            return
        self._drawing = True
        try:
            # Each is looked up right before it is drawn: with a slow Slack, that may be long after
            # the one before it.
            while (drawing := await asyncio.to_thread(self._claim)) is not None:
                await self._draw(drawing)
        except StoreUnavailable as trouble:
            log.warning("Homes wait for the database: %s", trouble)
        finally:
            self._drawing = False

    def _claim(self) -> _Drawing | None:
        """Return the next that is due and that nobody else draws."""
        with self._database.reading() as tx:
            if not home_queue.list_due_homes(tx, most=1):
                return None
        with self._database.transaction() as tx:
            for due in home_queue.list_due_homes(tx):
                home = home_queue.claim_home(tx, due, seconds=_LEASE_SECONDS)
                if home is not None:
                    return _Drawing(home, self._seen(tx, home))
        return None

    async def _draw(self, drawing: _Drawing) -> None:
        home, view = drawing.home, tab(drawing.seen)
        digest = hash_canonical(tab(drawing.seen, dated=False))
        try:
            if digest != home.digest:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._voice.publish(home.user, view)
            await self._write(lambda tx: home_queue.mark_drawn(tx, home, digest))
        except SlackApiError as refused:
            await self._refused(home, refused)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("the Home of %s waits: %s", home.user, trouble)
            await self._write(
                lambda tx: home_queue.postpone_home(tx, home, seconds=_AGAIN_SECONDS)
            )

    async def _refused(self, home: Home, refused: SlackApiError) -> None:
        log.warning("the Home of %s was not drawn: %s", home.user, error_of(refused))
        if error_of(refused) in _GONE:
            await self._write(lambda tx: home_queue.forget_home(tx, home))
            return
        wait = retry_after(refused) or _AGAIN_SECONDS
        await self._write(lambda tx: home_queue.postpone_home(tx, home, seconds=wait))

    async def _write(self, write: Callable[[Transaction], None]) -> None:
        def in_transaction() -> None:
            with self._database.transaction() as tx:
                write(tx)

        try:
            await asyncio.to_thread(in_transaction)
        except StoreUnavailable as trouble:
            log.warning("what a Home shows could not be written down: %s", trouble)

    def _seen(self, tx: Transaction, home: Home) -> Seen:
        """Look up what stands in a Home, as far as its person may view it."""
        tx.sight = self._stories.sight(home.person)
        try:
            return self._looked_up(tx, home)
        finally:
            # The rest of the transaction is the service's own.
            tx.sight = None

    def _looked_up(self, tx: Transaction, home: Home) -> Seen:
        waiting = [self._stories.of(tx, run.id) for run in runs.list_pending(tx)[:_MOST]]
        moving = [run for run in runs.list_unfinished_briefly(tx) if run.parent is None]
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_LATEST)
        return Seen(
            person=home.person,
            now=tx.now,
            names=self._stories.people(),
            base_url=self._stories.base_url,
            to_decide=[story for story in waiting if may_decide(story, home)],
            mine=[run for run in latest if run.asked_by == home.person],
            moving=[run for run in moving if run.state in _MOVING and run.kind == "change"],
            changed=[run for run in latest if _changed(run)],
            coming=_homes_coming(tx),
        )


_MOVING = frozenset({State.READY, State.STARTING, State.RUNNING, State.UNKNOWN})


def concerned(story: Story) -> set[str]:
    """Return the users whose Home tells of a run."""
    people = {story.asker, *(one.user for one in (*story.approvers, *story.owners))}
    return {user for user in people if user}


def may_decide(story: Story, home: Home) -> bool:
    """Return whether the run waits for this very person."""
    voted = any(vote.person == home.person for vote in story.votes)
    return not voted and any(one.user == home.user for one in story.approvers)


def _changed(run: Run) -> bool:
    return run.kind == "change" and run.over and run.started is not None


def _homes_coming(tx: Transaction) -> list[Coming]:
    active = [
        each for each in schedules.list_schedules(tx) if each.standing is ScheduleState.ACTIVE
    ]
    return [
        Coming(each.timing.name, each.id, at)
        for each in active
        for at in each.timing.timetable.spoken(tx.now, count=1)
    ]

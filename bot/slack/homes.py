"""Homes: the Home tabs of those who look at them, kept up to date."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.digest import sha256
from bot.run import Run, State
from bot.slack.home import Coming, Seen, refusal, tab
from bot.slack.story import Stories, Story
from bot.slack.voice import Voice, error_of, retry_after
from bot.store import homes, runs, schedules, search
from bot.store.database import Database, StoreUnavailable, Transaction
from bot.store.homes import Home
from bot.store.schedules import Standing

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
            homes.opened(tx, user, person)

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
            if not homes.due(tx, most=1):
                return None
        with self._database.transaction() as tx:
            for due in homes.due(tx):
                home = homes.claim(tx, due, seconds=_LEASE_SECONDS)
                if home is not None:
                    return _Drawing(home, self._seen(tx, home))
        return None

    async def _draw(self, drawing: _Drawing) -> None:
        home, view = drawing.home, tab(drawing.seen)
        digest = sha256(tab(drawing.seen, dated=False))
        try:
            if digest != home.digest:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._voice.publish(home.user, view)
            await self._write(lambda tx: homes.drawn(tx, home, digest))
        except SlackApiError as refused:
            await self._refused(home, refused)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("the Home of %s waits: %s", home.user, trouble)
            await self._write(lambda tx: homes.postpone(tx, home, seconds=_AGAIN_SECONDS))

    async def _refused(self, home: Home, refused: SlackApiError) -> None:
        log.warning("the Home of %s was not drawn: %s", home.user, error_of(refused))
        if error_of(refused) in _GONE:
            await self._write(lambda tx: homes.forget(tx, home))
            return
        wait = retry_after(refused) or _AGAIN_SECONDS
        await self._write(lambda tx: homes.postpone(tx, home, seconds=wait))

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
        waiting = [self._stories.of(tx, run.id) for run in runs.waiting(tx)[:_MOST]]
        moving = [run for run in runs.to_move(tx) if run.parent is None]
        latest = search.newest(tx, search.Filter(), most=_LATEST)
        return Seen(
            person=home.person,
            now=tx.now,
            names=self._stories.people(),
            base_url=self._stories.base_url,
            to_decide=[story for story in waiting if may_decide(story, home)],
            mine=[run for run in latest if run.asked_by == home.person],
            moving=[run for run in moving if run.state in _MOVING and run.kind == "change"],
            changed=[run for run in latest if _changed(run)],
            coming=_coming(tx),
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


def _coming(tx: Transaction) -> list[Coming]:
    active = [each for each in schedules.every(tx) if each.standing is Standing.ACTIVE]
    return [
        Coming(each.timing.name, each.id, at)
        for each in active
        for at in each.timing.timetable.spoken(tx.now, count=1)
    ]

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
from bot.model.run_states import get_run_display
from bot.slack.blocks import (
    Block,
    Element,
    View,
    actions,
    bold,
    bullet_list,
    button,
    code,
    context,
    emoji,
    format_date,
    header,
    link,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
)
from bot.slack.client import MessageSender, get_error_code, get_retry_seconds
from bot.slack.replies import COMMAND, FORM_ACTION
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import render_card

# What the button says that opens the choice of everything.
ANY_RUNBOOK = "anything"
# A Home holds a hundred blocks, and a card up to a dozen.
_MAX_CARDS = 5
_MAX_LISTED = 8
_DIVIDER: Block = {"type": "divider"}


@dataclass(frozen=True)
class UpcomingSchedule:
    """A schedule that fires. at: when next, in words."""

    name: str
    number: int
    next_time: str


@dataclass(frozen=True)
class HomeContent:
    """All that one Home tells. names: of people, by their ids. now: microseconds.

    mine, changed: the newest first.
    """

    person: str
    now: int
    person_names: Mapping[str, str]
    base_url: str
    pending: Sequence[SlackRunView]
    own_runs: Sequence[Run]
    running: Sequence[Run]
    recent_changes: Sequence[Run]
    upcoming: Sequence[UpcomingSchedule]


def render_home(content: HomeContent, *, with_time: bool = True) -> View:
    """Draw a Home. dated: say when; left out to see whether anything else has changed."""
    ask = button(
        "Ask for Something",
        action=f"{FORM_ACTION}-0",
        value=ANY_RUNBOOK,
        label="Ask for a check or a change",
    )
    blocks = [actions("ask", ask), *_render_pending(content)]
    blocks += _render_section(
        "Your requests", content.own_runs, content, f"Ask with {COMMAND}, or above."
    )
    blocks += _render_section("Running now", content.running, content, "Nothing is running.")
    blocks += _render_section(
        "Recent changes", content.recent_changes, content, "Nothing was changed yet."
    )
    blocks += _render_upcoming(content)
    if with_time:
        blocks.append(context(f"As of {format_date(content.now)}"))
    return {"type": "home", "blocks": blocks}


def render_refusal(reason: str) -> View:
    return {"type": "home", "blocks": [rich_text(rich_text_section(text_element(reason)))]}


def _render_pending(content: HomeContent) -> list[Block]:
    waiting = content.pending
    title = header(f"Waiting for you · {len(waiting)}" if waiting else "Waiting for you")
    if not waiting:
        return [title, context("Nothing waits for your approval.")]
    blocks = [title]
    for story in waiting[:_MAX_CARDS]:
        head, *rest = render_card(story).blocks
        blocks += [rich_text(rich_text_section(bold(str(head["text"]["text"])))), *rest, _DIVIDER]
    more = waiting[_MAX_CARDS:]
    if more:
        blocks.append(
            rich_text(
                bullet_list(*(_render_run(story.run, content) for story in more[:_MAX_LISTED]))
            )
        )
    return blocks


def _render_section(
    title: str, runs_shown: Sequence[Run], content: HomeContent, empty_text: str
) -> list[Block]:
    if not runs_shown:
        return [header(title), context(empty_text)]
    return [
        header(title),
        rich_text(bullet_list(*(_render_run(run, content) for run in runs_shown[:_MAX_LISTED]))),
    ]


def _render_run(run: Run, content: HomeContent) -> list[Element]:
    status = get_run_display(run)
    title = shorten_text(run.title, 150)
    page = f"{content.base_url}/runs/{run.id}"
    named = link(page, title) if content.base_url else bold(title)
    said: list[Element] = [emoji(status.emoji), text_element(f" {status.label}: "), named]
    if run.requested_by != content.person:
        said.append(
            text_element(f" – {content.person_names.get(run.requested_by, run.requested_by)}")
        )
    if run.state is State.PENDING:
        said += [text_element(" – "), code(f"{COMMAND} withdraw {run.id}")]
    return said


def _render_upcoming(content: HomeContent) -> list[Block]:
    if not content.upcoming:
        return []
    told = [
        [
            bold(one.name),
            text_element(f" – {one.next_time} – "),
            code(f"{COMMAND} schedule {one.number}"),
        ]
        for one in content.upcoming[:_MAX_LISTED]
    ]
    return [header("Schedules"), rich_text(bullet_list(*told))]


_log = logging.getLogger(__name__)

# Longer than one drawing can take; others may try after that.
_LEASE_SECONDS = 15.0
_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 20.0
_MAX_PENDING = 200
_MAX_NEWEST = 40
# Slack's words for somebody who has no Home any more.
_GONE_USER_ERRORS = frozenset(
    {"user_disabled", "user_not_found", "account_inactive", "not_enabled"}
)


@dataclass(frozen=True)
class _ClaimedHome:
    home: Home
    content: HomeContent


class HomeTabs:
    """Call draw() often; it draws what is due."""

    def __init__(
        self, database: Database, stories: SlackRunViewBuilder, voice: MessageSender
    ) -> None:
        self._database, self._view_builder, self._sender = database, stories, voice
        self._is_drawing = False

    def open_home(self, user: str, person: str) -> None:
        with self._database.transaction() as tx:
            home_queue.open_home(tx, user, person)

    async def show_refusal(self, user: str, reason: str) -> None:
        """Tell somebody whom we do not know, where they would see their Home."""
        try:
            await self._sender.publish_home_tab(user, render_refusal(reason))
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            _log.info("the Home of %s could not be drawn: %s", user, trouble)

    async def draw_due_homes(self) -> None:
        """Draw all that is due, one after the other, unless that is under way."""
        if self._is_drawing:
            return
        self._is_drawing = True
        try:
            # Each is looked up right before it is drawn: with a slow Slack, that may be long after
            # the one before it.
            while (drawing := await asyncio.to_thread(self._claim_next_home)) is not None:
                await self._draw_home(drawing)
        except StoreUnavailable as trouble:
            _log.warning("Homes wait for the database: %s", trouble)
        finally:
            self._is_drawing = False

    def _claim_next_home(self) -> _ClaimedHome | None:
        """Return the next that is due and that nobody else draws."""
        with self._database.reading() as tx:
            if not home_queue.list_due_homes(tx, most=1):
                return None
        with self._database.transaction() as tx:
            for due in home_queue.list_due_homes(tx):
                home = home_queue.claim_home(tx, due, seconds=_LEASE_SECONDS)
                if home is not None:
                    return _ClaimedHome(home, self._load_content(tx, home))
        return None

    async def _draw_home(self, claimed: _ClaimedHome) -> None:
        home, view = claimed.home, render_home(claimed.content)
        digest = hash_canonical(render_home(claimed.content, with_time=False))
        try:
            if digest != home.digest:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await self._sender.publish_home_tab(home.user, view)
            await self._write_in_transaction(lambda tx: home_queue.mark_drawn(tx, home, digest))
        except SlackApiError as refused:
            await self._handle_slack_error(home, refused)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            _log.warning("the Home of %s waits: %s", home.user, trouble)
            await self._write_in_transaction(
                lambda tx: home_queue.postpone_home(tx, home, seconds=_RETRY_SECONDS)
            )

    async def _handle_slack_error(self, home: Home, refused: SlackApiError) -> None:
        _log.warning("the Home of %s was not drawn: %s", home.user, get_error_code(refused))
        if get_error_code(refused) in _GONE_USER_ERRORS:
            await self._write_in_transaction(lambda tx: home_queue.forget_home(tx, home))
            return
        wait = get_retry_seconds(refused) or _RETRY_SECONDS
        await self._write_in_transaction(
            lambda tx: home_queue.postpone_home(tx, home, seconds=wait)
        )

    async def _write_in_transaction(self, write: Callable[[Transaction], None]) -> None:
        def in_transaction() -> None:
            with self._database.transaction() as tx:
                write(tx)

        try:
            await asyncio.to_thread(in_transaction)
        except StoreUnavailable as trouble:
            _log.warning("what a Home shows could not be written down: %s", trouble)

    def _load_content(self, tx: Transaction, home: Home) -> HomeContent:
        """Look up what stands in a Home, as far as its person may view it."""
        tx.sight = self._view_builder.get_view_rights(home.person)
        try:
            return self._build_content(tx, home)
        finally:
            # The rest of the transaction is the service's own.
            tx.sight = None

    def _build_content(self, tx: Transaction, home: Home) -> HomeContent:
        waiting = [
            self._view_builder.build_slack_run_view(tx, run.id)
            for run in runs.list_pending(tx)[:_MAX_PENDING]
        ]
        moving = [run for run in runs.list_unfinished_briefly(tx) if run.parent is None]
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_MAX_NEWEST)
        return HomeContent(
            person=home.person,
            now=tx.now,
            person_names=self._view_builder.get_person_names(),
            base_url=self._view_builder.base_url,
            pending=[story for story in waiting if can_decide(story, home)],
            own_runs=[run for run in latest if run.requested_by == home.person],
            running=[
                run for run in moving if run.state in _RUNNING_STATES and run.kind == "change"
            ],
            recent_changes=[run for run in latest if _is_change_started(run)],
            upcoming=_list_upcoming(tx),
        )


_RUNNING_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN})


def list_concerned_users(story: SlackRunView) -> set[str]:
    """Return the users whose Home tells of a run."""
    people = {story.requester, *(one.slack_user for one in (*story.approvers, *story.owners))}
    return {user for user in people if user}


def can_decide(story: SlackRunView, home: Home) -> bool:
    """Return whether the run waits for this very person."""
    voted = any(vote.person == home.person for vote in story.decisions)
    return not voted and any(one.slack_user == home.user for one in story.approvers)


def _is_change_started(run: Run) -> bool:
    return run.kind == "change" and run.is_ended and run.started_at is not None


def _list_upcoming(tx: Transaction) -> list[UpcomingSchedule]:
    active = [each for each in schedules.list_schedules(tx) if each.state is ScheduleState.ACTIVE]
    return [
        UpcomingSchedule(each.timing.name, each.id, at)
        for each in active
        for at in each.timing.cron_expression.format_due_times(tx.now, count=1)
    ]

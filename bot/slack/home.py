"""The Home tab: its content, and the service that keeps open ones up to date."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.db import home_queue, runs, search
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.home_queue import Home
from bot.model.canonical import hash_canonical
from bot.model.run import Run, State, name_requester
from bot.model.run_states import get_run_display
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Block,
    Inline,
    Message,
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
    paragraph,
    quote,
    rich_text,
    rich_text_section,
    shorten_text,
)
from bot.slack.buttons import ANY_RUNBOOK, FORM_ACTION
from bot.slack.client import CALL_ERRORS, MessageSender, get_error_cause, get_retry_seconds
from bot.slack.features import HomeSection, ReadHomeSection
from bot.slack.run_buttons import ANSWER, REVIEW_PLAN, WITHDRAW_PLAN
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import build_sign_buttons, render_card, render_signing_hint
from bot.slack.threads import write_or_log

# A Home holds a hundred blocks, and a card up to a dozen.
_MAX_CARDS = 5
_MAX_LISTED = 8
_DIVIDER: Block = {"type": "divider"}


@dataclass(frozen=True)
class HomeContent:
    """The content of one Home tab."""

    person: str
    now: int
    """Microseconds."""
    person_names: Mapping[str, str]
    """Names by person id."""
    base_url: str
    """Of the web pages, or ""."""
    pending: Sequence[SlackRunView]
    """The first runs that need this person's approval: those that are assigned to them first."""
    questions: Sequence[SlackRunView]
    """The person's pending requests with a question that is not answered."""
    to_sign: Sequence[SlackRunView]
    """The person's pending requests whose plan they sign before approvers decide."""
    to_resolve: Sequence[Run]
    """Runs with an unknown outcome, of which the person records how they ended."""
    unrequested: Sequence[SlackRunView]
    """The person's plans, and counter-proposals to the person's requests."""
    own_runs: Sequence[Run]
    """The person's requests, newest first."""
    running: Sequence[Run]
    recent_changes: Sequence[Run]
    """Changes that have ended, newest first."""
    more_pending: Sequence[Run] = ()
    """All other runs that need this person's approval."""
    added: Sequence[HomeSection] = ()
    """The sections of features."""


def render_home(content: HomeContent, *, with_time: bool = True) -> View:
    """Render a Home tab. with_time: False to compare content without its time."""
    request_button = button(
        "New request",
        action=f"{FORM_ACTION}-0",
        value=ANY_RUNBOOK,
        label="Request a check or a change",
    )
    blocks = [actions("ask", request_button), *_render_unrequested(content)]
    blocks += _render_pending(content)
    blocks += _render_section("Your requests", content.own_runs, content, "No requests yet.")
    blocks += _render_section("Running now", content.running, content, "Nothing is running.")
    blocks += _render_section("Recent changes", content.recent_changes, content, "No changes yet.")
    for section in content.added:
        items = [[*item] for item in section.items[:_MAX_LISTED]]
        blocks += [header(section.title), rich_text(bullet_list(*items))]
    if with_time:
        blocks.append(context(f"As of {format_date(content.now)}"))
    return {"type": "home", "blocks": blocks}


def render_refusal(refusal: Message) -> View:
    """Render a Home tab that only shows why there is no content."""
    return {"type": "home", "blocks": [*refusal.blocks]}


def _render_unrequested(content: HomeContent) -> list[Block]:
    """Render what waits for the person besides approvals: outcomes, questions, own plans, …"""
    others = len(content.questions) + len(content.to_sign) + len(content.unrequested)
    count = len(content.to_resolve) + others
    if not count:
        return []
    blocks = [header(f"Waiting for you · {count}")]
    blocks += [_render_unknown(run, content) for run in content.to_resolve[:_MAX_CARDS]]
    for run_view in content.questions[:_MAX_CARDS]:
        blocks += _render_question(run_view, content)
    for run_view in content.to_sign[:_MAX_CARDS]:
        blocks += [
            paragraph(*_render_run(run_view.run, content)),
            render_signing_hint(run_view),
        ]
        if sign := build_sign_buttons(run_view):
            blocks.append(actions(f"sign-{run_view.run.id}", *sign))
    for run_view in content.unrequested[:_MAX_CARDS]:
        run = run_view.run
        if run.state is State.COUNTER_PROPOSED:
            blocks += [*_render_card_blocks(run_view), _DIVIDER]
            continue
        blocks += [
            paragraph(*_render_run(run, content)),
            actions(f"plan-{run.id}", REVIEW_PLAN.build(run), WITHDRAW_PLAN.build(run)),
        ]
    return blocks


def _render_unknown(run: Run, content: HomeContent) -> Block:
    where = "on its page, or in a terminal by" if content.base_url else "in a terminal by"
    command = code(f"keyturn run resolve {run.id}")
    return paragraph(*_render_run(run, content), f" – record how it ended {where} ", command)


def _render_question(run_view: SlackRunView, content: HomeContent) -> list[Block]:
    question = run_view.discussion.remarks[-1]
    name = run_view.get_person_name(question.person)
    return [
        rich_text(
            rich_text_section(*_render_run(run_view.run, content)),
            rich_text_section(bold(f"{name} {question.verb}:")),
            quote(shorten_text(question.text, 300)),
        ),
        actions(f"question-{run_view.run.id}", ANSWER.build(run_view.run)),
    ]


def _render_card_blocks(run_view: SlackRunView) -> list[Block]:
    """Return the blocks of a card, with a smaller first line than in a channel."""
    head, *rest = render_card(run_view).blocks
    return [paragraph(bold(str(head["text"]["text"]))), *rest]


def _render_pending(content: HomeContent) -> list[Block]:
    pending, more = content.pending, content.more_pending
    count = len(pending) + len(more)
    title = header(f"Needs your approval · {count}" if pending else "Needs your approval")
    if not pending:
        return [title, context("No requests need your approval.")]
    blocks = [title]
    for run_view in pending:
        blocks += [*_render_card_blocks(run_view), _DIVIDER]
    if more:
        blocks.append(_render_runs(more, content))
    if len(more) > _MAX_LISTED:
        blocks.append(
            context(f"and {len(more) - _MAX_LISTED} more: keyturn pending lists all of them")
        )
    return blocks


def _render_section(
    title: str, runs_shown: Sequence[Run], content: HomeContent, empty_text: str
) -> list[Block]:
    if not runs_shown:
        return [header(title), context(empty_text)]
    return [header(title), _render_runs(runs_shown, content)]


def _render_runs(runs_shown: Sequence[Run], content: HomeContent) -> Block:
    return rich_text(bullet_list(*(_render_run(run, content) for run in runs_shown[:_MAX_LISTED])))


def _render_run(run: Run, content: HomeContent) -> list[Inline]:
    status = get_run_display(run)
    title = shorten_text(run.title, 150)
    page = f"{content.base_url}/runs/{run.id}"
    named = link(page, title) if content.base_url else bold(title)
    parts: list[Inline] = [emoji(status.emoji), f" {status.label}: ", named]
    if run.requested_by != content.person:
        requester = name_requester(run, content.person_names)
        parts.append(f" – {requester}")
    if run.state is State.PENDING:
        parts += [" – ", code(f"{COMMAND} withdraw {run.id}")]
    return parts


_log = logging.getLogger(__name__)

# Longer than one update can take; after that another process may try.
_LEASE_SECONDS = 15.0
_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 20.0
_MAX_NEWEST = 40
# Slack's error codes for people who no longer have a Home tab.
_GONE_USER_ERRORS = frozenset(
    {"user_disabled", "user_not_found", "account_inactive", "not_enabled"}
)


class HomeTabs:
    """Updates Home tabs. Call draw_due_homes() often. read_added: of the features."""

    def __init__(
        self,
        database: Database,
        view_builder: SlackRunViewBuilder,
        sender: MessageSender,
        read_added: Sequence[ReadHomeSection] = (),
    ) -> None:
        self._database, self._view_builder, self._sender = database, view_builder, sender
        self._read_added = read_added
        self._is_drawing = False

    def open_home(self, user: str, person: str) -> bool:
        """Have the Home tab that a person has opened drawn and kept current.

        Return whether it is the first time.
        """
        with self._database.transaction() as tx:
            return home_queue.open_home(tx, user, person)

    async def show_refusal(self, user: str, refusal: Message) -> None:
        """Show an unknown person why their Home tab is empty."""
        try:
            await self._sender.publish_home_tab(user, render_refusal(refusal))
        except CALL_ERRORS as error:
            _log.info("cannot update the Home tab of %s: %s", user, get_error_cause(error))

    async def draw_due_homes(self) -> None:
        """Update all Home tabs that are due, one after the other, unless already doing so."""
        if self._is_drawing:
            return
        self._is_drawing = True
        try:
            # Each is read right before it is drawn: with a slow Slack, that may be long after the
            # previous one.
            while (claimed := await asyncio.to_thread(self._claim_next_home)) is not None:
                await self._draw_home(*claimed)
        except StoreUnavailable as error:
            _log.warning("Home tabs are not updated: the database is unavailable: %s", error)
        finally:
            self._is_drawing = False

    def _claim_next_home(self) -> tuple[Home, HomeContent] | None:
        """Claim the next Home tab that is due; return None if there is none."""
        with self._database.reading() as tx:
            if not home_queue.list_due_homes(tx, most=1):
                return None
        with self._database.transaction() as tx:
            for due in home_queue.list_due_homes(tx):
                home = home_queue.claim_home(tx, due, seconds=_LEASE_SECONDS)
                if home is not None:
                    return home, self._load_content(tx, home)
        return None

    async def _draw_home(self, home: Home, content: HomeContent) -> None:
        digest = hash_canonical(render_home(content, with_time=False))
        try:
            if digest != home.digest:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await self._sender.publish_home_tab(home.user, render_home(content))
            await write_or_log(
                self._database, lambda tx: home_queue.mark_rendered(tx, home, digest)
            )
        except CALL_ERRORS as error:
            cause, seconds = get_error_cause(error), get_retry_seconds(error) or _RETRY_SECONDS
            _log.warning("cannot update the Home tab of %s: %s", home.user, cause)
            if cause in _GONE_USER_ERRORS:
                await write_or_log(self._database, lambda tx: home_queue.forget_home(tx, home))
            else:
                await write_or_log(
                    self._database, lambda tx: home_queue.postpone_home(tx, home, seconds=seconds)
                )

    def _load_content(self, tx: Transaction, home: Home) -> HomeContent:
        """Load the content of a Home tab that its person may view."""
        tx.view_rights = self._view_builder.get_view_rights(home.person)
        try:
            return self._build_content(tx, home)
        finally:
            # The rest of the transaction has the rights of the service.
            tx.view_rights = None

    def _build_content(self, tx: Transaction, home: Home) -> HomeContent:
        inbox = self._view_builder.read_inbox(tx, home.person)
        to_decide = [
            run for run in inbox.runs if run.state is State.PENDING and run.id not in inbox.to_sign
        ]
        active = [run for run in runs.list_unfinished_briefly(tx) if run.parent is None]
        latest = search.find_newest_runs(tx, search.RunFilter(), most=_MAX_NEWEST)
        return HomeContent(
            person=home.person,
            now=tx.now,
            person_names=self._view_builder.get_person_names(),
            base_url=self._view_builder.base_url,
            to_resolve=[run for run in inbox.runs if run.state is State.UNKNOWN],
            unrequested=[
                self._view_builder.build_slack_run_view(tx, run.id)
                for run in runs.list_unrequested(tx, home.person)
            ],
            pending=[
                self._view_builder.build_slack_run_view(tx, run.id)
                for run in to_decide[:_MAX_CARDS]
            ],
            more_pending=to_decide[_MAX_CARDS:],
            questions=[
                self._view_builder.build_slack_run_view(tx, one.run.id) for one in inbox.questions
            ],
            to_sign=[
                self._view_builder.build_slack_run_view(tx, number)
                for number in sorted(inbox.to_sign)
            ],
            own_runs=[run for run in latest if run.requested_by == home.person],
            running=[
                run for run in active if run.state in _RUNNING_STATES and run.kind == "change"
            ],
            recent_changes=[run for run in latest if _is_change_started(run)],
            added=[section for read in self._read_added if (section := read(tx))],
        )


_RUNNING_STATES = frozenset({State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN})


def list_concerned_users(run_view: SlackRunView) -> set[str]:
    """Return the users whose Home tab shows a run."""
    people = {
        run_view.requester,
        *(one.slack_user for one in (*run_view.approvers, *run_view.owners)),
    }
    return {user for user in people if user}


def _is_change_started(run: Run) -> bool:
    return run.kind == "change" and run.is_ended and run.started_at is not None

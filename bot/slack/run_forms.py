"""Modals about one run: its plan before it is requested, its commands, and a reason to decide."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bot.db.database import Database
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.text import format_count, format_sentence
from bot.model.times import HOUR, SECOND
from bot.policy import Person
from bot.queries.run_view import RunView
from bot.service import KeyturnService
from bot.slack import run_buttons, threads
from bot.slack.blocks import (
    Block,
    Element,
    Message,
    View,
    actions,
    bold,
    context,
    escape_mrkdwn,
    format_date,
    format_notification,
    input_block,
    modal,
    paragraph,
    plain_text,
    quote,
    reason_input,
    rich_text,
    time_input,
)
from bot.slack.payloads import ViewState
from bot.slack.replies import build_outcome_reply, build_text_reply
from bot.slack.run_buttons import Decision, RunButton, TextForm
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import (
    TOO_LONG,
    build_irreversible_dialog,
    can_show_plan,
    render_card,
    render_page_hint,
    render_plan,
    render_schedule,
)
from bot.slack.views import Views, render_loading, render_notice

# Ids of callbacks and of the reason's block.
DECISION, PLAN, REASON = "decision", "plan", "because"
_VALUE = "form-value"
# The blocks of the approver and of the earliest start.
ASSIGNEE, START = "assignee", "start"
# The forms that approve a plan.
_APPROVING = (run_buttons.APPROVE_WITH_REASON, run_buttons.APPROVE_LATER)
# What Slack sends for a chosen time: ten digits until the year 2286.
_TIMESTAMP = re.compile(r"[0-9]{1,10}")
_MAX_OPTIONS = 100
# How long a form waits for its plan, and for news of it from another process.
_PLAN_TIMEOUT_SECONDS, _POLL_SECONDS = 120.0, 0.5

FormErrors = dict[str, str]


@dataclass(frozen=True)
class PendingPlan:
    """A plan that is being computed, to be shown to its requester only."""

    run: int
    host: str
    is_check: bool = False
    """Whether it is a private check, whose report is shown instead of a plan."""

    @property
    def notice(self) -> str:
        """What is shown until the plan is there."""
        return f"Reading {self.host} … Nothing is changed."


def create_pending_plan(run: Run) -> PendingPlan:
    """Return what to wait for after a request for a plan."""
    hosts = format_count(len(run.hosts), "host") if run.hosts else run.host
    return PendingPlan(run.id, hosts, is_check=run.kind == "check")


def render_reading(pending: PendingPlan, note: str = "") -> View:
    """Render the placeholder of a plan. note: why it is planned again."""
    return render_notice("Plan", *filter(None, [note, pending.notice]))


def render_plan_view(run_view: SlackRunView, channel: str) -> View:
    """Render a plan that its requester can request, with a field for the reason."""
    run = run_view.run
    if not can_be_requested_here(run):
        return modal("Plan", _render_plan_blocks(run_view))
    reason = reason_input(REASON, _VALUE, initial=run.reason, seen_by="Approvers see this")
    return modal(
        f"Plan {run.id}",
        [*_render_plan_blocks(run_view), reason | {"optional": True}],
        callback=PLAN,
        submit=_get_submit_label(run_view.view, max_length=24),
        metadata={"run": str(run.id), "digest": run.short_digest, "channel": channel},
    )


def render_plan_message(run_view: SlackRunView) -> Message:
    """Render a plan with the buttons that request or withdraw it, or the report of a check."""
    run = run_view.run
    if run.kind == "check":
        return render_card(run_view, buttons=False)
    if run.state is not State.PLANNED:
        return build_outcome_reply(run)
    blocks = _render_plan_blocks(run_view)
    if can_be_requested_here(run):
        submit = run_buttons.SUBMIT.build(run, text=_get_submit_label(run_view.view))
        withdraw = run_buttons.WITHDRAW_PLAN.build(run)
        blocks.append(actions(f"plan-{run.id}", submit | {"style": "primary"}, withdraw))
    return Message(format_notification(f"Plan: {run.title}"), blocks)


def can_be_requested_here(run: Run) -> bool:
    """Return whether chat shows the whole plan; if not, it is requested on its page."""
    return run.state is State.PLANNED and run.plan is not None and can_show_plan(run.plan)


def render_details(run_view: SlackRunView) -> View:
    """Render the whole plan of a run with its undo, and what identifies it in the change log."""
    run = run_view.run
    blocks = [paragraph(bold(run.title))]
    if run.plan:
        blocks += render_plan(
            run.plan, run_view.step_records, state_label=run_view.view.plan_state_label
        )
        if not can_show_plan(run.plan):
            blocks.append(render_page_hint(run_view, f"{TOO_LONG} See"))
    if run.policy_notes:
        blocks.append(context(*(escape_mrkdwn(note) for note in run.policy_notes[:10])))
    facts = [
        f"plan {run.short_digest}" if run.digest else "",
        f"policy {run.plan.policy_version}" if run.plan else "",
        f"requested {format_date(run.requested_at)}",
        f"ended {format_date(run.ended_at)}" if run.ended_at else "",
        run_view.log_reference,
    ]
    blocks.append(context(" · ".join(filter(None, facts))))
    return modal(f"Run {run.id}", blocks)


def _get_submit_label(view: RunView, *, max_length: int = 75) -> str:
    label, plan = view.submit_label, view.run.plan
    insistent = f"{label} all the same"
    is_insistent = plan is not None and not plan.is_reversible and len(insistent) <= max_length
    return insistent if is_insistent else label


def _render_plan_blocks(run_view: SlackRunView) -> list[Block]:
    run = run_view.run
    blocks = [paragraph(bold(run.title))]
    if run.reason:
        blocks.append(rich_text(quote(run.reason)))
    if run_view.view.schedule:
        blocks.append(render_schedule(run_view.view.schedule))
    if run.plan:
        blocks += render_plan(run.plan, (), state_label=run_view.view.plan_state_label)
    blocks.append(paragraph(run_view.view.forecast))
    if run.policy_notes:
        blocks.append(context(*(escape_mrkdwn(note) for note in run.policy_notes[:10])))
    if run.plan and not can_show_plan(run.plan):
        blocks.append(render_page_hint(run_view, f"{TOO_LONG} Request it on"))
    until = f" · valid until {format_date(run.expires_at)}" if run.expires_at else ""
    blocks.append(context(f"Not requested yet · plan {run.short_digest}{until}"))
    return blocks


def _render_decision(
    run_view: SlackRunView,
    digest: str,
    decision: RunButton,
    assignees: Sequence[Person],
    initial: str = "",
) -> View:
    """Render the form for the text of a decision, a question, an answer or a reassignment."""
    run, form = run_view.run, decision.form or TextForm(decision.text)
    verb = run_buttons.APPROVE.text if form.asks_start else decision.text.rstrip("…")
    text = reason_input(REASON, _VALUE, initial=initial, seen_by=form.seen_by, label=form.label)
    is_optional = form.asks_assignee or (form.asks_start and not run.requirements.requires_reason)
    blocks: list[Block] = [
        paragraph(bold(run.title), f" – plan {run.short_digest}"),
        *([_build_assignee_input(assignees)] if form.asks_assignee else []),
        *([_build_start_input(run_view.view.now)] if form.asks_start else []),
        text | ({"optional": True} if is_optional else {}),
    ]
    if decision in _APPROVING and run.plan and not run.plan.is_reversible:
        dialog = build_irreversible_dialog(run.plan, yes=verb)
        text = dialog["text"]["text"]
        blocks.insert(1, paragraph(bold(text)))
    metadata = {"run": str(run.id), "digest": digest, "action": decision.id}
    return modal(
        f"{form.title} run {run.id}", blocks, callback=DECISION, submit=verb, metadata=metadata
    )


def _build_start_input(now: int) -> Block:
    """Return the choice of the earliest start. now: microseconds since 1970."""
    in_an_hour = (now + HOUR) // SECOND
    return input_block(START, "Start no earlier than", time_input(_VALUE, initial=in_an_hour))


def _build_assignee_input(assignees: Sequence[Person]) -> Block:
    """Return the choice of an approver. Raises InvalidRequestError if there is no other."""
    if not assignees:
        raise InvalidRequestError("no other person can approve this run")
    options = [
        {"text": plain_text(person.name, max_length=75), "value": person.id}
        for person in assignees[:_MAX_OPTIONS]
    ]
    choice: Element = {"type": "static_select", "action_id": _VALUE, "options": options}
    return input_block(ASSIGNEE, "Approver", choice)


class RunForms:
    """Opens and submits the modals about one run. Raises what the service raises."""

    def __init__(
        self,
        service: KeyturnService,
        database: Database,
        view_builder: SlackRunViewBuilder,
        views: Views,
    ) -> None:
        self._service, self._database = service, database
        self._view_builder, self._views = view_builder, views

    async def open_decision(
        self,
        trigger_id: str,
        decision: RunButton,
        check_click: Callable[[], tuple[int, str]],
        *,
        person: str,
        text: str = "",
    ) -> bool:
        """Open the form for a reason.

        Args:
            trigger_id: of the click.
            decision: the button.
            check_click: returns run and digest, or raises.
            person: who clicked.
            text: what the form contains at first.
        """

        def build_view() -> View:
            number, digest = check_click()
            run_view = self._get_run_view(number, person)
            assignees: Sequence[Person] = ()
            if decision.form and decision.form.asks_assignee:
                with self._database.reading(self._view_builder.get_view_rights(person)) as tx:
                    assignees = self._view_builder.list_assignees(tx, number, person)
            return _render_decision(run_view, digest, decision, assignees, text)

        return await self._views.open_view(trigger_id, build_view)

    def submit_decision(self, shown: ViewState, *, person: str) -> FormErrors:
        """Do what the form of a decision contains; return the errors by block."""
        button = run_buttons.DECISIONS[shown.metadata["action"]]
        start = shown.values.get(START, "")
        # Without its time, the run would start at once.
        if button.form and button.form.asks_start and not _TIMESTAMP.fullmatch(start):
            return {START: "Choose a day and a time."}
        decision = Decision(
            int(shown.metadata["run"]),
            shown.metadata["digest"],
            person,
            RequestOrigin("slack", user=shown.account.user),
            shown.values.get(REASON, ""),
            shown.values.get(ASSIGNEE, ""),
            int(start) * SECOND if start else None,
        )
        button.decide(self._service, decision)
        return {}

    async def open_details(self, trigger_id: str, number: int, *, person: str) -> bool:
        """Show the whole plan of a run, and what identifies it."""
        return await self._views.open_view(
            trigger_id, lambda: render_details(self._get_run_view(number, person))
        )

    async def open_plan(self, trigger_id: str, number: int, *, person: str, channel: str) -> bool:
        """Show a plan that is not requested yet."""
        return await self._views.open_view(
            trigger_id,
            lambda: _render_result(self._get_run_view(number, person), channel),
        )

    async def open_undo(
        self, trigger_id: str, number: int, *, person: str, origin: RequestOrigin
    ) -> bool:
        """Plan the undo of a run, and show the plan."""
        view_id = await self._views.open_loading(trigger_id, render_loading("Planning the undo …"))
        if not view_id:
            return False
        try:
            run = await threads.run_in_answer_thread(
                self._service.request_undo, number, RequestTerms(person, origin, plan_only=True)
            )
        except (NotAllowed, TooLate, InvalidRequestError) as refusal:
            notice = render_notice("Undo", format_sentence(str(refusal)))
            return await self._views.update_view(view_id, notice)
        return await self.show_plan(
            view_id, create_pending_plan(run), person=person, channel=origin.channel
        )

    async def show_plan(
        self, view_id: str, pending: PendingPlan, *, person: str, channel: str
    ) -> bool:
        """Wait for a plan, and show it in an open modal."""
        run_view = await self.wait_for_plan(pending, person=person)
        return await self._views.update_view(view_id, _render_result(run_view, channel))

    async def wait_for_plan(self, pending: PendingPlan, *, person: str) -> SlackRunView:
        """Return the run when it is planned or has ended, or after two minutes."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def on_state(_state: State) -> None:
            loop.call_soon_threadsafe(changed.set)

        deadline = loop.time() + _PLAN_TIMEOUT_SECONDS
        with self._database.run_events.listen(pending.run, on_state):
            while True:
                changed.clear()
                run_view = await threads.run_in_answer_thread(
                    self._get_run_view, pending.run, person
                )
                is_over = loop.time() > deadline or self._service.is_closing
                if is_over or run_view.run.state is not State.PLANNING:
                    return run_view
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await changed.wait()

    def submit_plan(self, shown: ViewState, *, person: str) -> FormErrors | PendingPlan:
        """Request what a plan shows; return no errors, or the newer plan if it is not current."""
        number, digest = int(shown.metadata["run"]), shown.metadata["digest"]
        origin = RequestOrigin("slack", shown.metadata["channel"], shown.account.user)
        reason = shown.values.get(REASON, "")
        newer = self.request_or_replan(
            number, person=person, digest=digest, origin=origin, reason=reason
        )
        return newer or {}

    def request_or_replan(
        self, number: int, *, person: str, digest: str, origin: RequestOrigin, reason: str = ""
    ) -> PendingPlan | None:
        """Request what a plan shows; if it is not current, plan again and return the new plan."""
        run = self._service.request_plan_or_replan(
            number, person=person, digest=digest, origin=origin, reason=reason
        )
        if run.id != number:
            return create_pending_plan(run)
        if run.is_ended:
            raise InvalidRequestError(run.summary)
        return None

    def withdraw_plan(self, number: int, *, person: str) -> Message:
        """Withdraw a plan that is not requested."""
        run = self._service.withdraw_run(number, person=person)
        return build_text_reply(f"Plan {run.id} is withdrawn. Nothing was requested.")

    def _get_run_view(self, number: int, person: str) -> SlackRunView:
        with self._database.reading(self._view_builder.get_view_rights(person)) as tx:
            return self._view_builder.build_slack_run_view(tx, number)


def _render_result(run_view: SlackRunView, channel: str) -> View:
    """Render the plan, or why there is none: no changes, refused, failed, or a slow host."""
    run = run_view.run
    if run.state is State.PLANNED:
        return render_plan_view(run_view, channel)
    if run.state is State.PLANNING:
        text = f"{run.host} is still being read. See /keyturn run {run.id}, or your Home tab."
    else:
        text = run.summary
    return render_notice("Plan", run.title, text)

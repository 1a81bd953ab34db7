"""Listeners: pass what people do in Slack to the service; commit first, then acknowledge."""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse

from bot import observability
from bot.db import outbox, runs
from bot.db.database import Database
from bot.model.errors import InvalidRequestError, TooLate
from bot.model.run import RequestOrigin, Run
from bot.model.text import escape_to_one_line, format_sentence
from bot.policy import Person, Policy
from bot.service import KeyturnService
from bot.slack import access, modals, payloads, replies, threads
from bot.slack.aliases import ALIASES, COMMAND, expand_alias
from bot.slack.blocks import Message
from bot.slack.buttons import (
    ANY_RUNBOOK,
    ASK_ACCESS,
    COMMAND_ACTION,
    FORM_ACTION,
    READ_ACTION,
)
from bot.slack.client import (
    CALL_ERRORS,
    MessageLocation,
    MessageSender,
    get_error_cause,
    get_retry_seconds,
)
from bot.slack.command_forms import COMMAND_FORM, CommandForms
from bot.slack.commands import CommandAnswer, RequestedForm, SlackCommands
from bot.slack.features import ChatPart
from bot.slack.home import HomeTabs
from bot.slack.identity import AccountRefused, IdentityService, UnknownAccountError
from bot.slack.modals import RequestForms
from bot.slack.payloads import Body, ButtonClick
from bot.slack.run_buttons import (
    DECISIONS,
    DETAILS,
    MENU,
    MENU_IDS,
    RESUBMIT,
    REVIEW_PLAN,
    SIGN,
    SUBMIT,
    UNDO,
    WATCH,
    WITHDRAW_PLAN,
    Decision,
)
from bot.slack.run_forms import (
    DECISION,
    PLAN,
    REASON,
    PendingPlan,
    RunForms,
    render_plan_message,
    render_reading,
)
from bot.slack.run_posts import CARD, COPY, REMARK
from bot.slack.storms import SHOW_EACH
from connectors.errors import DomainError

_NUMBER_PATTERN = re.compile(r"\d{1,9}", re.ASCII)
# Run, plan, and a text that was typed in a thread.
_BUTTON_VALUE_PATTERN = re.compile(r"(\d{1,9}):([0-9a-f]{10})(?::(.*))?", re.ASCII | re.DOTALL)


class OutdatedMessage(TooLate):
    """The button is on a message that is not the run's card and is not updated any more."""


def parse_button_value(click: ButtonClick) -> tuple[int, str]:
    """Return the number of a run and the first ten digits of its digest. Raises TooLate."""
    value = _BUTTON_VALUE_PATTERN.fullmatch(click.value)
    if value is None:
        raise TooLate("This button is out of date: open the run.")
    return int(value[1]), value[2]


def get_button_text(click: ButtonClick) -> str:
    """Return the text that the form of a button begins with."""
    value = _BUTTON_VALUE_PATTERN.fullmatch(click.value)
    return (value[3] or "") if value else ""


class DecisionHandler:
    """Approves, accepts, withdraws, re-plans and stops by button."""

    def __init__(self, service: KeyturnService, database: Database) -> None:
        self._service, self._database = service, database

    def decide_by_click(self, click: ButtonClick, *, person: str) -> Run:
        """Decide the run of the clicked button, if its card shows the current plan.

        Raises:
            NotAllowed: the person must not decide this run.
            TooLate: the run or its plan has changed.
            OutdatedMessage: the message is not the run's card: remove its buttons.
            NoSuchRun: there is no run of that number.
        """
        number, digest = self.check_click(click)
        origin = RequestOrigin("slack", click.channel, click.account.user)
        decision = Decision(number, digest, person, origin)
        return DECISIONS[click.action].decide(self._service, decision)

    def check_click(self, click: ButtonClick) -> tuple[int, str]:
        """Return run and digest of a button, if its card shows the current plan.

        If Slack's answer to a post is lost, an unknown message may exist.
        """
        number, digest = parse_button_value(click)
        with self._database.reading() as tx:
            run = runs.get_run(tx, number)
            posted_messages = outbox.list_messages(tx, number)
            has_pending_update = outbox.has_pending_update(tx, number)
        known_locations = {
            (posted.channel, posted.ts)
            for slot, posted in posted_messages.items()
            if slot == CARD or slot.startswith((COPY, REMARK))
        }
        # A Home tab belongs to one person, and no one else can click in it; nor in an ephemeral
        # message, which shows the plan of its buttons.
        is_own = click.is_home or click.is_ephemeral
        if not is_own and (click.channel, click.ts) not in known_locations:
            if has_pending_update:
                # It may be the card, whose post is not recorded yet.
                raise TooLate(
                    f"The card of run {number} is being updated: try again in a few seconds."
                )
            raise OutdatedMessage(
                f"This card of run {number} is outdated: use its newest card, or type "
                f"{COMMAND} run {number}."
            )
        if run.short_digest != digest:
            raise TooLate(
                f"The plan of run {number} has changed since this button: review it again."
            )
        return number, digest


_log = logging.getLogger(__name__)

_NO_FORM = replies.build_text_reply(
    "Slack did not open the form. Try again, or type the request: see /keyturn help."
)
_TOO_BUSY = replies.build_text_reply(
    "Nothing was done: Keyturn is overloaded. Try again in a minute."
)
# Slack waits three seconds for an acknowledgement. Keyturn sends it after this time even if the
# answer takes longer; for a form later, since errors can be shown below fields only until then.
# The number of answers in the background is limited.
_ACKNOWLEDGED_SECONDS, _FORM_SECONDS = 0.3, 1.5
_MAX_BACKGROUND_TASKS = 1000
# Before the second attempt to send an answer.
_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 5.0

# A modal is updated with its plan after Slack has shown the placeholder.
_PLACEHOLDER_SECONDS = 0.3
_REPLANNED_NOTE = "The plan is not current any more, and is computed again. Nothing was requested."

FormHandler = Callable[..., dict[str, Any] | PendingPlan]

_OUTDATED_MENU = "This menu is out of date: open the run."

_COMMANDS = (COMMAND, *ALIASES)
_FORM_BUTTON_PATTERN = re.compile(rf"{FORM_ACTION}-\d{{1,2}}")
_COMMAND_BUTTON_PATTERN = re.compile(rf"{COMMAND_ACTION}-\d{{1,2}}")
_READ_BUTTON_PATTERN = re.compile(rf"{READ_ACTION}-\d{{1,2}}")


@dataclass(frozen=True)
class SlackForms:
    """The modals."""

    requests: RequestForms
    runs: RunForms
    commands: CommandForms


class SlackListeners:
    """Handles commands, clicks, forms and events from Slack."""

    def __init__(
        self,
        identity: IdentityService,
        commands: SlackCommands,
        decisions: DecisionHandler,
        forms: SlackForms,
        home_tabs: HomeTabs,
        sender: MessageSender,
        parts: Sequence[ChatPart] = (),
    ) -> None:
        self._identity, self._commands, self._decisions = identity, commands, decisions
        self._shortcuts = {name: each for part in parts for name, each in part.shortcuts.items()}
        self._on_app_message = [part.on_app_message for part in parts if part.on_app_message]
        self._request_forms, self._run_forms = forms.requests, forms.runs
        self._command_forms = forms.commands
        self._home_tabs, self._sender = home_tabs, sender
        self._background_tasks: set[asyncio.Task[None]] = set()

    def register_listeners(self, app: AsyncApp) -> None:
        """Register all listeners with Bolt."""
        for command in _COMMANDS:
            app.command(command)(self.on_command)
        for decision in DECISIONS.values():
            app.action(decision.id)(self.on_run_button if decision.form else self.on_click)
        app.action(SIGN.id)(self.on_link)
        app.action(MENU)(self.on_menu)
        for opener in (UNDO, DETAILS, WATCH, SUBMIT, WITHDRAW_PLAN, REVIEW_PLAN):
            app.action(opener.id)(self.on_run_button)
        for opens_form in (_FORM_BUTTON_PATTERN, RESUBMIT.id):
            app.action(opens_form)(self.on_form_button)
        for action in (modals.HOST, modals.VALUE):
            app.action(action)(self.on_choice)
            app.options(action)(self.on_options_request)
        for callback in (modals.FORM, modals.CHOOSER, DECISION, PLAN, COMMAND_FORM):
            app.view(callback)(self.on_form_submitted)
        app.action(_READ_BUTTON_PATTERN)(self.on_read_button)
        app.action(_COMMAND_BUTTON_PATTERN)(self.on_command_button)
        app.action(ASK_ACCESS)(self.on_ask_access)
        app.action(SHOW_EACH)(self.on_show_each)
        app.shortcut(modals.ABOUT_HOST)(self.on_shortcut)
        for callback in self._shortcuts:
            app.shortcut(callback)(self.on_shortcut_of_feature)
        app.event("app_home_opened")(self.on_home_opened)
        app.event("app_mention")(self.on_mention)
        app.event("message")(self.on_message)
        app.event("link_shared")(self.on_link_shared)
        app.error(self.on_error)

    async def answer_command(self, body: Body) -> BoltResponse | None:
        """Answer one of Keyturn's slash commands; return None for anything else.

        This bypasses Bolt, whose dispatch of a command takes longer than the answer.
        """
        if body.get("command") not in _COMMANDS:
            return None
        ack = AsyncAck()
        try:
            await self.on_command(ack, body)
        except Exception as error:  # noqa: BLE001 - as Bolt does: the person gets an answer
            return await self.on_error(error, body)
        return ack.response

    async def on_command(self, ack: AsyncAck, body: Body) -> None:
        """Answer a slash command."""
        command = payloads.parse_command(body)
        channel, user = command.channel, command.account.user
        if len(self._background_tasks) >= _MAX_BACKGROUND_TASKS:
            await ack(response_type="ephemeral", text=_TOO_BUSY.text)
            return
        answering = asyncio.create_task(self._run_command(command))
        answer: CommandAnswer = None
        if await _is_done_within(answering, _ACKNOWLEDGED_SECONDS):
            try:
                answer = answering.result()
            except DomainError as refusal:
                answer = _render_refusal(refusal)
        if isinstance(answer, Message):
            await ack(response_type="ephemeral", text=answer.text, blocks=list(answer.blocks))
            return
        self._run_in_background(self._send_answer(answering, command), channel, user)
        if isinstance(answer, PendingPlan) and not _is_posted_there(answer, command):
            await ack(response_type="ephemeral", text=answer.notice)
        else:
            await ack()

    async def _send_answer(
        self, answer_task: "asyncio.Task[CommandAnswer]", command: payloads.SlashCommand
    ) -> None:
        """Send the answer of a command, or open its form, after the acknowledgement."""
        answer = await answer_task
        if isinstance(answer, RequestedForm):
            await self._open_form(answer, command)
        elif isinstance(answer, PendingPlan):
            if not _is_posted_there(answer, command):
                await self._send_plan(answer, command.channel, command.account)
        elif answer is not None:
            await self._send_to_person(command.channel, command.account.user, answer)

    async def on_link(self, ack: AsyncAck) -> None:
        """Acknowledge a button that opens a page."""
        await ack()

    async def on_click(self, ack: AsyncAck, body: Body) -> None:
        """Handle a button that decides a run."""
        click = payloads.parse_click(body)
        if len(self._background_tasks) >= _MAX_BACKGROUND_TASKS:
            self._reply_in_background(body, _TOO_BUSY)
        else:
            deciding = asyncio.create_task(
                self._identity.run_as_person(
                    click.account,
                    lambda person, _: self._decisions.decide_by_click(click, person=person.id),
                )
            )
            await _is_done_within(deciding, _ACKNOWLEDGED_SECONDS)
            work = self._report_outdated_click(deciding, click)
            self._run_in_background(work, click.channel, click.account.user)
        await ack()

    async def _report_outdated_click(
        self, decision_task: "asyncio.Task[Run]", click: payloads.ButtonClick
    ) -> None:
        """Wait for the decision; if the message is outdated, say so and remove its buttons."""
        try:
            run = await decision_task
            if click.is_ephemeral:
                verb = DECISIONS[click.action].text
                note = f"{verb}: done. The card of run {run.id} shows how it continues."
                await self._replace_clicked_message(click, replies.build_text_reply(note))
        except OutdatedMessage as refusal:
            await self._reply_to_click(click, _render_refusal(refusal))
            await self._remove_buttons(click, refusal)

    async def on_menu(self, ack: AsyncAck, body: Body) -> None:
        """Handle what a person chose in the menu of a card, as its button."""
        click = payloads.parse_click(body)
        if click.action not in MENU_IDS:
            self._reply_in_background(body, replies.build_text_reply(_OUTDATED_MENU))
            await ack()
            return
        chosen = DECISIONS.get(click.action)
        decides = chosen is not None and chosen.form is None
        await (self.on_click if decides else self.on_run_button)(ack, body)

    async def on_run_button(self, ack: AsyncAck, body: Body) -> None:
        """Handle a button that shows something of a run to one person, or requests a plan."""
        click = payloads.parse_click(body)
        self._run_in_background(self._answer_run_button(click), click.channel, click.account.user)
        await ack()

    async def _answer_run_button(self, click: payloads.ButtonClick) -> None:
        person = await self._identity.get_person(click.account)
        if click.action in DECISIONS:
            await self._open_decision(click, person.id)
            return
        channel = click.channel or await self._sender.open_conversation(click.account.user)
        origin = RequestOrigin("slack", channel, click.account.user)
        if click.action in {SUBMIT.id, WITHDRAW_PLAN.id}:
            await self._answer_plan_button(click, person=person.id, origin=origin)
            return
        number, _ = parse_button_value(click)
        if click.action == WATCH.id:
            answer = await threads.run_in_answer_thread(
                self._commands.watch_run, number, person=person.id, user=click.account.user
            )
            await self._reply_to_click(click, answer)
            return
        forms, trigger_id = self._run_forms, click.trigger_id
        if click.action == DETAILS.id:
            opening = forms.open_details(trigger_id, number, person=person.id)
        elif click.action == UNDO.id:
            opening = forms.open_undo(trigger_id, number, person=person.id, origin=origin)
        else:
            opening = forms.open_plan(trigger_id, number, person=person.id, channel=channel)
        if not await opening:
            await self._reply_to_click(click, _NO_FORM)

    async def on_show_each(self, ack: AsyncAck, body: Body) -> None:
        """Send a person the cards of the requests that share one."""
        click = payloads.parse_click(body)
        self._run_in_background(self._show_each(click), click.channel, click.account.user)
        await ack()

    async def _show_each(self, click: payloads.ButtonClick) -> None:
        person = await self._identity.get_person(click.account)
        if not _NUMBER_PATTERN.fullmatch(click.value):
            raise TooLate("This button is out of date: type /keyturn inbox.")
        answer = await threads.run_in_answer_thread(
            self._commands.show_each, int(click.value), person=person.id, user=click.account.user
        )
        await self._reply_to_click(click, answer)

    async def _open_decision(self, click: payloads.ButtonClick, person: str) -> None:
        """Open the form for the reason of a decision; an outdated card loses its buttons."""
        try:
            is_open = await self._run_forms.open_decision(
                click.trigger_id,
                DECISIONS[click.action],
                lambda: self._decisions.check_click(click),
                person=person,
                text=get_button_text(click),
            )
        except OutdatedMessage as refusal:
            await self._remove_buttons(click, refusal)
            raise
        if not is_open:
            await self._reply_to_click(click, _NO_FORM)

    async def _answer_plan_button(
        self, click: payloads.ButtonClick, *, person: str, origin: RequestOrigin
    ) -> None:
        """Request or withdraw a plan, and replace the message that shows it by what happened."""
        number, digest = parse_button_value(click)
        if click.action == WITHDRAW_PLAN.id:
            answer = await threads.run_in_answer_thread(
                self._run_forms.withdraw_plan, number, person=person
            )
            await self._replace_clicked_message(click, answer)
            return
        try:
            pending = await threads.run_in_answer_thread(
                self._run_forms.request_or_replan,
                number,
                person=person,
                digest=digest,
                origin=origin,
            )
        except (TooLate, InvalidRequestError) as refusal:
            # The plan cannot be requested any more: its buttons have no use.
            await self._replace_clicked_message(click, _render_refusal(refusal))
            return
        if pending is None:
            text = f"Run {number} is requested. Its card shows the progress."
            await self._replace_clicked_message(click, replies.build_text_reply(text))
            return
        note = replies.build_text_reply(f"{_REPLANNED_NOTE} {pending.notice}")
        await self._replace_clicked_message(click, note)
        run_view = await self._run_forms.wait_for_plan(pending, person=person)
        await self._replace_clicked_message(click, render_plan_message(run_view))

    async def _replace_clicked_message(
        self, click: payloads.ButtonClick, message: Message
    ) -> None:
        """Replace the message of a click, or send a new one if Slack does not replace it."""
        try:
            if click.response_url and await self._sender.replace_clicked_message(
                click.response_url, message
            ):
                return
        except (ClientError, TimeoutError) as error:
            _log.warning("cannot replace a clicked message: %s", type(error).__name__)
        await self._reply_to_click(click, message)

    async def _send_plan(
        self, pending: PendingPlan, channel: str, account: payloads.Account
    ) -> None:
        """Send a plan to its requester when it is there.

        It does not replace the answer that a host is read: Slack lets only messages with a button
        be replaced. Source: https://github.com/slackapi/bolt-js/issues/2287
        """
        person = await self._identity.get_person(account)
        run_view = await self._run_forms.wait_for_plan(pending, person=person.id)
        await self._send_to_person(channel, account.user, render_plan_message(run_view))

    async def on_form_button(self, ack: AsyncAck, body: Body) -> None:
        """Open the form that a button refers to."""
        click = payloads.parse_click(body)
        work = self._open_form_of_button(click)
        self._run_in_background(work, click.channel, click.account.user)
        await ack()

    async def on_shortcut(self, ack: AsyncAck, body: Body) -> None:
        """Let the person choose a runbook for a host that a message names."""
        shortcut = payloads.parse_shortcut(body)
        work = self._open_host_chooser(shortcut)
        self._run_in_background(work, shortcut.channel, shortcut.account.user)
        await ack()

    async def on_choice(self, ack: AsyncAck, body: Body) -> None:
        """Update the form for the value that was chosen or typed in it."""
        shown = payloads.parse_view_state(body)
        self._run_in_background(self._redraw_form(shown), "", shown.account.user)
        await ack()

    async def on_options_request(self, ack: AsyncAck, body: Body) -> None:
        """Return the options of a form field."""
        shown = payloads.parse_view_state(body)
        try:
            person = await self._identity.get_person(shown.account)
            options = await self._request_forms.list_options(shown, person=person.id)
        except DomainError as refusal:
            _log.info("a form field has no options: %s", refusal)
            options = ()
        await ack(options=options)

    async def on_form_submitted(self, ack: AsyncAck, body: Body) -> None:
        """Request what a form contains, or show errors below its fields."""
        shown = payloads.parse_view_state(body)
        handlers: Mapping[str, FormHandler] = {
            modals.FORM: self._request_forms.submit_form,
            modals.CHOOSER: self._request_forms.build_next_view,
            DECISION: self._run_forms.submit_decision,
            PLAN: self._run_forms.submit_plan,
            COMMAND_FORM: self._command_forms.submit_form,
        }
        handle_form = handlers[shown.callback_id]
        submission = asyncio.create_task(self._submit_form(handle_form, shown))
        if not await _is_done_within(submission, _FORM_SECONDS):
            user = shown.account.user
            self._run_in_background(self._report_late_form(submission, shown), "", user)
            await ack()
            return
        result = submission.result()
        if isinstance(result, PendingPlan):
            note = _REPLANNED_NOTE if shown.callback_id == PLAN else ""
            await ack(response_action="update", view=render_reading(result, note))
            self._run_in_background(self._show_plan(result, shown), "", shown.account.user)
        elif "type" in result:
            await ack(response_action="update", view=result)
        elif result:
            await ack(response_action="errors", errors=_escape_errors(result))
        else:
            await ack()

    async def _show_plan(self, pending: PendingPlan, shown: payloads.ViewState) -> None:
        """Show a plan in the modal that requested it, once the modal shows its placeholder."""
        await asyncio.sleep(_PLACEHOLDER_SECONDS)
        person = await self._identity.get_person(shown.account)
        await self._run_forms.show_plan(
            shown.view_id, pending, person=person.id, channel=shown.metadata.get("channel", "")
        )

    async def _submit_form(
        self, handle_form: FormHandler, shown: payloads.ViewState
    ) -> dict[str, Any] | PendingPlan:
        try:
            person = await self._identity.get_person(shown.account)
            return await threads.run_in_answer_thread(handle_form, shown, person=person.id)
        except DomainError as refusal:
            has_host = shown.callback_id in {modals.FORM, modals.CHOOSER}
            block = modals.HOST_BLOCK if has_host else REASON
            return {block: _describe_refusal(refusal)}

    async def _report_late_form(
        self, form_task: "asyncio.Task[dict[str, Any] | PendingPlan]", shown: payloads.ViewState
    ) -> None:
        """Send the result of a form that has closed as a direct message."""
        result, user = await form_task, shown.account.user
        if isinstance(result, PendingPlan):
            await self._send_plan(result, "", shown.account)
        elif shown.callback_id == COMMAND_FORM and "type" in result:
            await self._send_to_person("", user, Message("Done", result["blocks"]))
        elif "type" in result:
            await self._send_to_person("", user, _NO_FORM)
        elif result:
            errors = " ".join(_escape_errors(result).values())
            await self._send_to_person(
                "", user, replies.build_text_reply(f"Request not sent: {errors}")
            )

    async def on_home_opened(self, ack: AsyncAck, body: Body) -> None:
        """Draw the Home tab that a person has opened."""
        account = payloads.parse_home_opened(body)
        if account is not None:
            try:
                person = await self._identity.get_person(account)
                is_first = await threads.run_in_answer_thread(
                    self._home_tabs.open_home, account.user, person.id
                )
                if is_first:
                    self._run_in_background(self._welcome(account), "", account.user)
            except DomainError as refusal:
                work = self._home_tabs.show_refusal(account.user, _render_refusal(refusal))
                self._run_in_background(work, "", account.user)
        await ack()

    async def _welcome(self, account: payloads.Account) -> None:
        """Say what Keyturn is, and what this person can do now."""
        message = await self._identity.run_as_person(
            account,
            lambda person, policy: self._commands.help_screens.render(
                policy, person.id, is_welcome=True
            ),
        )
        await self._send_to_person("", account.user, message)

    async def on_ask_access(self, ack: AsyncAck, body: Body) -> None:
        """Ask the administrators to add a person whom the policy does not know."""
        click = payloads.parse_click(body)
        self._run_in_background(self._ask_access(click), click.channel, click.account.user)
        await ack()

    async def _ask_access(self, click: ButtonClick) -> None:
        try:
            await self._identity.get_person(click.account)
        except UnknownAccountError as refusal:
            answer = await self._tell_contacts(click.account, refusal.contacts)
        else:
            answer = replies.build_text_reply("Keyturn knows you: type /keyturn help.")
        await self._reply_to_click(click, answer)

    async def _tell_contacts(
        self, account: payloads.Account, contacts: Sequence[Person]
    ) -> Message:
        """Send the request for access to each contact, once in a while."""
        is_first = await threads.run_in_answer_thread(self._commands.remember_access, account)
        if not is_first:
            return replies.build_text_reply("You have asked already: wait for an answer.")
        request = access.render_access_request(account)
        users = {person.id: self._identity.get_user(person) for person in contacts}
        asked = [
            person
            for person in contacts
            if users[person.id] and await self._send_to_person("", users[person.id], request)
        ]
        return access.render_access_requested(asked)

    async def on_command_button(self, ack: AsyncAck, body: Body) -> None:
        """Open the form of a command."""
        click = payloads.parse_click(body)
        work = self._open_command_form(click)
        self._run_in_background(work, click.channel, click.account.user)
        await ack()

    async def _open_command_form(self, click: ButtonClick) -> None:
        await self._identity.get_person(click.account)
        channel = click.channel or await self._sender.open_conversation(click.account.user)
        try:
            is_open = await self._command_forms.open_form(click, channel=channel)
        except ValueError:
            raise TooLate("This button is out of date: type /keyturn help.") from None
        if not is_open:
            await self._reply_to_click(click, _NO_FORM)

    async def on_read_button(self, ack: AsyncAck, body: Body) -> None:
        """Show what the command of a button shows, to this person only."""
        click = payloads.parse_click(body)
        self._run_in_background(self._answer_read_button(click), click.channel, click.account.user)
        await ack()

    async def _answer_read_button(self, click: ButtonClick) -> None:
        if not self._commands.is_reading(click.value):
            raise TooLate("This button is out of date: type /keyturn help.")
        message = payloads.Mention(click.account, click.channel, click.thread, click.value)
        answer = await self._answer_text(message)
        await self._send_to_person(click.channel, click.account.user, answer, thread=click.thread)

    async def on_mention(self, ack: AsyncAck, body: Body) -> None:
        """Answer a person who mentions the bot."""
        mention = payloads.parse_mention(body)
        if mention is not None and not mention.channel.startswith("D"):
            work = self._answer_mention(mention)
            self._run_in_background(work, mention.channel, mention.account.user)
        await ack()

    async def on_message(self, ack: AsyncAck, body: Body) -> None:
        """Answer a person who writes to the bot, and pass on what programs post in channels."""
        message = payloads.parse_direct_message(body)
        if message is not None:
            work = self._answer_mention(message)
            self._run_in_background(work, message.channel, message.account.user)
        posted = payloads.parse_app_message(body)
        if posted is not None and len(self._background_tasks) < _MAX_BACKGROUND_TASKS:
            for listen in self._on_app_message:
                self._run_in_background(self._pass_on(listen, posted), "", "")
        await ack()

    async def _pass_on(
        self, listen: Callable[[payloads.AppMessage], None], message: payloads.AppMessage
    ) -> None:
        try:
            await threads.run_in_answer_thread(listen, message)
        except Exception as error:  # noqa: BLE001 - no person waits for an answer
            _log_internal_error(error)

    async def on_shortcut_of_feature(self, ack: AsyncAck, body: Body) -> None:
        """Answer a shortcut in the menu of a message, to this person only."""
        shortcut = payloads.parse_shortcut(body)
        work = self._answer_shortcut(shortcut)
        self._run_in_background(work, shortcut.channel, shortcut.account.user)
        await ack()

    async def _answer_shortcut(self, shortcut: payloads.MessageShortcut) -> None:
        answer = self._shortcuts[shortcut.callback_id]
        message = await self._identity.run_as_person(
            shortcut.account, lambda person, policy: answer(shortcut, person.id, policy)
        )
        await self._send_to_person(shortcut.channel, shortcut.account.user, message)

    async def _answer_mention(self, mention: payloads.Mention) -> None:
        try:
            if len(self._background_tasks) > _MAX_BACKGROUND_TASKS:
                answer = _TOO_BUSY
            else:
                answer = await self._answer_text(mention)
        except AccountRefused as refusal:
            await self._send_refusal(mention, refusal)
            return
        except DomainError as refusal:
            answer = _render_refusal(refusal)
        # Slack does not show an ephemeral message that would begin a thread.
        user, thread = mention.account.user, mention.thread
        await self._send_to_person(
            # Buttons in a thread are for one person, and go with what only that person sees.
            mention.channel,
            user,
            answer,
            thread=thread,
            is_kept=mention.is_direct and not thread,
        )

    async def _send_refusal(self, mention: payloads.Mention, refusal: AccountRefused) -> None:
        """Tell a person that Keyturn does nothing for them; in the thread if only that arrives.

        Slack shows people of other organisations no message for one person only.
        """
        answer, user = _render_refusal(refusal), mention.account.user
        is_sent = await self._send_to_person(
            mention.channel, user, answer, thread=mention.thread, is_kept=mention.is_direct
        )
        if not is_sent and not mention.is_direct:
            note = replies.build_text_reply(
                "Keyturn answers only members of this workspace whom its policy names."
            )
            await self._send_to_person(
                mention.channel, user, note, thread=mention.thread or mention.ts, is_kept=True
            )

    async def _answer_text(self, mention: payloads.Mention) -> Message:
        """Answer what a person wrote to the bot; requests nothing."""
        origin = RequestOrigin("slack", mention.channel, mention.account.user)

        def answer(person: Person, policy: Policy) -> Message:
            zone = self._identity.get_time_zone(mention.account)
            return self._commands.answer_message(
                mention.text,
                person=person.id,
                policy=policy,
                origin=origin,
                zone=zone,
                thread=mention.thread,
            )

        return await self._identity.run_as_person(mention.account, answer)

    async def on_link_shared(self, ack: AsyncAck, body: Body) -> None:
        """Unfurl links to runs that a person posts."""
        links = payloads.parse_shared_links(body)
        if links is not None:
            self._run_in_background(self._record_links(links), "", links.account.user)
        await ack()

    async def _record_links(self, links: payloads.SharedLinks) -> None:
        try:
            await self._identity.get_person(links.account)
            await threads.run_in_answer_thread(self._commands.record_links, links)
        except DomainError as refusal:
            # The person requested nothing, so there is nothing to answer.
            _log.info("a link was not unfurled: %s", refusal)

    async def on_error(self, error: Exception, body: Body) -> BoltResponse:
        """Answer unknown requests and internal errors, without a stack trace."""
        if isinstance(error, BoltUnhandledRequestError):
            _log.info("ignored an unknown %s", body.get("type") or "command")
            answer = replies.build_text_reply(
                "Keyturn does not support that. The message may be outdated: use its newest one."
            )
        else:
            answer = replies.build_text_reply(_log_internal_error(error))
        if "command" in body:
            message = {"response_type": "ephemeral", "text": answer.text}
            return BoltResponse(status=200, body=message)
        if body.get("type") == "block_actions":
            self._reply_in_background(body, answer)
        return BoltResponse(status=200, body="")

    async def wait_for_background_tasks(self) -> None:
        """Wait until all background tasks have ended."""
        await asyncio.gather(*self._background_tasks)

    async def _remove_buttons(self, click: payloads.ButtonClick, refusal: OutdatedMessage) -> None:
        """Replace the clicked message by a note that it is outdated."""
        note = replies.build_text_reply(f"Outdated: {format_sentence(str(refusal))}")
        try:
            await self._sender.update_message(MessageLocation(click.channel, click.ts), note)
        except CALL_ERRORS as error:
            # Its buttons have no effect, and the next click tries again.
            cause = get_error_cause(error)
            _log.warning("cannot remove the buttons of an outdated message: %s", cause)

    async def _open_form(self, form: RequestedForm, command: payloads.SlashCommand) -> None:
        """Open a form, or show how to type the request if Slack does not open it."""
        person = await self._identity.get_person(command.account)
        opened = await self._request_forms.open_form(
            form, trigger_id=command.trigger_id, person=person.id, channel=command.channel
        )
        if not opened:
            usage = replies.render_runbook_help(form.runbook)
            await self._send_to_person(command.channel, command.account.user, usage)

    async def _open_form_of_button(self, click: payloads.ButtonClick) -> None:
        person = await self._identity.get_person(click.account)
        form = await threads.run_in_answer_thread(self._get_form_of_button, click, person.id)
        # A request from the Home tab is answered in the person's direct messages.
        channel = click.channel or await self._sender.open_conversation(click.account.user)
        opening = {"trigger_id": click.trigger_id, "person": person.id, "channel": channel}
        if form is None:
            host = click.value.removeprefix(ANY_RUNBOOK).strip()
            if not await self._request_forms.open_host_chooser(host, **opening):
                await self._reply_to_click(click, _NO_FORM)
        elif not await self._request_forms.open_form(form, **opening):
            await self._reply_to_click(click, replies.render_runbook_help(form.runbook))

    def _get_form_of_button(
        self, click: payloads.ButtonClick, person: str
    ) -> RequestedForm | None:
        """Return the form that a button refers to; None for the choice of all runbooks."""
        if click.action == RESUBMIT.id:
            return self._commands.get_resubmit_form(click.value, person=person)
        if click.value.split()[:1] == [ANY_RUNBOOK]:
            return None
        return self._commands.get_typed_form(click.value)

    async def _open_host_chooser(self, shortcut: payloads.MessageShortcut) -> None:
        person = await self._identity.get_person(shortcut.account)
        if not await self._request_forms.open_host_chooser(
            shortcut.text,
            trigger_id=shortcut.trigger_id,
            person=person.id,
            channel=shortcut.channel,
        ):
            await self._send_to_person(shortcut.channel, shortcut.account.user, _NO_FORM)

    async def _redraw_form(self, shown: payloads.ViewState) -> None:
        try:
            person = await self._identity.get_person(shown.account)
            await self._request_forms.update_form(shown, person=person.id)
        except DomainError as refusal:
            # The form is unchanged; submitting it shows the same refusal.
            _log.info("a form was not updated: %s", refusal)

    async def _run_command(self, command: payloads.SlashCommand) -> CommandAnswer:
        text, channel = expand_alias(command.name, command.text), command.channel
        if replies.is_private(text):
            channel = await self._open_private_conversation(command.account)
        origin = RequestOrigin("slack", channel, command.account.user)

        def answer(person: Person, policy: Policy) -> CommandAnswer:
            zone = self._identity.get_time_zone(command.account)
            return self._commands.answer_command(
                text, person=person.id, policy=policy, origin=origin, zone=zone
            )

        return await self._identity.run_as_person(command.account, answer)

    async def _open_private_conversation(self, account: payloads.Account) -> str:
        """Open the direct messages with a person and return their id."""
        await self._identity.get_person(account)
        try:
            return await self._sender.open_conversation(account.user)
        except CALL_ERRORS as error:
            cause = get_error_cause(error)
            _log.warning("cannot open direct messages with %s: %s", account.user, cause)
            raise InvalidRequestError(
                "the request was not sent, since Slack did not open a direct message: try again"
            ) from None

    def _reply_in_background(self, body: Body, message: Message) -> None:
        """Answer a click after its acknowledgement."""
        click = payloads.parse_click(body)
        self._run_in_background(
            self._reply_to_click(click, message), click.channel, click.account.user
        )

    async def _reply_to_click(self, click: payloads.ButtonClick, message: Message) -> None:
        await self._send_to_person(click.channel, click.account.user, message)

    async def _send_to_person(
        self,
        channel: str,
        user: str,
        message: Message,
        *,
        thread: str = "",
        is_kept: bool = False,
    ) -> bool:
        """Send a message to one person, in two attempts; return whether Slack took it.

        is_kept: as a message of the channel, which stays: in direct messages.
        """
        for is_last in (False, True):
            try:
                if is_kept:
                    await self._sender.post_message(channel, message, thread=thread)
                elif channel:
                    await self._sender.send_ephemeral(channel, user, message, thread=thread)
                else:
                    await self._sender.send_direct_message(user, message)
            except CALL_ERRORS as error:
                _log.warning("cannot answer %s: %s", user, get_error_cause(error))
                if not is_last:
                    seconds = get_retry_seconds(error) or _RETRY_SECONDS
                    await asyncio.sleep(min(seconds, _MAX_RETRY_SECONDS))
            else:
                return True
        return False

    def _run_in_background(self, work: Coroutine[Any, Any, None], channel: str, user: str) -> None:
        """Run *work* after the acknowledgement; a failure is reported to the person."""
        task = asyncio.create_task(self._run_and_report(work, channel, user))
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _run_and_report(
        self, work: Coroutine[Any, Any, None], channel: str, user: str
    ) -> None:
        try:
            await work
        except DomainError as refusal:
            await self._send_to_person(channel, user, _render_refusal(refusal))
        except Exception as error:  # noqa: BLE001 - reported to the person
            await self._send_to_person(
                channel, user, replies.build_text_reply(_log_internal_error(error))
            )


def _is_posted_there(pending: PendingPlan, command: payloads.SlashCommand) -> bool:
    """Return whether the card of a private check is posted where the command was typed."""
    return pending.is_check and command.channel.startswith("D")


async def _is_done_within(work: "asyncio.Task[Any]", seconds: float) -> bool:
    """Wait for a task up to *seconds*; return whether it has ended. Does not cancel it."""
    done, _ = await asyncio.wait([work], timeout=seconds)
    return bool(done)


def _log_internal_error(error: Exception) -> str:
    """Log an internal error and return the text for the person, with a reference."""
    reference = secrets.token_hex(4)
    _log.error("internal error %s in a Slack request", reference, exc_info=error)
    return (
        f"Internal error in Keyturn, reference {reference}. Check the run before you request it "
        "again: its timeline shows what was done."
    )


def _escape_errors(errors: Mapping[str, str]) -> dict[str, str]:
    """Return the errors below fields on one line each: Slack shows them as plain text."""
    return {block: escape_to_one_line(text) for block, text in errors.items()}


def _render_refusal(refusal: DomainError) -> Message:
    if isinstance(refusal, UnknownAccountError):
        return access.render_unknown_account(refusal)
    return replies.build_text_reply(_describe_refusal(refusal))


def _describe_refusal(refusal: DomainError) -> str:
    return format_sentence(observability.explain_error(refusal, "Slack"))

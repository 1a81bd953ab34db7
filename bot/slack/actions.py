"""What Slack tells us, handed to the workflow: commit first, then acknowledge."""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from aiohttp import ClientError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.db import outbox, runs
from bot.db.database import Database, StoreUnavailable
from bot.db.runs import ConcurrentUpdateError, NoSuchRun
from bot.db.schedules import NoSuchSchedule
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.request_form import RequestSyntaxError
from bot.model.run import RequestOrigin, Run
from bot.model.text import escape_to_one_line, format_sentence
from bot.policy import NoPolicyError, Person, Policy
from bot.service import Workflow
from bot.slack import home, modals, payloads, replies, threads
from bot.slack.aliases import ALIASES, COMMAND, expand_alias
from bot.slack.blocks import Message
from bot.slack.client import MessageLocation, MessageSender, get_error_code, get_retry_seconds
from bot.slack.commands import RequestedForm, SlackCommands
from bot.slack.home import HomeTabs
from bot.slack.identity import AccountRefused, IdentityService
from bot.slack.modals import RequestForms
from bot.slack.payloads import ButtonClick
from bot.slack.request_body import Body
from bot.slack.run_message import ACCEPT, APPROVE, DENY, RESUBMIT, WITHDRAW

CARD, COPY = "card", "copy "
_BUTTON_VALUE_PATTERN = re.compile(r"(\d{1,9}):([0-9a-f]{10})", re.ASCII)


class OutdatedMessage(TooLate):
    """The button is on a message that nothing keeps up to date: another one is the run's card."""


class DecisionHandler:
    def __init__(self, workflow: Workflow, database: Database) -> None:
        self._workflow, self._database = workflow, database

    def decide_by_click(self, click: ButtonClick, *, person: str) -> Run:
        """Approve or deny what the clicked card shows. Raises NotYours, TooLate, NoSuchRun.

        Outdated, which is a TooLate, where the buttons are to be taken off the message.
        """
        value = _BUTTON_VALUE_PATTERN.fullmatch(click.value)
        if value is None:
            raise TooLate("This button is not one of Keyturn's: look at the run itself.")
        number, digest = int(value[1]), value[2]
        self._check_card(click, number, digest)
        if click.action == ACCEPT:
            return self._workflow.accept_proposal(number, person=person, digest=digest)
        if click.action == WITHDRAW:
            return self._workflow.withdraw_run(number, person=person)
        if click.action == APPROVE:
            return self._workflow.approve_run(number, person=person, digest=digest)
        return self._workflow.deny_run(number, person=person)

    def _check_card(self, click: ButtonClick, number: int, digest: str) -> None:
        """Refuse buttons of another message or another plan than the one that is shown.

        A post whose answer was lost may leave a message that we do not know to be there.
        """
        with self._database.reading() as tx:
            run = runs.get_run(tx, number)
            notices = outbox.list_messages(tx, number)
            in_flux = outbox.has_more(tx, number)
        stands = {
            (notice.channel, notice.ts)
            for slot, notice in notices.items()
            if slot == CARD or slot.startswith(COPY)
        }
        # What stands on somebody's Home is drawn for them alone, and nobody else can click it.
        if not click.is_home and (click.channel, click.ts) not in stands:
            if in_flux:
                # It may be the card that is being posted just now.
                raise TooLate(f"Run {number} is just being told of: look at it again in a moment.")
            raise OutdatedMessage(
                f"This is not the card of run {number} any more: look for its newest, or type "
                f"{COMMAND} run {number}."
            )
        if run.short_digest != digest:
            raise TooLate(f"Run {number} has another plan than this button: look at it again.")


_log = logging.getLogger(__name__)

_NO_FORM_MESSAGE = (
    "Slack did not show the form. Try again, or type /keyturn help and ask by words."
)
_TOO_BUSY_MESSAGE = "Nothing was done: Keyturn has too much to do just now. Try again in a minute."
# Slack waits three seconds for an acknowledgement, and has it after this even if the answer takes
# longer; a form a little later, as what is wrong with it is only said below its fields by then.
# What is behind acknowledgements is bounded.
_ACKNOWLEDGED_SECONDS, _FORM_SECONDS = 0.3, 1.5
_MAX_BACKGROUND_TASKS = 1000
# How long an answer that Slack did not take waits before it is tried once more.
_AGAIN_SECONDS, _MOST_SECONDS = 1.0, 5.0

FormHandler = Callable[..., dict[str, Any]]

_COMMANDS = (COMMAND, *ALIASES)
_FORM_BUTTON_PATTERN = re.compile(rf"{replies.FORM_ACTION}-\d{{1,2}}")

# Considered noes: each says what is so and what to do.
_REFUSALS = (
    AccountRefused,
    RequestSyntaxError,
    InvalidRequestError,
    NotAllowed,
    TooLate,
    NoSuchRun,
    NoSuchSchedule,
    ConcurrentUpdateError,
)


class SlackListeners:
    def __init__(
        self,
        identity: IdentityService,
        commands: SlackCommands,
        decisions: DecisionHandler,
        request_forms: RequestForms,
        home_tabs: HomeTabs,
        voice: MessageSender,
    ) -> None:
        self._identity, self._commands, self._decisions = identity, commands, decisions
        self._request_forms, self._home_tabs, self._sender = request_forms, home_tabs, voice
        self._background_tasks: set[asyncio.Task[None]] = set()

    def register_listeners(self, app: AsyncApp) -> None:
        for command in _COMMANDS:
            app.command(command)(self.on_command)
        app.action(APPROVE)(self.on_click)
        for action in (DENY, ACCEPT, WITHDRAW):
            app.action(action)(self.on_click)
        app.action(_FORM_BUTTON_PATTERN)(self.on_form_button)
        app.action(RESUBMIT)(self.on_form_button)
        for action in (modals.HOST, modals.VALUE):
            app.action(action)(self.on_choice)
            app.options(action)(self.on_options_request)
        for callback in (modals.FORM, modals.CHOOSER):
            app.view(callback)(self.on_form_submitted)
        app.shortcut(modals.ABOUT_HOST)(self.on_shortcut)
        app.event("app_home_opened")(self.on_home_opened)
        app.error(self.on_error)

    async def answer_command(self, body: Body) -> BoltResponse | None:
        """Answer a slash command of ours; None if it is something else, which is for Bolt.

        To find out whose a command is takes Bolt longer than it takes us to answer it.
        """
        if body.get("command") not in _COMMANDS:
            return None
        ack = AsyncAck()
        try:
            await self.on_command(ack, body)
        except Exception as fault:  # noqa: BLE001 - as Bolt does it: whoever waits is told
            return await self.on_error(fault, body)
        return ack.response

    async def on_command(self, ack: AsyncAck, body: Body) -> None:
        command = payloads.parse_command(body)
        channel, user = command.channel, command.account.user
        if len(self._background_tasks) >= _MAX_BACKGROUND_TASKS:
            await ack(response_type="ephemeral", text=_TOO_BUSY_MESSAGE)
            return
        answering = asyncio.create_task(self._run_command(command))
        if not await _is_done_within(answering, _ACKNOWLEDGED_SECONDS):
            self._run_in_background(self._send_late_answer(answering, command), channel, user)
            await ack()
            return
        try:
            answer = answering.result()
        except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
            answer = replies.build_text_reply(_describe_refusal(no))
        if isinstance(answer, RequestedForm):
            self._run_in_background(self._open_form(answer, command), channel, user)
            await ack()
        elif answer is None:
            await ack()
        else:
            await ack(response_type="ephemeral", text=answer.text, blocks=list(answer.blocks))

    async def _send_late_answer(
        self,
        answer_task: "asyncio.Task[Message | RequestedForm | None]",
        command: payloads.SlashCommand,
    ) -> None:
        """Say the answer once it is there, to who has an acknowledgement already."""
        answer = await answer_task
        if isinstance(answer, RequestedForm):
            await self._open_form(answer, command)
        elif answer is not None:
            await self._send_to_person(command.channel, command.account.user, answer)

    async def on_click(self, ack: AsyncAck, body: Body) -> None:
        click = payloads.parse_click(body)
        if len(self._background_tasks) >= _MAX_BACKGROUND_TASKS:
            self._reply_in_background(body, replies.build_text_reply(_TOO_BUSY_MESSAGE))
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
        """Say why it was not decided, where that is so."""
        try:
            await decision_task
        except OutdatedMessage as no:
            await self._reply_to_click(click, replies.build_text_reply(_describe_refusal(no)))
            await self._remove_buttons(click, f"Outdated: {format_sentence(str(no))}")

    async def on_form_button(self, ack: AsyncAck, body: Body) -> None:
        """Open the form that a button names."""
        click = payloads.parse_click(body)
        self._run_in_background(
            self._open_form_of_button(click), click.channel, click.account.user
        )
        await ack()

    async def on_shortcut(self, ack: AsyncAck, body: Body) -> None:
        """Offer what may be asked for about a host that a message names."""
        asked = payloads.parse_shortcut(body)
        self._run_in_background(self._open_host_chooser(asked), asked.channel, asked.account.user)
        await ack()

    async def on_choice(self, ack: AsyncAck, body: Body) -> None:
        """Draw the form anew for the host that was chosen in it."""
        shown = payloads.parse_view_state(body)
        self._run_in_background(self._redraw_form(shown), "", shown.account.user)
        await ack()

    async def on_options_request(self, ack: AsyncAck, body: Body) -> None:
        shown = payloads.parse_view_state(body)
        try:
            person = await self._identity.get_person(shown.account)
            options = await self._request_forms.list_options(shown, person=person.id)
        except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
            _log.info("nothing is offered: %s", no)
            options = ()
        await ack(options=options)

    async def on_form_submitted(self, ack: AsyncAck, body: Body) -> None:
        """Ask for what a form says, or say below its fields what is wrong."""
        shown = payloads.parse_view_state(body)
        hand_in = (
            self._request_forms.submit_form
            if shown.callback_id == modals.FORM
            else self._request_forms.build_next_view
        )
        handing_in = asyncio.create_task(self._submit_form(hand_in, shown))
        if not await _is_done_within(handing_in, _FORM_SECONDS):
            user = shown.account.user
            self._run_in_background(self._report_late_form(handing_in, user), "", user)
            await ack()
            return
        found = handing_in.result()
        if "type" in found:
            await ack(response_action="update", view=found)
        elif found:
            await ack(response_action="errors", errors=_escape_errors(found))
        else:
            await ack()

    async def _submit_form(
        self, handle_form: FormHandler, shown: payloads.ViewState
    ) -> dict[str, Any]:
        try:
            person = await self._identity.get_person(shown.account)
            return await threads.run_in_answer_thread(handle_form, shown, person=person.id)
        except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
            return {modals.HOST_BLOCK: _describe_refusal(no)}

    async def _report_late_form(
        self, form_task: "asyncio.Task[dict[str, Any]]", user: str
    ) -> None:
        """Say directly what came of a form that is closed by now."""
        found = await form_task
        if "type" in found:
            await self._send_to_person("", user, replies.build_text_reply(_NO_FORM_MESSAGE))
        elif found:
            wrong = " ".join(_escape_errors(found).values())
            await self._send_to_person(
                "", user, replies.build_text_reply(f"Nothing was asked: {wrong}")
            )

    async def on_home_opened(self, ack: AsyncAck, body: Body) -> None:
        """Draw the Home tab for whoever looks at it."""
        account = payloads.parse_home_opened(body)
        if account is not None:
            try:
                person = await self._identity.get_person(account)
                await threads.run_in_answer_thread(
                    self._home_tabs.open_home, account.user, person.id
                )
            except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
                told = self._home_tabs.show_refusal(account.user, _describe_refusal(no))
                self._run_in_background(told, "", account.user)
        await ack()

    async def on_error(self, error: Exception, body: Body) -> BoltResponse:
        """Answer what nobody listens to, and our own faults, without a stack trace."""
        if isinstance(error, BoltUnhandledRequestError):
            _log.info("nobody listens to a %s", body.get("type") or "command")
            answer = replies.build_text_reply(
                "Keyturn has no answer to that. Is this its newest message?"
            )
        else:
            answer = replies.build_text_reply(_log_internal_error(error))
        if "command" in body:
            words = {"response_type": "ephemeral", "text": answer.text}
            return BoltResponse(status=200, body=words)
        if body.get("type") == "block_actions":
            self._reply_in_background(body, answer)
        return BoltResponse(status=200, body="")

    async def wait_for_background_tasks(self) -> None:
        """Let what is being said come to its end."""
        await asyncio.gather(*self._background_tasks)

    async def _remove_buttons(self, click: payloads.ButtonClick, text: str) -> None:
        """Have the message that was clicked say that it is outdated."""
        try:
            await self._sender.update_message(
                MessageLocation(click.channel, click.ts), replies.build_text_reply(text)
            )
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            # Its buttons decide nothing, and the next click tries it again.
            _log.warning("an outdated message keeps its buttons: %s", trouble)

    async def _open_form(self, blank: RequestedForm, command: payloads.SlashCommand) -> None:
        """Open a form, or say how the request is typed where Slack opens none."""
        person = await self._identity.get_person(command.account)
        opened = await self._request_forms.open_form(
            blank, trigger_id=command.trigger_id, person=person.id, channel=command.channel
        )
        if not opened:
            told = replies.render_runbook_help(blank.runbook)
            await self._send_to_person(command.channel, command.account.user, told)

    async def _open_form_of_button(self, click: payloads.ButtonClick) -> None:
        person = await self._identity.get_person(click.account)
        blank = await threads.run_in_answer_thread(self._get_form_of_button, click, person.id)
        # What is asked on one's Home is answered where only that person reads it.
        at = click.channel or await self._sender.open_conversation(click.account.user)
        opening = {"trigger_id": click.trigger_id, "person": person.id, "channel": at}
        if blank is None:
            if not await self._request_forms.open_host_chooser("", **opening):
                await self._reply_to_click(click, replies.build_text_reply(_NO_FORM_MESSAGE))
        elif not await self._request_forms.open_form(blank, **opening):
            await self._reply_to_click(click, replies.render_runbook_help(blank.runbook))

    def _get_form_of_button(
        self, click: payloads.ButtonClick, person: str
    ) -> RequestedForm | None:
        """Return the form that a button means; None if it is the choice of everything."""
        if click.action == RESUBMIT:
            return self._commands.get_resubmit_form(click.value, person=person)
        if click.value == home.ANY_RUNBOOK:
            return None
        return RequestedForm(request_form.find_runbook(click.value.split())[0])

    async def _open_host_chooser(self, shortcut: payloads.MessageShortcut) -> None:
        person = await self._identity.get_person(shortcut.account)
        if not await self._request_forms.open_host_chooser(
            shortcut.text,
            trigger_id=shortcut.trigger_id,
            person=person.id,
            channel=shortcut.channel,
        ):
            await self._send_to_person(
                shortcut.channel, shortcut.account.user, replies.build_text_reply(_NO_FORM_MESSAGE)
            )

    async def _redraw_form(self, shown: payloads.ViewState) -> None:
        try:
            person = await self._identity.get_person(shown.account)
            await self._request_forms.redraw_for_host(shown, person=person.id)
        except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
            # The form stays as it was; handing it in will say the same below its host.
            _log.info("a form was not drawn anew: %s", no)

    async def _run_command(self, command: payloads.SlashCommand) -> Message | RequestedForm | None:
        text, channel = expand_alias(command.name, command.text), command.channel
        if replies.is_private(text):
            channel = await self._open_private_conversation(command.account)
        origin = RequestOrigin("slack", channel, command.account.user)

        def answer(person: Person, policy: Policy) -> Message | RequestedForm | None:
            zone = self._identity.get_time_zone(command.account)
            return self._commands.answer_command(
                text, person=person.id, policy=policy, origin=origin, zone=zone
            )

        return await self._identity.run_as_person(command.account, answer)

    async def _open_private_conversation(self, account: payloads.Account) -> str:
        """Return the conversation with a person that nobody else reads."""
        await self._identity.get_person(account)
        try:
            return await self._sender.open_conversation(account.user)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            _log.warning("no conversation with %s: %s", account.user, type(trouble).__name__)
            raise InvalidRequestError(
                "Slack opened no conversation with you, so nothing was asked: try again"
            ) from None

    def _reply_in_background(self, body: Body, message: Message) -> None:
        """Tell whoever clicked, behind the acknowledgement: Slack waits for that one only."""
        click = payloads.parse_click(body)
        self._run_in_background(
            self._reply_to_click(click, message), click.channel, click.account.user
        )

    async def _reply_to_click(self, click: payloads.ButtonClick, message: Message) -> None:
        await self._send_to_person(click.channel, click.account.user, message)

    async def _send_to_person(self, channel: str, user: str, message: Message) -> None:
        """Tell one person, and once more if Slack does not take it: nobody else will say it."""
        for tries in range(2):
            wait = _AGAIN_SECONDS
            try:
                if channel:
                    await self._sender.send_ephemeral(channel, user, message)
                else:
                    await self._sender.send_direct_message(user, message)
            except SlackApiError as refused:
                _log.warning("%s could not be answered: %s", user, get_error_code(refused))
                wait = min(get_retry_seconds(refused) or wait, _MOST_SECONDS)
            except (SlackClientError, ClientError, TimeoutError) as trouble:
                _log.warning("%s could not be answered: %s", user, type(trouble).__name__)
            else:
                return
            if not tries:
                await asyncio.sleep(wait)

    def _run_in_background(self, work: Coroutine[Any, Any, None], channel: str, user: str) -> None:
        """Do it behind the acknowledgement. What stands in its way is told the person."""
        task = asyncio.create_task(self._run_and_report(work, channel, user))
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _run_and_report(
        self, work: Coroutine[Any, Any, None], channel: str, user: str
    ) -> None:
        try:
            await work
        except (NoPolicyError, StoreUnavailable, *_REFUSALS) as no:
            await self._send_to_person(
                channel, user, replies.build_text_reply(_describe_refusal(no))
            )
        except Exception as fault:  # noqa: BLE001 - whoever waits is told
            await self._send_to_person(
                channel, user, replies.build_text_reply(_log_internal_error(fault))
            )


async def _is_done_within(work: "asyncio.Task[Any]", seconds: float) -> bool:
    """Wait for work as long as an acknowledgement may; False if it goes on behind it."""
    done, _ = await asyncio.wait([work], timeout=seconds)
    return bool(done)


def _log_internal_error(error: Exception) -> str:
    """Log what failed in ourselves, and return what is said of it, without a stack trace."""
    reference = secrets.token_hex(4)
    _log.error("fault %s at the Slack door", reference, exc_info=error)
    return (
        f"Something in Keyturn itself failed, reference {reference}. Look at the run "
        "before asking again: its log says what was done."
    )


def _escape_errors(errors: Mapping[str, str]) -> dict[str, str]:
    """Return what is said below fields, which Slack shows as plain text."""
    return {block: escape_to_one_line(said) for block, said in errors.items()}


def _describe_refusal(refusal: Exception) -> str:
    if isinstance(refusal, NoPolicyError):
        _log.error("there is no valid policy: %s", refusal)
        return "Nothing was done: Keyturn has no valid policy now. Its log says what to mend."
    if isinstance(refusal, StoreUnavailable):
        _log.critical("the Slack door takes nothing: %s", refusal)
        return "Nothing was done: the change log cannot be written. Try again in a minute."
    return format_sentence(str(refusal))

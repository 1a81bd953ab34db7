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
from bot.db.runs import NoSuchRun, Overtaken
from bot.db.schedules import NoSuchSchedule
from bot.model import request_form
from bot.model.request_form import NotUnderstood
from bot.model.run import Origin, Run
from bot.model.text import escape_to_one_line, sentence
from bot.policy import NoPolicy, Person, Policy
from bot.service import Workflow
from bot.slack import home, modals, payloads, replies, threads
from bot.slack.aliases import ALIASES, COMMAND, typed
from bot.slack.blocks import Message
from bot.slack.client import Place, Voice, error_of, retry_after
from bot.slack.commands import Blank, Commands
from bot.slack.home import Homes
from bot.slack.identity import Identity, Unwelcome
from bot.slack.modals import Asking
from bot.slack.payloads import Click
from bot.slack.request_body import Body
from bot.slack.run_message import ACCEPT, AGAIN, APPROVE, DENY, WITHDRAW
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.requests import InvalidRequest

CARD, COPY = "card", "copy "
_VALUE = re.compile(r"(\d{1,9}):([0-9a-f]{10})", re.ASCII)


class Outdated(TooLate):
    """The button is on a message that nothing keeps up to date: another one is the run's card."""


class Decisions:
    def __init__(self, workflow: Workflow, database: Database) -> None:
        self._workflow, self._database = workflow, database

    def decide(self, click: Click, *, person: str) -> Run:
        """Approve or deny what the clicked card shows. Raises NotYours, TooLate, NoSuchRun.

        Outdated, which is a TooLate, where the buttons are to be taken off the message.
        """
        value = _VALUE.fullmatch(click.value)
        if value is None:
            raise TooLate("This button is not one of Keyturn's: look at the run itself.")
        number, digest = int(value[1]), value[2]
        self._check_card(click, number, digest)
        if click.action == ACCEPT:
            return self._workflow.accept(number, person=person, digest=digest)
        if click.action == WITHDRAW:
            return self._workflow.withdraw(number, person=person)
        if click.action == APPROVE:
            return self._workflow.approve(number, person=person, digest=digest)
        return self._workflow.deny(number, person=person)

    def _check_card(self, click: Click, number: int, digest: str) -> None:
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
        if not click.home and (click.channel, click.ts) not in stands:
            if in_flux:
                # It may be the card that is being posted just now.
                raise TooLate(f"Run {number} is just being told of: look at it again in a moment.")
            raise Outdated(
                f"This is not the card of run {number} any more: look for its newest, or type "
                f"{COMMAND} run {number}."
            )
        if run.short_digest != digest:
            raise TooLate(f"Run {number} has another plan than this button: look at it again.")


log = logging.getLogger(__name__)

_NO_FORM = "Slack did not show the form. Try again, or type /keyturn help and ask by words."
_TOO_BUSY = "Nothing was done: Keyturn has too much to do just now. Try again in a minute."
# Slack waits three seconds for an acknowledgement, and has it after this even if the answer takes
# longer; a form a little later, as what is wrong with it is only said below its fields by then.
# What is behind acknowledgements is bounded.
_ACKNOWLEDGED_SECONDS, _FORM_SECONDS = 0.3, 1.5
_MOST_WAITING = 1000
# How long an answer that Slack did not take waits before it is tried once more.
_AGAIN_SECONDS, _MOST_SECONDS = 1.0, 5.0

HandIn = Callable[..., dict[str, Any]]

_COMMANDS = (COMMAND, *ALIASES)
_ASK = re.compile(rf"{replies.ASK}-\d{{1,2}}")

# Considered noes: each says what is so and what to do.
_NOES = (
    Unwelcome,
    NotUnderstood,
    InvalidRequest,
    NotAllowed,
    TooLate,
    NoSuchRun,
    NoSuchSchedule,
    Overtaken,
)


class Listeners:
    def __init__(
        self,
        identity: Identity,
        commands: Commands,
        decisions: Decisions,
        asking: Asking,
        homes: Homes,
        voice: Voice,
    ) -> None:
        self._identity, self._commands, self._decisions = identity, commands, decisions
        self._asking, self._homes, self._voice = asking, homes, voice
        self._speaking: set[asyncio.Task[None]] = set()

    def listen(self, app: AsyncApp) -> None:
        for command in _COMMANDS:
            app.command(command)(self.on_command)
        app.action(APPROVE)(self.on_click)
        for action in (DENY, ACCEPT, WITHDRAW):
            app.action(action)(self.on_click)
        app.action(_ASK)(self.on_ask)
        app.action(AGAIN)(self.on_ask)
        for action in (modals.HOST, modals.VALUE):
            app.action(action)(self.on_choice)
            app.options(action)(self.on_suggestion)
        for callback in (modals.FORM, modals.CHOOSER):
            app.view(callback)(self.on_form)
        app.shortcut(modals.ABOUT_HOST)(self.on_shortcut)
        app.event("app_home_opened")(self.on_home)
        app.error(self.on_fault)

    async def answered(self, body: Body) -> BoltResponse | None:
        """Answer a slash command of ours; None if it is something else, which is for Bolt.

        To find out whose a command is takes Bolt longer than it takes us to answer it.
        """
        if body.get("command") not in _COMMANDS:
            return None
        ack = AsyncAck()
        try:
            await self.on_command(ack, body)
        except Exception as fault:  # noqa: BLE001 - as Bolt does it: whoever waits is told
            return await self.on_fault(fault, body)
        return ack.response

    async def on_command(self, ack: AsyncAck, body: Body) -> None:
        command = payloads.command(body)
        channel, user = command.channel, command.account.user
        if len(self._speaking) >= _MOST_WAITING:
            await ack(response_type="ephemeral", text=_TOO_BUSY)
            return
        answering = asyncio.create_task(self._answer(command))
        if not await _in_time(answering, _ACKNOWLEDGED_SECONDS):
            self._in_background(self._answered_late(answering, command), channel, user)
            await ack()
            return
        try:
            answer = answering.result()
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            answer = replies.reply_text(_plainly(no))
        if isinstance(answer, Blank):
            self._in_background(self._open(answer, command), channel, user)
            await ack()
        elif answer is None:
            await ack()
        else:
            await ack(response_type="ephemeral", text=answer.text, blocks=list(answer.blocks))

    async def _answered_late(
        self, answering: "asyncio.Task[Message | Blank | None]", command: payloads.Command
    ) -> None:
        """Say the answer once it is there, to who has an acknowledgement already."""
        answer = await answering
        if isinstance(answer, Blank):
            await self._open(answer, command)
        elif answer is not None:
            await self._say(command.channel, command.account.user, answer)

    async def on_click(self, ack: AsyncAck, body: Body) -> None:
        click = payloads.click(body)
        if len(self._speaking) >= _MOST_WAITING:
            self._whisper(body, replies.reply_text(_TOO_BUSY))
        else:
            deciding = asyncio.create_task(
                self._identity.done(
                    click.account,
                    lambda person, _: self._decisions.decide(click, person=person.id),
                )
            )
            await _in_time(deciding, _ACKNOWLEDGED_SECONDS)
            work = self._decided(deciding, click)
            self._in_background(work, click.channel, click.account.user)
        await ack()

    async def _decided(self, deciding: "asyncio.Task[Run]", click: payloads.Click) -> None:
        """Say why it was not decided, where that is so."""
        try:
            await deciding
        except Outdated as no:
            await self._reply(click, replies.reply_text(_plainly(no)))
            await self._take_buttons_off(click, f"Outdated: {sentence(str(no))}")

    async def on_ask(self, ack: AsyncAck, body: Body) -> None:
        """Open the form that a button names."""
        click = payloads.click(body)
        self._in_background(self._ask(click), click.channel, click.account.user)
        await ack()

    async def on_shortcut(self, ack: AsyncAck, body: Body) -> None:
        """Offer what may be asked for about a host that a message names."""
        asked = payloads.shortcut(body)
        self._in_background(self._about_hosts(asked), asked.channel, asked.account.user)
        await ack()

    async def on_choice(self, ack: AsyncAck, body: Body) -> None:
        """Draw the form anew for the host that was chosen in it."""
        shown = payloads.parse_shown(body)
        self._in_background(self._chosen(shown), "", shown.account.user)
        await ack()

    async def on_suggestion(self, ack: AsyncAck, body: Body) -> None:
        shown = payloads.parse_shown(body)
        try:
            person = await self._identity.person(shown.account)
            options = await self._asking.options(shown, person=person.id)
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            log.info("nothing is offered: %s", no)
            options = ()
        await ack(options=options)

    async def on_form(self, ack: AsyncAck, body: Body) -> None:
        """Ask for what a form says, or say below its fields what is wrong."""
        shown = payloads.parse_shown(body)
        hand_in = self._asking.submit if shown.callback == modals.FORM else self._asking.next
        handing_in = asyncio.create_task(self._handed_in(hand_in, shown))
        if not await _in_time(handing_in, _FORM_SECONDS):
            user = shown.account.user
            self._in_background(self._handed_in_late(handing_in, user), "", user)
            await ack()
            return
        found = handing_in.result()
        if "type" in found:
            await ack(response_action="update", view=found)
        elif found:
            await ack(response_action="errors", errors=_visible(found))
        else:
            await ack()

    async def _handed_in(self, hand_in: HandIn, shown: payloads.Shown) -> dict[str, Any]:
        try:
            person = await self._identity.person(shown.account)
            return await threads.answered(hand_in, shown, person=person.id)
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            return {modals.HOST_BLOCK: _plainly(no)}

    async def _handed_in_late(self, handing_in: "asyncio.Task[dict[str, Any]]", user: str) -> None:
        """Say directly what came of a form that is closed by now."""
        found = await handing_in
        if "type" in found:
            await self._say("", user, replies.reply_text(_NO_FORM))
        elif found:
            wrong = " ".join(_visible(found).values())
            await self._say("", user, replies.reply_text(f"Nothing was asked: {wrong}"))

    async def on_home(self, ack: AsyncAck, body: Body) -> None:
        """Draw the Home tab for whoever looks at it."""
        account = payloads.opened_home(body)
        if account is not None:
            try:
                person = await self._identity.person(account)
                await threads.answered(self._homes.opened, account.user, person.id)
            except (NoPolicy, StoreUnavailable, *_NOES) as no:
                told = self._homes.refuse(account.user, _plainly(no))
                self._in_background(told, "", account.user)
        await ack()

    async def on_fault(self, error: Exception, body: Body) -> BoltResponse:
        """Answer what nobody listens to, and our own faults, without a stack trace."""
        if isinstance(error, BoltUnhandledRequestError):
            log.info("nobody listens to a %s", body.get("type") or "command")
            answer = replies.reply_text(
                "Keyturn has no answer to that. Is this its newest message?"
            )
        else:
            answer = replies.reply_text(_our_fault(error))
        if "command" in body:
            words = {"response_type": "ephemeral", "text": answer.text}
            return BoltResponse(status=200, body=words)
        if body.get("type") == "block_actions":
            self._whisper(body, answer)
        return BoltResponse(status=200, body="")

    async def close(self) -> None:
        """Let what is being said come to its end."""
        await asyncio.gather(*self._speaking)

    async def _take_buttons_off(self, click: payloads.Click, why: str) -> None:
        """Have the message that was clicked say that it is outdated."""
        try:
            await self._voice.update(Place(click.channel, click.ts), replies.reply_text(why))
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            # Its buttons decide nothing, and the next click tries it again.
            log.warning("an outdated message keeps its buttons: %s", trouble)

    async def _open(self, blank: Blank, command: payloads.Command) -> None:
        """Open a form, or say how the request is typed where Slack opens none."""
        person = await self._identity.person(command.account)
        opened = await self._asking.open(
            blank, trigger=command.trigger, person=person.id, at=command.channel
        )
        if not opened:
            told = replies.about(blank.runbook)
            await self._say(command.channel, command.account.user, told)

    async def _ask(self, click: payloads.Click) -> None:
        person = await self._identity.person(click.account)
        blank = await threads.answered(self._wanted, click, person.id)
        # What is asked on one's Home is answered where only that person reads it.
        at = click.channel or await self._voice.conversation(click.account.user)
        opening = {"trigger": click.trigger, "person": person.id, "at": at}
        if blank is None:
            if not await self._asking.about_hosts("", **opening):
                await self._reply(click, replies.reply_text(_NO_FORM))
        elif not await self._asking.open(blank, **opening):
            await self._reply(click, replies.about(blank.runbook))

    def _wanted(self, click: payloads.Click, person: str) -> Blank | None:
        """Return the form that a button means; None if it is the choice of everything."""
        if click.action == AGAIN:
            return self._commands.again(click.value, person=person)
        if click.value == home.ANYTHING:
            return None
        return Blank(request_form.find_runbook(click.value.split())[0])

    async def _about_hosts(self, asked: payloads.Shortcut) -> None:
        person = await self._identity.person(asked.account)
        if not await self._asking.about_hosts(
            asked.text, trigger=asked.trigger, person=person.id, at=asked.channel
        ):
            await self._say(asked.channel, asked.account.user, replies.reply_text(_NO_FORM))

    async def _chosen(self, shown: payloads.Shown) -> None:
        try:
            person = await self._identity.person(shown.account)
            await self._asking.chosen(shown, person=person.id)
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            # The form stays as it was; handing it in will say the same below its host.
            log.info("a form was not drawn anew: %s", no)

    async def _answer(self, command: payloads.Command) -> Message | Blank | None:
        text, channel = typed(command.name, command.text), command.channel
        if replies.is_private(text):
            channel = await self._private_place(command.account)
        origin = Origin("slack", channel, command.account.user)

        def answer(person: Person, policy: Policy) -> Message | Blank | None:
            zone = self._identity.zone(command.account)
            return self._commands.answer(
                text, person=person.id, policy=policy, origin=origin, zone=zone
            )

        return await self._identity.done(command.account, answer)

    async def _private_place(self, account: payloads.Account) -> str:
        """Return the conversation with a person that nobody else reads."""
        await self._identity.person(account)
        try:
            return await self._voice.conversation(account.user)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("no conversation with %s: %s", account.user, type(trouble).__name__)
            raise InvalidRequest(
                "Slack opened no conversation with you, so nothing was asked: try again"
            ) from None

    def _whisper(self, body: Body, message: Message) -> None:
        """Tell whoever clicked, behind the acknowledgement: Slack waits for that one only."""
        click = payloads.click(body)
        self._in_background(self._reply(click, message), click.channel, click.account.user)

    async def _reply(self, click: payloads.Click, message: Message) -> None:
        await self._say(click.channel, click.account.user, message)

    async def _say(self, channel: str, user: str, message: Message) -> None:
        """Tell one person, and once more if Slack does not take it: nobody else will say it."""
        for tries in range(2):
            wait = _AGAIN_SECONDS
            try:
                if channel:
                    await self._voice.whisper(channel, user, message)
                else:
                    await self._voice.tell(user, message)
            except SlackApiError as refused:
                log.warning("%s could not be answered: %s", user, error_of(refused))
                wait = min(retry_after(refused) or wait, _MOST_SECONDS)
            except (SlackClientError, ClientError, TimeoutError) as trouble:
                log.warning("%s could not be answered: %s", user, type(trouble).__name__)
            else:
                return
            if not tries:
                await asyncio.sleep(wait)

    def _in_background(self, work: Coroutine[Any, Any, None], channel: str, user: str) -> None:
        """Do it behind the acknowledgement. What stands in its way is told the person."""
        task = asyncio.create_task(self._done(work, channel, user))
        self._speaking.add(task)
        task.add_done_callback(self._speaking.discard)

    async def _done(self, work: Coroutine[Any, Any, None], channel: str, user: str) -> None:
        try:
            await work
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            await self._say(channel, user, replies.reply_text(_plainly(no)))
        except Exception as fault:  # noqa: BLE001 - whoever waits is told
            await self._say(channel, user, replies.reply_text(_our_fault(fault)))


async def _in_time(work: "asyncio.Task[Any]", seconds: float) -> bool:
    """Wait for work as long as an acknowledgement may; False if it goes on behind it."""
    done, _ = await asyncio.wait([work], timeout=seconds)
    return bool(done)


def _our_fault(fault: Exception) -> str:
    """Log what failed in ourselves, and return what is said of it, without a stack trace."""
    reference = secrets.token_hex(4)
    log.error("fault %s at the Slack door", reference, exc_info=fault)
    return (
        f"Something in Keyturn itself failed, reference {reference}. Look at the run "
        "before asking again: its log says what was done."
    )


def _visible(errors: Mapping[str, str]) -> dict[str, str]:
    """Return what is said below fields, which Slack shows as plain text."""
    return {block: escape_to_one_line(said) for block, said in errors.items()}


def _plainly(no: Exception) -> str:
    if isinstance(no, NoPolicy):
        log.error("there is no valid policy: %s", no)
        return "Nothing was done: Keyturn has no valid policy now. Its log says what to mend."
    if isinstance(no, StoreUnavailable):
        log.critical("the Slack door takes nothing: %s", no)
        return "Nothing was done: the change log cannot be written. Try again in a minute."
    return sentence(str(no))

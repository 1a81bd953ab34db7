"""What Slack tells us, handed to the workflow: commit first, then acknowledge."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from typing import Any

from aiohttp import ClientError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackClientError

from bot.forms import NotUnderstood
from bot.policy import NoPolicy
from bot.run import Origin
from bot.slack import answers, payloads
from bot.slack.blocks import Message
from bot.slack.body import Body
from bot.slack.card import ACCEPT, APPROVE, DENY, WITHDRAW
from bot.slack.commands import Commands
from bot.slack.decisions import Decisions
from bot.slack.identity import Identity, Unwelcome
from bot.slack.voice import Voice
from bot.store.database import StoreUnavailable
from bot.store.runs import NoSuchRun, Overtaken
from bot.store.schedules import NoSuchSchedule
from bot.workflow import NotYours, TooLate, Unfit

log = logging.getLogger(__name__)

# Considered noes: each says what is so and what to do.
_NOES = (Unwelcome, NotUnderstood, Unfit, NotYours, TooLate, NoSuchRun, NoSuchSchedule, Overtaken)


class Listeners:
    def __init__(
        self,
        identity: Identity,
        commands: Commands,
        decisions: Decisions,
        voice: Voice,
    ) -> None:
        self._identity, self._commands, self._decisions = identity, commands, decisions
        self._voice = voice
        self._speaking: set[asyncio.Task[None]] = set()

    def listen(self, app: AsyncApp) -> None:
        app.command(answers.COMMAND)(self.on_command)
        app.action(APPROVE)(self.on_click)
        for action in (DENY, ACCEPT, WITHDRAW):
            app.action(action)(self.on_click)
        app.error(self.on_fault)

    async def on_command(self, ack: AsyncAck, body: Body) -> None:
        command = payloads.command(body)
        try:
            answer = await self._answer(command)
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            answer = answers.said(_plainly(no))
        if answer is None:
            await ack()
        else:
            await ack(response_type="ephemeral", text=answer.text, blocks=list(answer.blocks))

    async def on_click(self, ack: AsyncAck, body: Body) -> None:
        click = payloads.click(body)
        try:
            person = await self._identity.person(click.account)
            await asyncio.to_thread(self._decisions.decide, click, person=person.id)
        except (NoPolicy, StoreUnavailable, *_NOES) as no:
            self._whisper(body, answers.said(_plainly(no)))
        await ack()

    async def on_fault(self, error: Exception, body: Body) -> BoltResponse:
        """Answer what nobody listens to, and our own faults, without a stack trace."""
        if isinstance(error, BoltUnhandledRequestError):
            log.info("nobody listens to a %s", body.get("type") or "command")
            answer = answers.said("Keyturn has no answer to that. Is this its newest message?")
        else:
            reference = secrets.token_hex(4)
            log.error("fault %s at the Slack door", reference, exc_info=error)
            answer = answers.said(
                f"Something in Keyturn itself failed, reference {reference}. Look at the run "
                "before asking again: its log says what was done."
            )
        if "command" in body:
            words = {"response_type": "ephemeral", "text": answer.text}
            return BoltResponse(status=200, body=words)
        if body.get("type") == "block_actions":
            self._whisper(body, answer)
        return BoltResponse(status=200, body="")

    async def close(self) -> None:
        """Let what is being said come to its end."""
        await asyncio.gather(*self._speaking)

    async def _answer(self, command: payloads.Command) -> Message | None:
        person = await self._identity.person(command.account)
        origin = Origin("slack", command.channel, command.account.user)
        return await asyncio.to_thread(
            self._commands.answer, command.text, person=person.id, origin=origin
        )

    def _whisper(self, body: Body, message: Message) -> None:
        """Tell whoever clicked, behind the acknowledgement: Slack waits for that one only."""
        click = payloads.click(body)
        self._in_background(self._say(click.channel, click.account.user, message))

    async def _say(self, channel: str, user: str, message: Message) -> None:
        try:
            await self._voice.whisper(channel, user, message)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            log.warning("%s could not be answered: %s", user, trouble)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._speaking.add(task)
        task.add_done_callback(self._speaking.discard)


def _plainly(no: Exception) -> str:
    if isinstance(no, NoPolicy):
        log.error("there is no valid policy: %s", no)
        return "Nothing was done: Keyturn has no valid policy now. Its log says what to mend."
    if isinstance(no, StoreUnavailable):
        log.critical("the Slack door takes nothing: %s", no)
        return "Nothing was done: the change log cannot be written. Try again in a minute."
    return str(no)

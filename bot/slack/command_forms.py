"""Buttons that fill in a command: their form asks for what is missing, and it runs as if typed.

So a button can do what the command can, with the same checks, and nothing else.
"""

import html

from bot.db.database import Database
from bot.model.run import RequestOrigin
from bot.model.times import DAY, SECOND, format_deadline
from bot.policy import PolicySource
from bot.slack.aliases import COMMAND
from bot.slack.blocks import (
    Message,
    View,
    code,
    input_block,
    modal,
    paragraph,
    reason_input,
    time_input,
)
from bot.slack.buttons import CommandButton, Missing, parse_command_button
from bot.slack.commands import SlackCommands
from bot.slack.parsing import split_reason
from bot.slack.payloads import ButtonClick, ViewState
from bot.slack.run_forms import REASON, PendingPlan
from bot.slack.views import Views, render_notice

# The callback of the form.
COMMAND_FORM = "command-form"
_MAX_SUBMIT_LENGTH = 24
_UNTIL, _VALUE = "until", "form-value"


def render_command_form(asked: CommandButton, *, channel: str, now: int) -> View:
    """Render the form of a command, which shows what it runs. now: microseconds."""
    typed = split_reason(asked.command)
    until = " until TIME" if asked.missing is Missing.TIME_AND_REASON else ""
    because = " because …" if asked.missing is not Missing.NOTHING else ""
    blocks = [paragraph("Runs ", code(f"{COMMAND} {typed.command_words}{until}{because}"))]
    if until:
        tomorrow = (now + DAY) // SECOND
        blocks.append(input_block(_UNTIL, "Until", time_input(_VALUE, initial=tomorrow)))
    if because:
        seen_by = "The change log has it"
        reason = reason_input(REASON, _VALUE, initial=typed.reason, seen_by=seen_by)
        blocks.append(reason | {"optional": True})
    metadata = {"command": typed.command_words, "channel": channel}
    submit = asked.text if len(asked.text) <= _MAX_SUBMIT_LENGTH else "Request"
    return modal(asked.text, blocks, callback=COMMAND_FORM, submit=submit, metadata=metadata)


class CommandForms:
    """Opens and submits the forms of commands. Raises what the commands raise."""

    def __init__(
        self, commands: SlackCommands, database: Database, policies: PolicySource, views: Views
    ) -> None:
        self._commands, self._database = commands, database
        self._policies, self._views = policies, views

    async def open_form(self, click: ButtonClick, *, channel: str) -> bool:
        """Open the form of a button. Return whether Slack opened it. Raises ValueError."""
        asked = parse_command_button(click.value)

        def build_view() -> View:
            with self._database.reading() as tx:
                return render_command_form(asked, channel=channel, now=tx.now)

        return await self._views.open_view(click.trigger_id, build_view)

    def submit_form(self, shown: ViewState, *, person: str) -> View | PendingPlan:
        """Run the command of a form, and return its answer."""
        until = shown.values.get(_UNTIL, "")
        reason = " ".join(shown.values.get(REASON, "").split())
        text = shown.metadata["command"]
        text += f" until {format_deadline(int(until) * SECOND)}" if until else ""
        # It is typed text to the command, which Slack would have escaped.
        text += f" because {html.escape(reason, quote=False)}" if reason else ""
        origin = RequestOrigin("slack", shown.metadata["channel"], shown.account.user)
        answer = self._commands.answer_command(
            text, person=person, policy=self._policies.get_policy(), origin=origin
        )
        if isinstance(answer, PendingPlan):
            return answer
        if isinstance(answer, Message):
            return modal("Keyturn", answer.blocks or [paragraph(answer.text)])
        return render_notice("Keyturn", "It is requested: its card shows how it goes on.")

"""Commands in the thread of a card, whose run is known: `@Keyturn why`, `deny not today`.

Nothing is decided by text: the answer has the button, bound to the plan, and only its person sees
it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.db import outbox
from bot.db.database import Database
from bot.model import resubmit
from bot.model.run import Run
from bot.model.text import escape_to_one_line
from bot.model.view_rights import ViewRights
from bot.policy import Policy
from bot.queries.run_view import AllowedActions, Viewer, build_run_view
from bot.slack import run_buttons
from bot.slack.blocks import Element, Message, actions, context
from bot.slack.parsing import TypedText
from bot.slack.replies import build_text_reply
from bot.slack.run_buttons import RunButton
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import build_approve_buttons, render_card

_MAX_TEXT_LENGTH = 1000


BuildButtons = Callable[[SlackRunView, str], Sequence[Element]]


@dataclass(frozen=True)
class ThreadCommand:
    """A word in the thread of a card."""

    verb: str
    """What a person wants to do with the run: `approve`."""
    is_allowed: Callable[[Run, AllowedActions], bool]
    build: BuildButtons
    """Returns the buttons. Gets the text behind the word, which the form then contains."""


def _with_text(button: RunButton) -> BuildButtons:
    def build(run_view: SlackRunView, text: str) -> Sequence[Element]:
        run = run_view.run
        value = f"{run.id}:{run.short_digest}"
        return [button.build(run, value=f"{value}:{text[:_MAX_TEXT_LENGTH]}" if text else value)]

    return build


_APPROVE = ThreadCommand(
    "approve", lambda _, may: may.approve, lambda view, _: build_approve_buttons(view)
)
_DENY = ThreadCommand("deny", lambda _, may: may.deny, _with_text(run_buttons.DENY))
_UNDO = ThreadCommand("undo", lambda _, may: may.undo, _with_text(run_buttons.UNDO))
_AGAIN = ThreadCommand(
    "request again",
    lambda run, _: run.is_ended and not resubmit.get_resubmit_refusal(run),
    lambda view, _: [run_buttons.RESUBMIT.build(view.run, value=str(view.run.id))],
)
_WITHDRAW = ThreadCommand(
    "withdraw", lambda _, may: may.withdraw, _with_text(run_buttons.WITHDRAW)
)
_HOLD = ThreadCommand("hold", lambda _, may: may.hold, _with_text(run_buttons.HOLD))
_STOP = ThreadCommand("stop", lambda _, may: may.stop, _with_text(run_buttons.STOP))
_ASK = ThreadCommand("ask about", lambda _, may: may.ask, _with_text(run_buttons.QUESTION))
_ANSWER = ThreadCommand("answer about", lambda _, may: may.answer, _with_text(run_buttons.ANSWER))
_ACCEPT = ThreadCommand("accept", lambda _, may: may.accept, _with_text(run_buttons.ACCEPT))
_COMMANDS: Mapping[str, ThreadCommand] = {
    **dict.fromkeys(("approve", "approved", "lgtm"), _APPROVE),
    **dict.fromkeys(("deny", "denied", "reject"), _DENY),
    **dict.fromkeys(("undo", "revert", "rollback"), _UNDO),
    **dict.fromkeys(("again", "retry", "repeat"), _AGAIN),
    **dict.fromkeys(("withdraw", "cancel"), _WITHDRAW),
    **dict.fromkeys(("hold", "wait"), _HOLD),
    **dict.fromkeys(("stop", "abort"), _STOP),
    **dict.fromkeys(("ask", "question"), _ASK),
    "answer": _ANSWER,
    "accept": _ACCEPT,
}
# They show the run as it is: why it waits, who decides, what it would do.
_READING_WORDS = frozenset({"why", "who", "what", "status", "run", "show", "when", "plan"})


class ThreadCommands:
    """Answers what people write in the threads of cards."""

    def __init__(self, database: Database, view_builder: SlackRunViewBuilder) -> None:
        self._database, self._view_builder = database, view_builder

    def answer(
        self, typed_text: TypedText, *, channel: str, thread: str, person: str, policy: Policy
    ) -> Message | None:
        """Return what to show; None if the thread or the text is not about a run."""
        word = typed_text.first_word
        command = _COMMANDS.get(word)
        is_about_run = command or word in _READING_WORDS or typed_text.is_greeting
        names_run = typed_text.words_after_first.removeprefix("#")[:1].isdigit()
        if not thread or not is_about_run or (names_run and command is not _DENY):
            return None
        rights: ViewRights = policy.get_view_rights(person)
        with self._database.reading(rights) as tx:
            number = outbox.find_run_of_message(tx, channel, thread)
            if number is None:
                return None
            run_view = self._view_builder.build_slack_run_view(tx, number)
            viewed = build_run_view(tx, number, policy, Viewer(person), with_log=False)
        run, may = run_view.run, viewed.allowed_actions
        text = escape_to_one_line(typed_text.text_after_first)
        if command is None:
            shown = [one for one in _ALL if one.is_allowed(run, may)]
            return _render(run_view, [one.build(run_view, "")[:1] for one in shown])
        if not command.is_allowed(run, may):
            reasons = {_UNDO: may.undo_refusal, _APPROVE: may.approve_refusal}
            return _render_refusal(run_view, command, reasons.get(command, ""))
        return _render(run_view, [command.build(run_view, text)])


_ALL = (_APPROVE, _DENY, _ASK, _ANSWER, _ACCEPT, _HOLD, _WITHDRAW, _STOP, _UNDO, _AGAIN)


def _render(run_view: SlackRunView, buttons: Sequence[Sequence[Element]]) -> Message:
    """Render the run with the buttons that this person can use."""
    card = render_card(run_view, buttons=False)
    shown = [element for row in buttons for element in row]
    row = [actions(f"thread-{run_view.run.id}", *shown)] if shown else []
    note = context("Only you see this. A button acts on the plan that is shown here.")
    return replace(card, blocks=[*card.blocks, *row, note])


def _render_refusal(run_view: SlackRunView, command: ThreadCommand, reason: str) -> Message:
    """Say that this person cannot do that now, and how the run is."""
    run = run_view.run
    text = f"You cannot {command.verb} run {run.id} now{f': {reason}' if reason else ''}"
    reply = build_text_reply(f"{text.rstrip('.')}.")
    return replace(reply, blocks=[*reply.blocks, *render_card(run_view, buttons=False).blocks])

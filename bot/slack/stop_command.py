"""Brakes: stopping runs or everything, and shutting people out, from chat."""

from bot.db import stops
from bot.db.database import Database
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.policy import PolicySource
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import Message
from bot.slack.parsing import TypedText
from bot.workflow import stop_reasons

_EVERYTHING_WORDS = frozenset({"all", "everything"})


class StopCommands:
    def __init__(self, workflow: Workflow, database: Database, policies: PolicySource) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies

    def answer_stop_command(self, person: str, said: TypedText) -> Message:
        """Stop one run by its number, or everything."""
        what = said.words_after_first.strip().lower().removeprefix("#")
        if what in _EVERYTHING_WORDS:
            number = self._workflow.stop_everything(person=person, reason=said.reason)
            runs = (
                f"{format_count(number, 'run')} had not ended"
                if number
                else "no run was under way"
            )
            return replies.build_text_reply(
                f"Everything is stopped; {runs}. Somebody else lets it go on with "
                f"{replies.COMMAND} resume because …"
            )
        if not (what.isascii() and what.isdigit() and len(what) <= 9):
            typed = f"{replies.COMMAND} stop"
            raise InvalidRequestError(f"which run? Type {typed} N, or {typed} all because …")
        run = self._workflow.stop_run(int(what), person=person, reason=said.reason)
        how = run.summary if run.is_ended else "It ends before its next step."
        return replies.build_text_reply(f"You stopped run {run.id}. {how}")

    def answer_resume_command(self, person: str, said: TypedText) -> Message:
        self._workflow.resume_everything(person=person, reason=_get_reason(said))
        return replies.build_text_reply(
            "Everything may go on. What was stopped is asked for anew."
        )

    def answer_ban_command(self, person: str, said: TypedText) -> Message:
        who = self._parse_person(said)
        self._workflow.ban_person(who, banned_by=person, reason=said.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is shut out: their sessions have ended, and their tokens are revoked for "
            f"good. Somebody else takes it back with {replies.COMMAND} unban {who} because …"
        )

    def answer_unban_command(self, person: str, said: TypedText) -> Message:
        who = self._parse_person(said)
        self._workflow.unban_person(who, unbanned_by=person, reason=said.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is let in again, and signs in anew. The tokens they had stay revoked: they "
            "make new ones on the page Tokens."
        )

    def describe_stop_of_everything(self) -> str:
        """Say that everything is stopped, by whom and why; "" if it is not."""
        with self._database.reading() as tx:
            held = stops.get_stop_of_everything(tx)
        return (
            f"{stop_reasons.describe_stop_of_everything(held, self._policies.get_policy())}."
            if held
            else ""
        )

    def _parse_person(self, said: TypedText) -> str:
        word = said.words_after_first.strip().removeprefix("@")
        if not word or " " in word:
            raise InvalidRequestError(
                f"whom? Type {replies.COMMAND} {said.first_word} PERSON because …"
            )
        return word.lower()


def _get_reason(said: TypedText) -> str:
    return said.reason or said.words_after_first

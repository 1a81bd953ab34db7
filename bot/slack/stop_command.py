"""`/keyturn stop`, `resume`, `ban` and `unban`."""

from bot.db import stops
from bot.db.database import Database
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.policy import PolicySource
from bot.queries import stop_reasons
from bot.service import KeyturnService
from bot.slack import replies
from bot.slack.blocks import Message
from bot.slack.parsing import TypedText

_EVERYTHING_WORDS = frozenset({"all", "everything"})


class StopCommands:
    """Answers the commands that stop runs and ban people. Raises what the service raises."""

    def __init__(
        self, service: KeyturnService, database: Database, policies: PolicySource
    ) -> None:
        self._service, self._database, self._policies = service, database, policies

    def answer_stop_command(self, person: str, typed: TypedText) -> Message:
        """Stop one run by its number, or everything."""
        what = typed.words_after_first.strip().lower().removeprefix("#")
        if what in _EVERYTHING_WORDS:
            number = self._service.stop_everything(person=person, reason=typed.reason)
            runs = format_count(number, "run was", plural="runs were") if number else "no run was"
            return replies.build_text_reply(
                f"Everything is stopped; {runs} active. Another person resumes with "
                f"{replies.COMMAND} resume because …"
            )
        if not (what.isascii() and what.isdigit() and len(what) <= 9):
            usage = f"{replies.COMMAND} stop"
            raise InvalidRequestError(
                f"the run number is missing: type {usage} N, or {usage} all because …"
            )
        run = self._service.stop_run(int(what), person=person, reason=typed.reason)
        result = run.summary if run.is_ended else "It ends before its next step."
        return replies.build_text_reply(f"You stopped run {run.id}. {result}")

    def answer_resume_command(self, person: str, typed: TypedText) -> Message:
        """Lift the stop of everything."""
        self._service.resume_everything(person=person, reason=_get_reason(typed))
        return replies.build_text_reply("Runs can start again. Request again what was stopped.")

    def answer_ban_command(self, person: str, typed: TypedText) -> Message:
        """Ban a person."""
        who = self._parse_person(typed)
        self._service.ban_person(who, banned_by=person, reason=typed.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is banned: their sessions have ended, and their API tokens are revoked for "
            f"good. Another person lifts the ban with {replies.COMMAND} unban {who} because …"
        )

    def answer_unban_command(self, person: str, typed: TypedText) -> Message:
        """Lift a ban."""
        who = self._parse_person(typed)
        self._service.unban_person(who, unbanned_by=person, reason=typed.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is no longer banned and can sign in again. Their old API tokens stay "
            "revoked: they create new ones on the Tokens page."
        )

    def describe_stop_of_everything(self) -> str:
        """Return a sentence with who stopped everything and why; "" if nothing is stopped."""
        with self._database.reading() as tx:
            stop = stops.get_stop_of_everything(tx)
        return (
            f"{stop_reasons.describe_stop_of_everything(stop, self._policies.get_policy())}."
            if stop
            else ""
        )

    def _parse_person(self, typed: TypedText) -> str:
        word = typed.words_after_first.strip().removeprefix("@")
        if not word or " " in word:
            raise InvalidRequestError(
                "the person is missing: type "
                f"{replies.COMMAND} {typed.first_word} PERSON because …"
            )
        return word.lower()


def _get_reason(typed: TypedText) -> str:
    return typed.reason or typed.words_after_first

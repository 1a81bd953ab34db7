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
from bot.slack.parsing import TypedCommand, parse_number

_EVERYTHING_WORDS = frozenset({"all", "everything"})


class StopCommands:
    """Answers the commands that stop runs and ban people. Raises what the service raises."""

    def __init__(
        self, service: KeyturnService, database: Database, policies: PolicySource
    ) -> None:
        self._service, self._database, self._policies = service, database, policies

    def answer_stop_command(self, command: TypedCommand) -> Message:
        """Stop one run by its number, or everything."""
        if command.rest.lower() in _EVERYTHING_WORDS:
            number = self._service.stop_everything(person=command.person, reason=command.reason)
            runs = format_count(number, "run was", plural="runs were") if number else "no run was"
            return replies.build_text_reply(
                f"Everything is stopped; {runs} active. Another person resumes with "
                f"{replies.COMMAND} resume because …"
            )
        run_number = parse_number(command.rest)
        if run_number is None:
            usage = f"{replies.COMMAND} stop"
            raise InvalidRequestError(
                f"the run number is missing: type {usage} N, or {usage} all because …"
            )
        run = self._service.stop_run(run_number, person=command.person, reason=command.reason)
        result = run.summary if run.is_ended else "It ends before its next step."
        return replies.build_text_reply(f"You stopped run {run.id}. {result}")

    def answer_resume_command(self, command: TypedCommand) -> Message:
        """Lift the stop of everything."""
        self._service.resume_everything(
            person=command.person, reason=command.reason or command.rest
        )
        return replies.build_text_reply("Runs can start again. Request again what was stopped.")

    def answer_ban_command(self, command: TypedCommand) -> Message:
        """Ban a person."""
        who = _parse_person(command)
        self._service.ban_person(who, banned_by=command.person, reason=command.reason)
        name = self._policies.get_policy().get_person_name(who)
        return replies.build_text_reply(
            f"{name} is banned: their sessions have ended, and their API tokens are revoked for "
            f"good. Another person lifts the ban with {replies.COMMAND} unban {who} because …"
        )

    def answer_unban_command(self, command: TypedCommand) -> Message:
        """Lift a ban."""
        who = _parse_person(command)
        self._service.unban_person(who, unbanned_by=command.person, reason=command.reason)
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


def _parse_person(command: TypedCommand) -> str:
    word = command.rest.removeprefix("@")
    if not word or " " in word:
        raise InvalidRequestError(
            f"the person is missing: type {replies.COMMAND} {command.word} PERSON because …"
        )
    return word.lower()

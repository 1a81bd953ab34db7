"""Brakes: stopping runs or everything, and shutting people out, from chat."""

from bot.db import stops
from bot.db.database import Database
from bot.model.text import counted
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import Message
from bot.slack.parsing import TypedText
from bot.workflow import stop_reasons
from bot.workflow.context import Policies
from bot.workflow.requests import InvalidRequest

_ALL = frozenset({"all", "everything"})


class Brakes:
    def __init__(self, workflow: Workflow, database: Database, policies: Policies) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies

    def stop(self, person: str, said: TypedText) -> Message:
        """Stop one run by its number, or everything."""
        what = said.rest.strip().lower().removeprefix("#")
        if what in _ALL:
            number = self._workflow.stop_all(person=person, why=said.reason)
            runs = f"{counted(number, 'run')} had not ended" if number else "no run was under way"
            return replies.reply_text(
                f"Everything is stopped; {runs}. Somebody else lets it go on with "
                f"{replies.COMMAND} resume because …"
            )
        if not (what.isascii() and what.isdigit() and len(what) <= 9):
            typed = f"{replies.COMMAND} stop"
            raise InvalidRequest(f"which run? Type {typed} N, or {typed} all because …")
        run = self._workflow.stop(int(what), person=person, why=said.reason)
        how = run.summary if run.over else "It ends before its next step."
        return replies.reply_text(f"You stopped run {run.id}. {how}")

    def resume(self, person: str, said: TypedText) -> Message:
        self._workflow.resume(person=person, why=_why(said))
        return replies.reply_text("Everything may go on. What was stopped is asked for anew.")

    def ban(self, person: str, said: TypedText) -> Message:
        who = self._whom(said)
        self._workflow.ban(who, by=person, why=said.reason)
        name = self._policies.current().name_person(who)
        return replies.reply_text(
            f"{name} is shut out: their sessions have ended, and their tokens are revoked for "
            f"good. Somebody else takes it back with {replies.COMMAND} unban {who} because …"
        )

    def unban(self, person: str, said: TypedText) -> Message:
        who = self._whom(said)
        self._workflow.unban(who, by=person, why=said.reason)
        name = self._policies.current().name_person(who)
        return replies.reply_text(
            f"{name} is let in again, and signs in anew. The tokens they had stay revoked: they "
            "make new ones on the page Tokens."
        )

    def standing(self) -> str:
        """Say that everything is stopped, by whom and why; "" if it is not."""
        with self._database.reading() as tx:
            held = stops.get_stop_of_everything(tx)
        return (
            f"{stop_reasons.describe_stop_of_everything(held, self._policies.current())}."
            if held
            else ""
        )

    def _whom(self, said: TypedText) -> str:
        word = said.rest.strip().removeprefix("@")
        if not word or " " in word:
            raise InvalidRequest(f"whom? Type {replies.COMMAND} {said.first} PERSON because …")
        return word.lower()


def _why(said: TypedText) -> str:
    return said.reason or said.rest

"""What an owner gives out of hand, in chat: delegations, standing grants, and other values."""

from collections.abc import Sequence

from bot.db import delegations, grants
from bot.db.database import Database, Transaction
from bot.db.delegations import Delegation
from bot.model import request_form
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import (
    Message,
    bold,
    code,
    context,
    line,
    mrkdwn,
    notification,
    rich,
    when,
    words,
)
from bot.slack.parsing import TypedText
from bot.workflow import grant_rules, grant_words
from bot.workflow.context import Policies
from bot.workflow.requests import InvalidRequest

_MOST = 15
_ENDS = frozenset({"end", "revoke", "stop"})


class Mandates:
    """Answers what is typed about them; each changes nothing but the words' own subject."""

    def __init__(self, workflow: Workflow, database: Database, policies: Policies) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies

    def delegate(self, person: str, said: TypedText, zone: str) -> Message:
        """`delegate to ada until friday`, `delegate end 3`, or alone: list them."""
        number = _to_end(said.rest)
        if not said.rest:
            return self._delegations(person)
        if number is not None:
            ended = self._workflow.mandates.end_delegation(number, person=person, door="slack")
            return replies.reply_text(f"Delegation {ended.id} has ended.")
        wanted = grant_words.parse_delegation(said.rest, now=self._now(), zone=zone)
        made = self._workflow.mandates.delegate(
            person=person,
            to=wanted.delegate,
            ends=wanted.ends,
            area=wanted.area,
            reason=said.reason,
            door="slack",
        )
        told = f"{self._name(made.delegate)} decides in your stead {self._where(made.area)}."
        return _until(told, made.ends, f"{replies.COMMAND} delegate end {made.id}")

    def grant(self, person: str, said: TypedText, zone: str) -> Message:
        """`grant dora abusers clear lb* 5 an hour until 18:00`, `grant end 3`, or alone: list."""
        number = _to_end(said.rest)
        if not said.rest:
            return self._grants(person)
        if number is not None:
            ended = self._workflow.mandates.end_grant(number, person=person, door="slack")
            return replies.reply_text(f"Grant {ended.id} has ended.")
        wanted = grant_words.parse_grant(said.rest, now=self._now(), zone=zone)
        made = self._workflow.mandates.grant(
            wanted, giver=person, reason=said.reason, door="slack"
        )
        told = (
            f"{self._name(made.person)} may have “{made.what}” done without an approval each "
            f"time, {made.an_hour} an hour."
        )
        return _until(told, made.ends, f"{replies.COMMAND} grant end {made.id}")

    def counter(self, person: str, said: TypedText) -> Message | None:
        """`counter 12 table=http`: the card of the new run says the rest."""
        number, rest = _number(said)
        if not rest:
            raise InvalidRequest(
                f"which values? Type {replies.COMMAND} counter {number} field=value …"
            )
        run = self._workflow.counter(
            number,
            person=person,
            changes=grant_words.parse_changes(request_form.split_words(rest)),
            reason=said.reason,
        )
        return replies.reply_text(f"You propose “{run.title}” as run {run.id}.")

    def accept(self, person: str, said: TypedText) -> Message:
        """`accept 13 1234567890`: the ten digits are those of the plan that is offered."""
        number, digest = _number(said)
        if len(digest) < 10:
            raise InvalidRequest(
                "give the ten digits of the plan that the card shows: type "
                f"{replies.COMMAND} accept {number} PLAN"
            )
        self._workflow.accept(number, person=person, digest=digest.lower())
        return replies.reply_text(f"You accepted run {number}.")

    def _delegations(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = [one for one in delegations.list_delegations_of(tx, person) if _holds(one, tx)]
        if not found:
            return replies.reply_text(
                "Nobody decides in your stead, and you in nobody's. To change that, type "
                f"{replies.COMMAND} {grant_words.DELEGATE}"
            )
        lines = [self._told(one) for one in found[:_MOST]]
        return _listed("Who decides in whose stead", lines, f"{replies.COMMAND} delegate end N")

    def _told(self, one: Delegation) -> str:
        who, whose = self._name(one.delegate), self._name(one.delegator)
        return (
            mrkdwn(f"{one.id}. {who} for {whose} {self._where(one.area)}") + f", {_to(one.ends)}"
        )

    def _grants(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = [one for one in grants.list_grants_of(tx, person) if one.holds(tx.now)]
            left = {one.id: grant_rules.count_uses_left(tx, one) for one in found}
        if not found:
            return replies.reply_text(
                "There is no grant to you or by you. To give one, type "
                f"{replies.COMMAND} {grant_words.GRANT}"
            )
        lines = [
            mrkdwn(
                f"{one.id}. {self._name(one.person)}: {one.what}, {left[one.id]} of "
                f"{one.an_hour} left this hour, by {self._name(one.giver)}"
            )
            + f", {_to(one.ends)}"
            for one in found[:_MOST]
        ]
        return _listed("Granted without an approval", lines, f"{replies.COMMAND} grant end N")

    def _name(self, person: str) -> str:
        return self._policies.current().name_person(person)

    def _where(self, area: str) -> str:
        return (
            f"in {self._policies.current().titles([area])}" if area else "in every area of theirs"
        )

    def _now(self) -> int:
        with self._database.reading() as tx:
            return tx.now


def _holds(one: Delegation, tx: Transaction) -> bool:
    return one.holds(area=one.area, now=tx.now)


def _to(ends: int) -> str:
    return f"until {when(ends)}"


def _until(told: str, ends: int, undo: str) -> Message:
    parts = [rich(line(words(told))), context(f"{_to(ends)} · {mrkdwn(undo)} ends it before")]
    return Message(notification(told), parts)


def _listed(title: str, lines: Sequence[str], how: str) -> Message:
    end = line(words("End one: "), code(how))
    return Message(title, [rich(line(bold(title))), context("\n".join(lines)), rich(end)])


def _to_end(rest: str) -> int | None:
    first, _, number = rest.lower().partition(" ")
    number = number.strip().removeprefix("#")
    if first in _ENDS and number.isascii() and number.isdecimal() and len(number) <= 9:
        return int(number)
    return None


def _number(said: TypedText) -> tuple[int, str]:
    first, _, rest = said.rest.partition(" ")
    digits = first.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise InvalidRequest(f"which run? Type {replies.usage_of(said.first)}")
    return int(digits), rest.strip()

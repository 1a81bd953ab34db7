"""What an owner gives out of hand, in chat: delegations, standing grants, and other values."""

from collections.abc import Sequence

from bot.db import delegations, grants
from bot.db.database import Database, Transaction
from bot.db.delegations import Delegation
from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.policy import PolicySource
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import (
    Message,
    bold,
    code,
    context,
    escape_mrkdwn,
    format_date,
    format_notification,
    rich_text,
    rich_text_section,
    text_element,
)
from bot.slack.parsing import TypedText
from bot.workflow import grant_rules, grant_words

_MAX_LISTED = 15
_END_WORDS = frozenset({"end", "revoke", "stop"})


class DelegationCommands:
    """Answers what is typed about them; each changes nothing but the words' own subject."""

    def __init__(self, workflow: Workflow, database: Database, policies: PolicySource) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies

    def answer_delegate_command(self, person: str, said: TypedText, zone: str) -> Message:
        """`delegate to ada until friday`, `delegate end 3`, or alone: list them."""
        number = _parse_number_to_end(said.words_after_first)
        if not said.words_after_first:
            return self._list_delegations(person)
        if number is not None:
            ended = self._workflow.delegations_and_grants.end_delegation(
                number, person=person, source="slack"
            )
            return replies.build_text_reply(f"Delegation {ended.id} has ended.")
        wanted = grant_words.parse_delegation(
            said.words_after_first, now=self._get_now(), zone=zone
        )
        made = self._workflow.delegations_and_grants.create_delegation(
            delegator=person,
            delegate=wanted.delegate,
            ends_at=wanted.ends_at,
            area=wanted.area,
            reason=said.reason,
            source="slack",
        )
        told = (
            f"{self._get_person_name(made.delegate)} decides in your stead "
            f"{self._describe_area(made.area)}."
        )
        return _build_reply(told, made.ends_at, f"{replies.COMMAND} delegate end {made.id}")

    def answer_grant_command(self, person: str, said: TypedText, zone: str) -> Message:
        """`grant dora abusers clear lb* 5 an hour until 18:00`, `grant end 3`, or alone: list."""
        number = _parse_number_to_end(said.words_after_first)
        if not said.words_after_first:
            return self._list_grants(person)
        if number is not None:
            ended = self._workflow.delegations_and_grants.revoke_grant(
                number, person=person, source="slack"
            )
            return replies.build_text_reply(f"Grant {ended.id} has ended.")
        wanted = grant_words.parse_grant(said.words_after_first, now=self._get_now(), zone=zone)
        made = self._workflow.delegations_and_grants.create_grant(
            wanted, granted_by=person, reason=said.reason, source="slack"
        )
        told = (
            f"{self._get_person_name(made.person)} may have “{made.what}” done without an "
            "approval each "
            f"time, {made.per_hour} an hour."
        )
        return _build_reply(told, made.ends_at, f"{replies.COMMAND} grant end {made.id}")

    def propose_values(self, person: str, said: TypedText) -> Message | None:
        """`counter 12 table=http`: the card of the new run says the rest."""
        number, rest = _parse_run_number(said)
        if not rest:
            raise InvalidRequestError(
                f"which values? Type {replies.COMMAND} counter {number} field=value …"
            )
        run = self._workflow.propose_values(
            number,
            person=person,
            changed_values=grant_words.parse_field_values(request_form.split_words(rest)),
            reason=said.reason,
        )
        return replies.build_text_reply(f"You propose “{run.title}” as run {run.id}.")

    def accept_proposal(self, person: str, said: TypedText) -> Message:
        """`accept 13 1234567890`: the ten digits are those of the plan that is offered."""
        number, digest = _parse_run_number(said)
        if len(digest) < 10:
            raise InvalidRequestError(
                "give the ten digits of the plan that the card shows: type "
                f"{replies.COMMAND} accept {number} PLAN"
            )
        self._workflow.accept_proposal(number, person=person, digest=digest.lower())
        return replies.build_text_reply(f"You accepted run {number}.")

    def _list_delegations(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = [
                one
                for one in delegations.list_delegations_of(tx, person)
                if _is_delegation_active(one, tx)
            ]
        if not found:
            return replies.build_text_reply(
                "Nobody decides in your stead, and you in nobody's. To change that, type "
                f"{replies.COMMAND} {grant_words.DELEGATION_SYNTAX}"
            )
        lines = [self._format_delegation(one) for one in found[:_MAX_LISTED]]
        return _build_list(
            "Who decides in whose stead", lines, f"{replies.COMMAND} delegate end N"
        )

    def _format_delegation(self, delegation: Delegation) -> str:
        who, whose = (
            self._get_person_name(delegation.delegate),
            self._get_person_name(delegation.delegator),
        )
        return (
            escape_mrkdwn(
                f"{delegation.id}. {who} for {whose} {self._describe_area(delegation.area)}"
            )
            + f", {_format_end(delegation.ends_at)}"
        )

    def _list_grants(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = [one for one in grants.list_grants_of(tx, person) if one.holds(tx.now)]
            left = {one.id: grant_rules.count_uses_left(tx, one) for one in found}
        if not found:
            return replies.build_text_reply(
                "There is no grant to you or by you. To give one, type "
                f"{replies.COMMAND} {grant_words.GRANT_SYNTAX}"
            )
        lines = [
            escape_mrkdwn(
                f"{one.id}. {self._get_person_name(one.person)}: {one.what}, {left[one.id]} of "
                f"{one.per_hour} left this hour, by {self._get_person_name(one.granted_by)}"
            )
            + f", {_format_end(one.ends_at)}"
            for one in found[:_MAX_LISTED]
        ]
        return _build_list("Granted without an approval", lines, f"{replies.COMMAND} grant end N")

    def _get_person_name(self, person: str) -> str:
        return self._policies.get_policy().get_person_name(person)

    def _describe_area(self, area: str) -> str:
        return (
            f"in {self._policies.get_policy().join_area_titles([area])}"
            if area
            else "in every area of theirs"
        )

    def _get_now(self) -> int:
        with self._database.reading() as tx:
            return tx.now


def _is_delegation_active(delegation: Delegation, tx: Transaction) -> bool:
    return delegation.holds(area=delegation.area, now=tx.now)


def _format_end(ends_at: int) -> str:
    return f"until {format_date(ends_at)}"


def _build_reply(text: str, ends_at: int, end_command: str) -> Message:
    parts = [
        rich_text(rich_text_section(text_element(text))),
        context(f"{_format_end(ends_at)} · {escape_mrkdwn(end_command)} ends it before"),
    ]
    return Message(format_notification(text), parts)


def _build_list(title: str, lines: Sequence[str], end_command: str) -> Message:
    end = rich_text_section(text_element("End one: "), code(end_command))
    return Message(
        title,
        [rich_text(rich_text_section(bold(title))), context("\n".join(lines)), rich_text(end)],
    )


def _parse_number_to_end(rest: str) -> int | None:
    first, _, number = rest.lower().partition(" ")
    number = number.strip().removeprefix("#")
    if first in _END_WORDS and number.isascii() and number.isdecimal() and len(number) <= 9:
        return int(number)
    return None


def _parse_run_number(said: TypedText) -> tuple[int, str]:
    first, _, rest = said.words_after_first.partition(" ")
    digits = first.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise InvalidRequestError(
            f"which run? Type {replies.format_command_usage(said.first_word)}"
        )
    return int(digits), rest.strip()

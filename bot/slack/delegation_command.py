"""`/keyturn delegate`, `grant`, `counter` and `accept`."""

from collections.abc import Sequence

from bot.db import delegations, grants
from bot.db.database import Database
from bot.db.delegations import Delegation
from bot.model import grant_words, request_form
from bot.model.errors import InvalidRequestError
from bot.policy import PolicySource
from bot.service import KeyturnService
from bot.slack import replies
from bot.slack.blocks import (
    Message,
    actions,
    bold,
    code,
    context,
    escape_mrkdwn,
    format_date,
    format_notification,
    paragraph,
    rich_text,
    rich_text_section,
)
from bot.slack.buttons import CommandButton, Missing
from bot.slack.parsing import TypedCommand, parse_number

_MAX_LISTED, _MAX_BUTTONS = 15, 3
_END_WORDS = frozenset({"end", "revoke", "stop"})


class DelegationCommands:
    """Answers commands about delegations, standing grants and counter-proposals."""

    def __init__(
        self, service: KeyturnService, database: Database, policies: PolicySource
    ) -> None:
        self._service, self._database, self._policies = service, database, policies

    def answer_delegate_command(self, command: TypedCommand) -> Message:
        """Answer `delegate to ada until friday`, `delegate end 3` or, to list, `delegate`."""
        number = _parse_number_to_end(command.rest)
        if not command.rest:
            return self._list_delegations(command.person)
        if number is not None:
            ended = self._service.delegations.end_delegation(
                number, person=command.person, source="slack"
            )
            return replies.build_text_reply(f"Delegation {ended.id} has ended.")
        wanted = grant_words.parse_delegation(command.rest, now=self._get_now(), zone=command.zone)
        made = self._service.delegations.create_delegation(
            delegator=command.person,
            delegate=wanted.delegate,
            ends_at=wanted.ends_at,
            area=wanted.area,
            reason=command.reason,
            source="slack",
        )
        text = (
            f"{self._get_person_name(made.delegate)} can now decide on your behalf "
            f"{self._describe_area(made.area)}."
        )
        return _build_reply(text, made.ends_at, f"{replies.COMMAND} delegate end {made.id}")

    def answer_grant_command(self, command: TypedCommand) -> Message:
        """Answer `grant dora abusers clear lb* 5 an hour until 18:00`, `grant end 3`, `grant`."""
        number = _parse_number_to_end(command.rest)
        if not command.rest:
            return self._list_grants(command.person)
        if number is not None:
            ended = self._service.grants.revoke_grant(
                number, person=command.person, source="slack"
            )
            return replies.build_text_reply(f"Grant {ended.id} has ended.")
        wanted = grant_words.parse_grant(command.rest, now=self._get_now(), zone=command.zone)
        made = self._service.grants.create_grant(
            wanted, granted_by=command.person, reason=command.reason, source="slack"
        )
        text = (
            f"Standing grant: {self._get_person_name(made.person)} can run “{made.what}” without "
            f"approval, up to {made.per_hour} an hour."
        )
        return _build_reply(text, made.ends_at, f"{replies.COMMAND} grant end {made.id}")

    def propose_values(self, command: TypedCommand) -> Message | None:
        """Answer `counter 12 table=http`; the card of the new run shows the result."""
        number, rest = command.parse_run_number()
        if not rest:
            raise InvalidRequestError(
                f"the values are missing: type {replies.COMMAND} counter {number} field=value …"
            )
        run = self._service.propose_values(
            number,
            person=command.person,
            changed_values=grant_words.parse_field_values(request_form.split_words(rest)),
            reason=command.reason,
        )
        return replies.build_text_reply(f"You proposed “{run.title}” as run {run.id}.")

    def accept_proposal(self, command: TypedCommand) -> Message:
        """Answer `accept 13 1234567890`: a run and the first ten characters of its digest."""
        number, digest = command.parse_run_number()
        if len(digest) < 10:
            raise InvalidRequestError(
                "the plan is missing: copy its ten characters from Details and type "
                f"{replies.COMMAND} accept {number} PLAN"
            )
        self._service.accept_proposal(number, person=command.person, digest=digest.lower())
        return replies.build_text_reply(f"You accepted run {number}.")

    def _list_delegations(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = delegations.list_active_delegations_of(tx, person)
        if not found:
            return replies.build_text_reply(
                "No one decides on your behalf, and you decide on no one's. To delegate, type "
                f"{replies.COMMAND} {grant_words.DELEGATION_SYNTAX}"
            )
        lines = [self._format_delegation(one) for one in found[:_MAX_LISTED]]
        numbers = [one.id for one in found]
        return _build_list("Delegations", lines, "delegate end", numbers)

    def _format_delegation(self, delegation: Delegation) -> str:
        delegate = self._get_person_name(delegation.delegate)
        delegator = self._get_person_name(delegation.delegator)
        return (
            escape_mrkdwn(
                f"{delegation.id}. {delegate} for {delegator} "
                f"{self._describe_area(delegation.area)}"
            )
            + f", {_format_end(delegation.ends_at)}"
        )

    def _list_grants(self, person: str) -> Message:
        with self._database.reading() as tx:
            found = grants.list_newest_active_grants(tx, person)
            left = {one.id: grants.count_uses_left(tx, one) for one in found}
        if not found:
            return replies.build_text_reply(
                "You have received and given no standing grants. To give one, type "
                f"{replies.COMMAND} {grant_words.GRANT_SYNTAX}"
            )
        lines = [
            escape_mrkdwn(
                f"{one.id}. {self._get_person_name(one.person)}: {one.what}, {left[one.id]} of "
                f"{one.per_hour} left this hour, granted by "
                f"{self._get_person_name(one.granted_by)}"
            )
            + f", {_format_end(one.ends_at)}"
            for one in found[:_MAX_LISTED]
        ]
        return _build_list("Standing grants", lines, "grant end", [one.id for one in found])

    def _get_person_name(self, person: str) -> str:
        return self._policies.get_policy().get_person_name(person)

    def _describe_area(self, area: str) -> str:
        return (
            f"in {self._policies.get_policy().join_area_titles([area])}"
            if area
            else "in every area"
        )

    def _get_now(self) -> int:
        with self._database.reading() as tx:
            return tx.now


def _format_end(ends_at: int) -> str:
    return f"until {format_date(ends_at)}"


def _build_reply(text: str, ends_at: int, end_command: str) -> Message:
    parts = [
        paragraph(text),
        context(f"{_format_end(ends_at)} · {escape_mrkdwn(end_command)} ends it earlier"),
    ]
    return Message(format_notification(text), parts)


def _build_list(
    title: str, lines: Sequence[str], end_command: str, numbers: Sequence[int]
) -> Message:
    end = rich_text_section("To end one: ", code(f"{replies.COMMAND} {end_command} N"))
    buttons = [
        CommandButton(f"End {number}", f"{end_command} {number}", Missing.NOTHING).build(n=n)
        for n, number in enumerate(numbers[:_MAX_BUTTONS])
    ]
    return Message(
        title,
        [
            *(paragraph(bold(title)), context("\n".join(lines)), rich_text(end)),
            actions("end", *buttons),
        ],
    )


def _parse_number_to_end(rest: str) -> int | None:
    first, _, number = rest.partition(" ")
    return parse_number(number) if first.lower() in _END_WORDS else None

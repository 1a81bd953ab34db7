"""`/keyturn freeze`: freezes of the policy and ordered ones; order one, and end it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from bot.db.database import Database, Transaction
from bot.features.freezes.actions import FreezeActions
from bot.features.freezes.facts import apply_freezes
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.model.times import parse_deadline, to_datetime
from bot.policy import Policy
from bot.policy.freezes import FreezePeriod
from bot.queries.digest import DigestSection
from bot.service import KeyturnService
from bot.slack.blocks import (
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    date_element,
    format_notification,
    paragraph,
    rich_text,
    rich_text_section,
)
from bot.slack.buttons import CommandButton
from bot.slack.features import AnswerCommand, ChatFeatures, ChatWords
from bot.slack.parsing import TypedCommand, parse_number
from bot.slack.replies import COMMAND

_UPCOMING_PERIOD = timedelta(days=30)
_MAX_LISTED, _MAX_BUTTONS = 20, 3
_USAGE = f"{COMMAND} freeze HOSTS until TIME because …"
_HELP = (
    ("freezes", "active and upcoming freezes"),
    ("freeze HOSTS until TIME because …", "hold changes there until then"),
    ("freeze end N", "end a freeze that was ordered"),
)


def _build_handlers(service: KeyturnService, database: Database) -> Mapping[str, AnswerCommand]:
    answer = FreezeCommands(service, database).answer_freeze_command
    return {"freeze": answer, "freezes": answer}


def build_handover_section(
    tx: Transaction, policy: Policy, _areas: set[str]
) -> Sequence[DigestSection]:
    """Return the active freezes, for a person who comes on duty."""
    active = [one for one in policy.list_freeze_periods(to_datetime(tx.now)) if one.is_active]
    lines = [f"{one.name} {one.sentence}" for one in active]
    return [DigestSection("Freezes", lines, command="freezes")]


CHAT = ChatFeatures(
    words=[ChatWords(_HELP, _build_handlers, frozenset({"freeze", "freezes"}))],
    handover_sections=[build_handover_section],
)


class FreezeCommands:
    """Answers commands about freezes."""

    def __init__(self, service: KeyturnService, database: Database) -> None:
        self._service, self._database = service, database

    def answer_freeze_command(self, command: TypedCommand) -> Message:
        """List freezes, order one, or end one. Raises what the service raises."""
        with self._database.reading(command.view_rights) as tx:
            policy, now = apply_freezes(tx, command.policy), tx.now
        if not command.rest or command.rest.lower() == "list":
            return render_freezes(policy, now=now)
        first, _, rest = command.rest.partition(" ")
        if first.lower() in {"end", "lift"}:
            return self._end_freeze(command, rest)
        return self._order_freeze(command, now)

    def _order_freeze(self, command: TypedCommand, now: int) -> Message:
        what, until, when = command.rest.partition(" until ")
        if not until:
            raise InvalidRequestError(f"the time is missing: type {_USAGE}")
        if not command.reason:
            raise InvalidRequestError(f"the reason is missing: type {_USAGE}")
        row = self._service.bind(FreezeActions).order_freeze(
            ",".join(what.replace(",", " ").split()),
            person=command.person,
            until=parse_deadline(when, now=now, zone=command.zone),
            reason=command.reason,
            source="slack",
        )
        return Message(
            format_notification(f"You froze {row.what}"),
            [
                paragraph(
                    *("You froze ", bold(row.what), " until "),
                    *(date_element(to_datetime(row.ends_at)), ": checks still run, and approved "),
                    *("changes wait. End it before with ", code(f"{COMMAND} freeze end {row.id}")),
                )
            ],
        )

    def _end_freeze(self, command: TypedCommand, rest: str) -> Message:
        number = parse_number(rest)
        if number is None:
            raise InvalidRequestError(
                f"the number is missing: type {COMMAND} freeze end N; {COMMAND} freeze lists them"
            )
        row = self._service.bind(FreezeActions).end_freeze(
            number,
            person=command.person,
            reason=command.reason,
            source="slack",
        )
        text = f"You ended the freeze of {row.what}: what it held starts within seconds."
        return Message(format_notification(text), [paragraph(text)])


def render_freezes(policy: Policy, *, now: int) -> Message:
    """List the active freezes, and those that begin within 30 days, in the words of the pages."""
    current_time = to_datetime(now)
    periods = [
        one
        for one in policy.list_freeze_periods(current_time)
        if one.begins_at - current_time < _UPCOMING_PERIOD
    ]
    if not periods:
        text = "No freeze is active or begins within 30 days."
        return Message(text, [paragraph(text)])
    active = [one for one in periods if one.is_active]
    upcoming = [one for one in periods if not one.is_active]
    parts = [rich_text_section(bold("Active freezes" if active else "No freeze is active."))]
    parts += [_list_periods(active)] if active else []
    if upcoming:
        parts += [rich_text_section(bold("Upcoming")), _list_periods(upcoming)]
    parts.append(
        rich_text_section(
            "Approved changes wait until a freeze ends. In an emergency: ",
            code(f"{COMMAND} break-glass WORDS because …"),
        )
    )
    ordered = [one.order.number for one in active if one.order is not None]
    buttons = [
        CommandButton(f"End freeze {number}", f"freeze end {number}").build(n=n)
        for n, number in enumerate(ordered[:_MAX_BUTTONS])
    ]
    row = [actions("freezes", *buttons)] if buttons else []
    counts = _format_freeze_counts(len(active), len(upcoming))
    return Message(counts, [rich_text(*parts), *row])


def _list_periods(periods: Sequence[FreezePeriod]) -> Element:
    return bullet_list(*(_render_period(one) for one in periods[:_MAX_LISTED]))


def _render_period(period: FreezePeriod) -> list[Inline]:
    number = [f"{period.order.number} "] if period.order is not None else []
    return [*number, bold(period.name), f" {period.sentence}"]


def _format_freeze_counts(active_count: int, upcoming_count: int) -> str:
    active = format_count(active_count, "active freeze") if active_count else "No active freeze"
    return f"{active}, {upcoming_count} upcoming" if upcoming_count else active

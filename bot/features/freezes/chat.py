"""`/keyturn freeze`: freezes of the policy and ordered ones; order one, and end it."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from bot.db.database import Database
from bot.features.freezes.actions import FreezeActions
from bot.features.freezes.facts import apply_freezes
from bot.model.errors import InvalidRequestError
from bot.model.text import format_count
from bot.model.times import parse_deadline, to_datetime
from bot.policy import Policy
from bot.policy.freezes import Freeze, OrderedFreeze
from bot.service import KeyturnService
from bot.slack.blocks import (
    Inline,
    Message,
    bold,
    bullet_list,
    code,
    date_element,
    format_notification,
    paragraph,
    rich_text,
    rich_text_section,
)
from bot.slack.features import AnswerCommand, ChatFeatures, ChatWords
from bot.slack.parsing import TypedCommand, parse_number
from bot.slack.replies import COMMAND

_UPCOMING_PERIOD = timedelta(days=30)
_MAX_LISTED = 20
_USAGE = f"{COMMAND} freeze HOSTS until TIME because …"
_HELP = (
    ("freezes", "active and upcoming freezes"),
    ("freeze HOSTS until TIME because …", "hold changes there until then"),
    ("freeze end N", "end a freeze that was ordered"),
)


def _build_handlers(service: KeyturnService, database: Database) -> Mapping[str, AnswerCommand]:
    answer = FreezeCommands(service, database).answer_freeze_command
    return {"freeze": answer, "freezes": answer}


CHAT = ChatFeatures(words=[ChatWords(_HELP, _build_handlers)])


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
    """List the active freezes, and those that begin within 30 days."""
    current_time = to_datetime(now)
    found = [(one, one.get_current_or_next_period(current_time)) for one in policy.freezes.freezes]
    known = sorted(
        (
            (one, period)
            for one, period in found
            if period and period[0] - current_time < _UPCOMING_PERIOD
        ),
        key=lambda pair: pair[1],
    )
    active = [
        _render_freeze(policy, one, ends_at=end)
        for one, (begin, end) in known
        if begin <= current_time
    ]
    upcoming = [
        _render_freeze(policy, one, begins_at=begin, ends_at=end)
        for one, (begin, end) in known
        if begin > current_time
    ]
    if not known:
        text = "No freeze is active or begins within 30 days."
        return Message(text, [paragraph(text)])
    parts = [rich_text_section(bold("Active freezes" if active else "No freeze is active."))]
    parts += [bullet_list(*active[:_MAX_LISTED])] if active else []
    if upcoming:
        parts += [rich_text_section(bold("Upcoming")), bullet_list(*upcoming[:_MAX_LISTED])]
    parts.append(
        rich_text_section(
            "Approved changes wait until a freeze ends. In an emergency: ",
            code(f"{COMMAND} break-glass WORDS because …"),
        )
    )
    return Message(_format_freeze_counts(len(active), len(upcoming)), [rich_text(*parts)])


def _format_freeze_counts(active_count: int, upcoming_count: int) -> str:
    active = format_count(active_count, "active freeze") if active_count else "No active freeze"
    return f"{active}, {upcoming_count} upcoming" if upcoming_count else active


def _render_freeze(
    policy: Policy, freeze: Freeze, *, ends_at: datetime, begins_at: datetime | None = None
) -> list[Inline]:
    where = [policy.organisation.areas[name].title for name in freeze.areas] or ["every area"]
    number = f"{freeze.order.number} " if isinstance(freeze, OrderedFreeze) else ""
    parts = [number, bold(freeze.name), f": {', '.join(freeze.hosts or where)}, "]
    parts += ["from ", date_element(begins_at), " "] if begins_at else []
    parts += ["until ", date_element(ends_at)]
    parts += [f", {freeze.recurrence}"] if freeze.recurrence else []
    return parts + ([f"; except {', '.join(freeze.but)}"] if freeze.but else [])

"""`/keyturn schedule` and `schedules`: request, show, suspend, end and take over schedules."""

from collections.abc import Callable, Mapping, Sequence

from bot.db import runs
from bot.db.database import Database, Transaction
from bot.features.schedules import rows
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.rows import Fire, Schedule
from bot.model import request_form
from bot.model.request_form import InvalidValuesError
from bot.model.run import RequestOrigin, RequestTerms, Run
from bot.model.schedule import SETTING_HINTS, ScheduleState, parse_timing
from bot.model.text import format_count
from bot.service import KeyturnService
from bot.slack import replies
from bot.slack.blocks import (
    Block,
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    code,
    rich_text,
    rich_text_section,
)
from bot.slack.buttons import CommandButton, Missing, build_read_button
from bot.slack.features import AnswerCommand, ChatFeatures, ChatWords, HomeSection
from bot.slack.parsing import TypedCommand, parse_number
from connectors.visible_text import quote_text

_MAX_FIRES = 5
_MAX_LISTED, _MAX_BUTTONS = 30, 3
_USAGE = "schedule NAME cron=… [zone=…] -- WORDS HOST…"
_HELP = (
    ("schedules", "active and suspended schedules"),
    (
        "schedule NAME cron=… -- WORDS HOST…",
        "request a schedule; alone, its settings; schedule N shows one and how to end it",
    ),
)


def _build_handlers(service: KeyturnService, database: Database) -> Mapping[str, AnswerCommand]:
    commands = ScheduleCommands(service, database)
    return {
        "schedule": commands.answer_schedule_command,
        "schedules": commands.list_schedules,
    }


def _read_home_section(tx: Transaction) -> HomeSection | None:
    """List the next due times, at most one of each active schedule."""
    items = [
        [bold(each.timing.name), f" – {at} – ", code(f"{replies.COMMAND} schedule {each.id}")]
        for each in rows.list_schedules(tx, states=[ScheduleState.ACTIVE], most=_MAX_LISTED)
        for at in each.timing.cron_expression.format_due_times(tx.now, count=1)
    ]
    return HomeSection("Schedules", items) if items else None


def _is_quiet(tx: Transaction, run: Run) -> bool:
    """Return whether a schedule requested it and it ended like the previous time."""
    return bool(run.origin.schedule_id) and not rows.has_different_outcome(tx, run)


CHAT = ChatFeatures(
    words=[ChatWords(_HELP, _build_handlers, frozenset({"schedule", "schedules"}))],
    is_quiet=[_is_quiet],
    read_home_section=[_read_home_section],
)


class ScheduleCommands:
    """Answers commands about schedules, with None if the card that follows is the answer."""

    def __init__(self, service: KeyturnService, database: Database) -> None:
        self._service, self._database = service, database
        self._keeping = service.bind(ScheduleActions)
        self._actions: Mapping[str, Callable[[int, TypedCommand], Message | None]] = {
            "suspend": self._suspend_schedule,
            "resume": self._resume_schedule,
            "end": self._end_schedule,
            "take": self._take_over_schedule,
        }

    def list_schedules(self, command: TypedCommand) -> Message:
        """List the active and suspended schedules that the person may view."""
        with self._database.reading(command.view_rights) as tx:
            found = rows.list_shown_schedules(tx, ended=())
            requested_runs = {each.id: runs.get_run(tx, each.run) for each in found[:_MAX_LISTED]}
            missed = rows.count_missed(tx)
        if not found:
            return replies.build_text_reply(
                f"No schedules yet. To request one, type {replies.COMMAND} {_USAGE}"
            )
        items = [
            _render_schedule_entry(each, requested_runs[each.id], missed.get(each.id, 0))
            for each in found[:_MAX_LISTED]
        ]
        one = rich_text_section("Details: ", code(f"{replies.COMMAND} schedule N"))
        shown = [
            build_read_button(f"{each.id} {each.timing.name}", f"schedule {each.id}", n=n)
            for n, each in enumerate(found[:_MAX_BUTTONS])
        ]
        return Message(
            format_count(len(found), "schedule"),
            [rich_text(bullet_list(*items), one), actions("schedules", *shown)],
        )

    def answer_schedule_command(self, command: TypedCommand) -> Message | None:
        """Run the command. Raises RequestSyntaxError, and what the service raises."""
        first, _, rest = command.rest.partition(" ")
        if not first:
            return _render_help()
        action, typed_number = self._actions.get(rest.strip().lower()), first
        if first.lower() in self._actions:
            action, typed_number = self._actions[first.lower()], rest
        number = parse_number(typed_number)
        if number is None:
            return self._request_schedule(command)
        return action(number, command) if action else self._show_schedule(number, command)

    def _request_schedule(self, command: TypedCommand) -> Message | None:
        before, dashes, after = _split_at_dashes(command.rest)
        if not dashes or not before or not after:
            raise request_form.RequestSyntaxError(f"type {replies.COMMAND} {_USAGE}")
        settings = dict(word.split("=", 1) for word in before[1:] if "=" in word)
        stray = [word for word in before[1:] if "=" not in word]
        if stray:
            raise request_form.RequestSyntaxError(
                f"{quote_text(stray[0])} is not a setting: put values with spaces in quotation "
                'marks, such as "monthly scrub" or cron="0 3 1 * *"'
            )
        channel = _get_shared_channel(command.origin)
        wanted = parse_timing(before[0], settings, zone="UTC", channel=channel)
        runbook, values = request_form.find_runbook(after)
        inventory = command.policy.inventory
        try:
            spelled, requests = request_form.parse_request_for_hosts(
                runbook, values, inventory.tags
            )
        except InvalidValuesError as problem:
            return replies.render_invalid_values(runbook, problem)
        run = self._service.request_on_hosts(
            requests,
            RequestTerms(command.person, command.origin, reason=command.reason, timing=wanted),
            host_pattern=spelled,
        )
        return replies.build_reply_if_ended(run)

    def _show_schedule(self, number: int, command: TypedCommand) -> Message:
        with self._database.reading(command.view_rights) as tx:
            schedule = rows.get_schedule(tx, number)
            run = runs.get_run(tx, schedule.run)
            fires = rows.list_fires(tx, number, most=_MAX_FIRES)
            missed, now = rows.count_missed(tx).get(number, 0), tx.now
        policy = command.policy
        parts: list[Element] = [
            rich_text_section(bold(f"Schedule {number}: {schedule.timing.name}")),
            rich_text_section(code(_format_request(run))),
            bullet_list(
                [schedule.timing.description],
                [f"Owner: {policy.get_person_name(schedule.owner)}"],
            ),
        ]
        if schedule.state is not ScheduleState.ACTIVE:
            parts.append(rich_text_section(bold(_describe_state(schedule))))
        else:
            upcoming = schedule.timing.cron_expression.format_due_times(now, count=_MAX_FIRES)
            parts += [
                rich_text_section(bold("Upcoming")),
                bullet_list(*([at] for at in upcoming)),
            ]
        if fires:
            parts += [
                rich_text_section(bold("Recent")),
                bullet_list(*([_describe_fire(schedule, one)] for one in fires)),
            ]
        if missed:
            parts.append(rich_text_section(_format_missed(missed)))
        row = _build_buttons(schedule, is_owner=schedule.owner == command.person)
        return Message(f"Schedule {number}", [rich_text(*parts), *row])

    def _suspend_schedule(self, number: int, command: TypedCommand) -> Message:
        self._keeping.suspend_schedule(number, person=command.person, reason=command.reason)
        return replies.build_text_reply(
            f"Schedule {number} is suspended. It does not run until it is resumed."
        )

    def _resume_schedule(self, number: int, command: TypedCommand) -> Message:
        resumed = self._keeping.resume_schedule(number, person=command.person)
        upcoming = resumed.timing.cron_expression.format_due_times(resumed.decided_until, count=1)
        return replies.build_text_reply(
            f"Schedule {number} is active. Next run: {''.join(upcoming)}."
        )

    def _end_schedule(self, number: int, command: TypedCommand) -> Message:
        self._keeping.end_schedule(number, person=command.person, reason=command.reason)
        return replies.build_text_reply(f"Schedule {number} has ended.")

    def _take_over_schedule(self, number: int, command: TypedCommand) -> Message | None:
        run = self._keeping.take_over_schedule(
            number, person=command.person, origin=command.origin, reason=command.reason
        )
        return replies.build_reply_if_ended(run)


def _build_buttons(schedule: Schedule, *, is_owner: bool) -> Sequence[Block]:
    """Return what can be done with a schedule that has not ended."""
    state, command = schedule.state, f"schedule {schedule.id}"
    if state is ScheduleState.ENDED:
        return []
    shown = {
        ScheduleState.ACTIVE: [CommandButton("Suspend", f"{command} suspend")],
        ScheduleState.SUSPENDED: [CommandButton("Resume", f"{command} resume", Missing.NOTHING)],
    }.get(state, [])
    shown.append(CommandButton("End", f"{command} end"))
    shown += [] if is_owner else [CommandButton("Take over", f"{command} take")]
    return [actions("schedule", *(one.build(n=n) for n, one in enumerate(shown)))]


def _split_at_dashes(text: str) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Split at `--`, which some phones replace by a long dash."""
    typed = request_form.split_words(text)
    for location, word in enumerate(typed):
        if word in {"--", "-"}:
            return typed[:location], True, typed[location + 1 :]
    return typed, False, ()


def _get_shared_channel(origin: RequestOrigin) -> str:
    """Return the channel of the request; "" for a private conversation."""
    return origin.channel if origin.channel.startswith("C") else ""


def _render_schedule_entry(schedule: Schedule, run: Run, missed_count: int) -> list[Inline]:
    missed = f"; {_format_missed(missed_count)}" * bool(missed_count)
    when = schedule.timing.cron_expression.description
    name, request = bold(f"{schedule.id} {schedule.timing.name}"), code(_format_request(run))
    return [name, " – ", request, f" – {when}; {_describe_state(schedule)}{missed}"]


def _format_missed(missed_count: int) -> str:
    return f"{missed_count} missed in {rows.MISSED_DAYS} days"


def _format_request(run: Run) -> str:
    return run.request or run.runbook


def _describe_state(schedule: Schedule) -> str:
    if schedule.state is not ScheduleState.ACTIVE:
        return f"{schedule.state}: {schedule.reason}" if schedule.reason else str(schedule.state)
    upcoming = schedule.timing.cron_expression.format_due_times(schedule.decided_until, count=1)
    return f"next {upcoming[0]}" if upcoming else "no upcoming run"


def _describe_fire(schedule: Schedule, fire: Fire) -> str:
    run = f", run {fire.run}" if fire.run else ""
    where = f" on {fire.host}" if fire.host else ""
    reason = f": {fire.reason}" if fire.reason else ""
    return (
        f"{schedule.timing.cron_expression.format_local_time(fire.due_at)}{where} – "
        f"{fire.outcome}{run}{reason}"
    )


def _render_help() -> Message:
    settings = [[code(f"{name}=…"), f" – {what}"] for name, what in SETTING_HINTS.items()]
    example = (
        f'{replies.COMMAND} schedule "monthly scrub" cron="0 3 1 * *" zone=Europe/Amsterdam '
        "-- zfs scrub start nas1 tank"
    )
    return Message(
        "Usage of schedule",
        [
            rich_text(
                rich_text_section(bold("Request a schedule")),
                rich_text_section(code(f"{replies.COMMAND} {_USAGE}")),
                bullet_list(*settings),
                rich_text_section("Example: ", code(example)),
            )
        ],
    )

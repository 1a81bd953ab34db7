"""Schedules in chat: ask for one, look at them, stop them, take them over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.db import runs, schedules
from bot.db.database import Database
from bot.db.schedules import Fire, Schedule, ScheduleState
from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.model.request_form import InvalidValuesError
from bot.model.run import RequestOrigin, Run
from bot.model.schedule import SETTING_HINTS, ScheduleError, parse_timing
from bot.model.text import format_count
from bot.policy import PolicySource
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import (
    Element,
    Message,
    bold,
    bullet_list,
    code,
    rich_text,
    rich_text_section,
    text_element,
)
from bot.slack.parsing import TypedText
from connectors.command import quote_text

_MAX_FIRES = 5
_MAX_LISTED = 30
_USAGE = "schedule NAME cron=… [zone=…] -- WORDS HOST…"


@dataclass(frozen=True)
class TypedScheduleCommand:
    """What stood behind the word `schedule`, and who typed it."""

    person: str
    origin: RequestOrigin
    typed_text: TypedText


class ScheduleCommands:
    """Answers what is typed about schedules. None as answer: the card that follows says it all."""

    def __init__(self, workflow: Workflow, database: Database, policies: PolicySource) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies
        self._actions: Mapping[str, Callable[[int, TypedScheduleCommand], Message | None]] = {
            "suspend": self._suspend_schedule,
            "resume": self._resume_schedule,
            "end": self._end_schedule,
            "take": self._take_over_schedule,
        }

    def list_schedules(self, person: str) -> Message:
        """List all that fire, and those that should and do not, as far as they may be viewed."""
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            found = [
                each
                for each in schedules.list_schedules(tx)
                if each.state is not ScheduleState.ENDED
            ]
            asked = {each.id: runs.get_run(tx, each.run) for each in found[:_MAX_LISTED]}
            missed = schedules.count_missed(tx)
        if not found:
            return replies.build_text_reply(
                f"There is no schedule yet. To ask for one, type {replies.COMMAND} {_USAGE}"
            )
        items = [
            _render_schedule_entry(each, asked[each.id], missed.get(each.id, 0))
            for each in found[:_MAX_LISTED]
        ]
        one = rich_text_section(
            text_element("All of one: "), code(f"{replies.COMMAND} schedule N")
        )
        return Message(format_count(len(found), "schedule"), [rich_text(bullet_list(*items), one)])

    def answer_schedule_command(self, command: TypedScheduleCommand) -> Message | None:
        """Do what was typed. Raises what the workflow raises, and forms.NotUnderstood."""
        first, _, rest = command.typed_text.words_after_first.partition(" ")
        if not first:
            return _render_help()
        act, digits = self._actions.get(rest.strip().lower()), first.removeprefix("#")
        if first.lower() in self._actions:
            act, digits = self._actions[first.lower()], rest.strip().removeprefix("#")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
            return self._request_schedule(command)
        return (
            act(int(digits), command) if act else self._show_schedule(int(digits), command.person)
        )

    def _request_schedule(self, command: TypedScheduleCommand) -> Message | None:
        before, dashes, after = _split_at_dashes(command.typed_text.words_after_first)
        if not dashes or not before or not after:
            raise request_form.RequestSyntaxError(f"type {replies.COMMAND} {_USAGE}")
        settings = dict(word.split("=", 1) for word in before[1:] if "=" in word)
        stray = [word for word in before[1:] if "=" not in word]
        if stray:
            raise request_form.RequestSyntaxError(
                f"{quote_text(stray[0])} belongs into quotation marks with its neighbours: "
                'such as "monthly scrub" or cron="0 3 1 * *"'
            )
        try:
            wanted = parse_timing(
                before[0], settings, zone="UTC", channel=_get_shared_channel(command.origin)
            )
        except ScheduleError as bad:
            raise InvalidRequestError(str(bad)) from None
        runbook, values = request_form.find_runbook(after)
        inventory = self._policies.get_policy().inventory
        try:
            spelled, requests = request_form.parse_request_for_hosts(
                runbook, values, inventory.tags
            )
        except InvalidValuesError as problem:
            return replies.render_invalid_values(runbook, problem)
        run = self._workflow.schedules.request_schedule(
            requests,
            host_pattern=spelled,
            person=command.person,
            origin=command.origin,
            timing=wanted,
            reason=command.typed_text.reason,
        )
        return replies.build_text_reply(f"{run.title}: {run.summary}") if run.is_ended else None

    def _show_schedule(self, number: int, person: str) -> Message:
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            schedule = schedules.get_schedule(tx, number)
            run = runs.get_run(tx, schedule.run)
            fires = schedules.list_fires(tx, number, most=_MAX_FIRES)
            missed, now = schedules.count_missed(tx).get(number, 0), tx.now
        policy = self._policies.get_policy()
        parts: list[Element] = [
            rich_text_section(bold(f"Schedule {number}: {schedule.timing.name}")),
            rich_text_section(code(_format_request(run))),
            bullet_list(
                [text_element(schedule.timing.description)],
                [text_element(f"owner: {policy.get_person_name(schedule.owner)}")],
            ),
        ]
        if schedule.state is not ScheduleState.ACTIVE:
            parts.append(rich_text_section(bold(_describe_state(schedule))))
        else:
            coming = schedule.timing.cron_expression.format_due_times(now, count=_MAX_FIRES)
            parts += [
                rich_text_section(bold("Next")),
                bullet_list(*([text_element(at)] for at in coming)),
            ]
        if fires:
            parts += [
                rich_text_section(bold("Last")),
                bullet_list(*_render_fires(schedule, fires)),
            ]
        if missed:
            parts.append(rich_text_section(text_element(_format_missed(missed))))
        acts = ", ".join(self._actions)
        parts.append(
            rich_text_section(
                code(f"{replies.COMMAND} schedule {number} …"), text_element(f" {acts}")
            )
        )
        return Message(f"Schedule {number}", [rich_text(*parts)])

    def _suspend_schedule(self, number: int, command: TypedScheduleCommand) -> Message:
        self._workflow.schedules.suspend_schedule(
            number, person=command.person, reason=command.typed_text.reason
        )
        return replies.build_text_reply(f"Schedule {number} fires no more until it is resumed.")

    def _resume_schedule(self, number: int, command: TypedScheduleCommand) -> Message:
        resumed = self._workflow.schedules.resume_schedule(number, person=command.person)
        coming = resumed.timing.cron_expression.format_due_times(resumed.decided_until, count=1)
        return replies.build_text_reply(f"Schedule {number} fires again, next {''.join(coming)}.")

    def _end_schedule(self, number: int, command: TypedScheduleCommand) -> Message:
        self._workflow.schedules.end_schedule(
            number, person=command.person, reason=command.typed_text.reason
        )
        return replies.build_text_reply(f"Schedule {number} has ended.")

    def _take_over_schedule(self, number: int, command: TypedScheduleCommand) -> Message | None:
        run = self._workflow.schedules.take_over_schedule(
            number, person=command.person, origin=command.origin, reason=command.typed_text.reason
        )
        return replies.build_text_reply(f"{run.title}: {run.summary}") if run.is_ended else None


def _split_at_dashes(text: str) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Split at the two dashes, which phones make a long one of."""
    typed = request_form.split_words(text)
    for place, word in enumerate(typed):
        if word in {"--", "-"}:
            return typed[:place], True, typed[place + 1 :]
    return typed, False, ()


def _get_shared_channel(origin: RequestOrigin) -> str:
    """Return the channel that it was asked in; "" for a conversation that only some can see."""
    return origin.channel if origin.channel.startswith("C") else ""


def _render_schedule_entry(schedule: Schedule, run: Run, missed_count: int) -> list[Element]:
    told = f"; {_format_missed(missed_count)}" * bool(missed_count)
    return [
        bold(f"{schedule.id} {schedule.timing.name}"),
        text_element(" – "),
        code(_format_request(run)),
        text_element(
            f" – {schedule.timing.cron_expression.description}; {_describe_state(schedule)}{told}"
        ),
    ]


def _format_missed(missed_count: int) -> str:
    return f"{missed_count} missed in {schedules.MISSED_DAYS} days"


def _format_request(run: Run) -> str:
    return run.request or run.runbook


def _describe_state(schedule: Schedule) -> str:
    if schedule.state is not ScheduleState.ACTIVE:
        return f"{schedule.state}: {schedule.reason}" if schedule.reason else str(schedule.state)
    coming = schedule.timing.cron_expression.format_due_times(schedule.decided_until, count=1)
    return f"next {coming[0]}" if coming else "never comes again"


def _render_fires(schedule: Schedule, fires: Sequence[Fire]) -> list[list[Element]]:
    return [[text_element(_describe_fire(schedule, fire))] for fire in fires]


def _describe_fire(schedule: Schedule, fire: Fire) -> str:
    run = f", run {fire.run}" if fire.run else ""
    where = f" on {fire.host}" if fire.host else ""
    why = f": {fire.reason}" if fire.reason else ""
    return (
        f"{schedule.timing.cron_expression.format_local_time(fire.due_at)}{where} – "
        f"{fire.outcome}{run}{why}"
    )


def _render_help() -> Message:
    settings = [
        [code(f"{name}=…"), text_element(f" – {what}")] for name, what in SETTING_HINTS.items()
    ]
    example = (
        f'{replies.COMMAND} schedule "monthly scrub" cron="0 3 1 * *" zone=Europe/Amsterdam '
        "-- zfs scrub start nas1 tank"
    )
    return Message(
        "How to type a schedule",
        [
            rich_text(
                rich_text_section(bold("Have something done again and again")),
                rich_text_section(code(f"{replies.COMMAND} {_USAGE}")),
                bullet_list(*settings),
                rich_text_section(text_element("For example "), code(example)),
            )
        ],
    )

"""Schedules in chat: ask for one, look at them, stop them, take them over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.db import runs, schedules
from bot.db.database import Database
from bot.db.schedules import Fire, Schedule, ScheduleState
from bot.model import request_form
from bot.model.request_form import InvalidValues
from bot.model.run import Origin, Run
from bot.model.schedule import SETTINGS, ScheduleError, parse_timing
from bot.model.text import counted
from bot.service import Workflow
from bot.slack import replies
from bot.slack.blocks import (
    Element,
    Message,
    bold,
    bullets,
    code,
    line,
    rich,
    words,
)
from bot.slack.parsing import TypedText
from bot.workflow.context import Policies
from bot.workflow.requests import InvalidRequest
from connectors.command import quote_text

_NEWEST = 5
_MOST_LISTED = 30
_USAGE = "schedule NAME cron=… [zone=…] -- WORDS HOST…"


@dataclass(frozen=True)
class Typed:
    """What stood behind the word `schedule`, and who typed it."""

    person: str
    origin: Origin
    said: TypedText


class Timetables:
    """Answers what is typed about schedules. None as answer: the card that follows says it all."""

    def __init__(self, workflow: Workflow, database: Database, policies: Policies) -> None:
        self._workflow, self._database, self._policies = workflow, database, policies
        self._acts: Mapping[str, Callable[[int, Typed], Message | None]] = {
            "suspend": self._suspend,
            "resume": self._resume,
            "end": self._end,
            "take": self._take,
        }

    def listing(self, person: str) -> Message:
        """List all that fire, and those that should and do not, as far as they may be viewed."""
        with self._database.reading(self._policies.current().sight(person)) as tx:
            found = [
                each
                for each in schedules.list_schedules(tx)
                if each.standing is not ScheduleState.ENDED
            ]
            asked = {each.id: runs.get_run(tx, each.run) for each in found[:_MOST_LISTED]}
            missed = schedules.count_missed(tx)
        if not found:
            return replies.reply_text(
                f"There is no schedule yet. To ask for one, type {replies.COMMAND} {_USAGE}"
            )
        items = [
            _listed(each, asked[each.id], missed.get(each.id, 0)) for each in found[:_MOST_LISTED]
        ]
        one = line(words("All of one: "), code(f"{replies.COMMAND} schedule N"))
        return Message(counted(len(found), "schedule"), [rich(bullets(*items), one)])

    def answer(self, typed: Typed) -> Message | None:
        """Do what was typed. Raises what the workflow raises, and forms.NotUnderstood."""
        first, _, rest = typed.said.rest.partition(" ")
        if not first:
            return _help()
        act, digits = self._acts.get(rest.strip().lower()), first.removeprefix("#")
        if first.lower() in self._acts:
            act, digits = self._acts[first.lower()], rest.strip().removeprefix("#")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
            return self._ask(typed)
        return act(int(digits), typed) if act else self._one(int(digits), typed.person)

    def _ask(self, typed: Typed) -> Message | None:
        before, dashes, after = _halves(typed.said.rest)
        if not dashes or not before or not after:
            raise request_form.NotUnderstood(f"type {replies.COMMAND} {_USAGE}")
        settings = dict(word.split("=", 1) for word in before[1:] if "=" in word)
        stray = [word for word in before[1:] if "=" not in word]
        if stray:
            raise request_form.NotUnderstood(
                f"{quote_text(stray[0])} belongs into quotation marks with its neighbours: "
                'such as "monthly scrub" or cron="0 3 1 * *"'
            )
        try:
            wanted = parse_timing(before[0], settings, zone="UTC", channel=_shared(typed.origin))
        except ScheduleError as bad:
            raise InvalidRequest(str(bad)) from None
        runbook, values = request_form.find_runbook(after)
        inventory = self._policies.current().inventory
        try:
            spelled, requests = request_form.parse_for_hosts(runbook, values, inventory.tags)
        except InvalidValues as problem:
            return replies.misfit(runbook, problem)
        run = self._workflow.schedules.ask(
            requests,
            spelled=spelled,
            person=typed.person,
            origin=typed.origin,
            timing=wanted,
            reason=typed.said.reason,
        )
        return replies.reply_text(f"{run.title}: {run.summary}") if run.over else None

    def _one(self, number: int, person: str) -> Message:
        with self._database.reading(self._policies.current().sight(person)) as tx:
            schedule = schedules.get_schedule(tx, number)
            run = runs.get_run(tx, schedule.run)
            fires = schedules.list_fires(tx, number, most=_NEWEST)
            missed, now = schedules.count_missed(tx).get(number, 0), tx.now
        policy = self._policies.current()
        parts: list[Element] = [
            line(bold(f"Schedule {number}: {schedule.timing.name}")),
            line(code(_request(run))),
            bullets(
                [words(schedule.timing.words)],
                [words(f"owner: {policy.name_person(schedule.owner)}")],
            ),
        ]
        if schedule.standing is not ScheduleState.ACTIVE:
            parts.append(line(bold(_standing(schedule))))
        else:
            coming = schedule.timing.timetable.spoken(now, count=_NEWEST)
            parts += [line(bold("Next")), bullets(*([words(at)] for at in coming))]
        if fires:
            parts += [line(bold("Last")), bullets(*_became(schedule, fires))]
        if missed:
            parts.append(line(words(_missed(missed))))
        acts = ", ".join(self._acts)
        parts.append(line(code(f"{replies.COMMAND} schedule {number} …"), words(f" {acts}")))
        return Message(f"Schedule {number}", [rich(*parts)])

    def _suspend(self, number: int, typed: Typed) -> Message:
        self._workflow.schedules.suspend(number, person=typed.person, why=typed.said.reason)
        return replies.reply_text(f"Schedule {number} fires no more until it is resumed.")

    def _resume(self, number: int, typed: Typed) -> Message:
        resumed = self._workflow.schedules.resume(number, person=typed.person)
        coming = resumed.timing.timetable.spoken(resumed.decided, count=1)
        return replies.reply_text(f"Schedule {number} fires again, next {''.join(coming)}.")

    def _end(self, number: int, typed: Typed) -> Message:
        self._workflow.schedules.end(number, person=typed.person, why=typed.said.reason)
        return replies.reply_text(f"Schedule {number} has ended.")

    def _take(self, number: int, typed: Typed) -> Message | None:
        run = self._workflow.schedules.take(
            number, person=typed.person, origin=typed.origin, reason=typed.said.reason
        )
        return replies.reply_text(f"{run.title}: {run.summary}") if run.over else None


def _halves(text: str) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Split at the two dashes, which phones make a long one of."""
    typed = request_form.split_words(text)
    for place, word in enumerate(typed):
        if word in {"--", "-"}:
            return typed[:place], True, typed[place + 1 :]
    return typed, False, ()


def _shared(origin: Origin) -> str:
    """Return the channel that it was asked in; "" for a conversation that only some can see."""
    return origin.channel if origin.channel.startswith("C") else ""


def _listed(schedule: Schedule, run: Run, missed: int) -> list[Element]:
    told = f"; {_missed(missed)}" * bool(missed)
    return [
        bold(f"{schedule.id} {schedule.timing.name}"),
        words(" – "),
        code(_request(run)),
        words(f" – {schedule.timing.timetable.words}; {_standing(schedule)}{told}"),
    ]


def _missed(count: int) -> str:
    return f"{count} missed in {schedules.MISSED_DAYS} days"


def _request(run: Run) -> str:
    return run.request or run.words


def _standing(schedule: Schedule) -> str:
    if schedule.standing is not ScheduleState.ACTIVE:
        return f"{schedule.standing}: {schedule.why}" if schedule.why else str(schedule.standing)
    coming = schedule.timing.timetable.spoken(schedule.decided, count=1)
    return f"next {coming[0]}" if coming else "never comes again"


def _became(schedule: Schedule, fires: Sequence[Fire]) -> list[list[Element]]:
    return [[words(_what_became(schedule, fire))] for fire in fires]


def _what_became(schedule: Schedule, fire: Fire) -> str:
    run = f", run {fire.run}" if fire.run else ""
    where = f" on {fire.host}" if fire.host else ""
    why = f": {fire.why}" if fire.why else ""
    return f"{schedule.timing.timetable.local(fire.due)}{where} – {fire.outcome}{run}{why}"


def _help() -> Message:
    settings = [[code(f"{name}=…"), words(f" – {what}")] for name, what in SETTINGS.items()]
    example = (
        f'{replies.COMMAND} schedule "monthly scrub" cron="0 3 1 * *" zone=Europe/Amsterdam '
        "-- zfs scrub start nas1 tank"
    )
    return Message(
        "How to type a schedule",
        [
            rich(
                line(bold("Have something done again and again")),
                line(code(f"{replies.COMMAND} {_USAGE}")),
                bullets(*settings),
                line(words("For example "), code(example)),
            )
        ],
    )

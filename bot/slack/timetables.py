"""Schedules in chat: ask for one, look at them, stop them, take them over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot import forms
from bot.forms import Misfit
from bot.run import Origin, Run
from bot.slack import answers
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
from bot.slack.sentences import counted
from bot.slack.words import Said
from bot.store import runs, schedules
from bot.store.database import Database
from bot.store.schedules import Fire, Schedule, Standing
from bot.timetable import SETTINGS, BadTimetable, timing
from bot.workflow import Unfit, Workflow
from bot.workflow.parts import Policies
from connectors.command import quote_text

_NEWEST = 5
_MOST_LISTED = 30
_USAGE = "schedule NAME cron=… [zone=…] -- WORDS HOST…"


@dataclass(frozen=True)
class Typed:
    """What stood behind the word `schedule`, and who typed it."""

    person: str
    origin: Origin
    said: Said


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
            found = [each for each in schedules.every(tx) if each.standing is not Standing.ENDED]
            asked = {each.id: runs.get(tx, each.run) for each in found[:_MOST_LISTED]}
            missed = schedules.missed(tx)
        if not found:
            return answers.said(
                f"There is no schedule yet. To ask for one, type {answers.COMMAND} {_USAGE}"
            )
        items = [
            _listed(each, asked[each.id], missed.get(each.id, 0)) for each in found[:_MOST_LISTED]
        ]
        one = line(words("All of one: "), code(f"{answers.COMMAND} schedule N"))
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
            raise forms.NotUnderstood(f"type {answers.COMMAND} {_USAGE}")
        settings = dict(word.split("=", 1) for word in before[1:] if "=" in word)
        stray = [word for word in before[1:] if "=" not in word]
        if stray:
            raise forms.NotUnderstood(
                f"{quote_text(stray[0])} belongs into quotation marks with its neighbours: "
                'such as "monthly scrub" or cron="0 3 1 * *"'
            )
        try:
            wanted = timing(before[0], settings, zone="UTC", channel=_shared(typed.origin))
        except BadTimetable as bad:
            raise Unfit(str(bad)) from None
        runbook, values = forms.find(after)
        inventory = self._policies.current().inventory
        try:
            spelled, requests = forms.spread(runbook, values, inventory.tags)
        except Misfit as problem:
            return answers.misfit(runbook, problem)
        run = self._workflow.schedules.ask(
            requests,
            spelled=spelled,
            person=typed.person,
            origin=typed.origin,
            timing=wanted,
            reason=typed.said.reason,
        )
        return answers.said(f"{run.title}: {run.summary}") if run.over else None

    def _one(self, number: int, person: str) -> Message:
        with self._database.reading(self._policies.current().sight(person)) as tx:
            schedule = schedules.get(tx, number)
            run = runs.get(tx, schedule.run)
            fires = schedules.fires(tx, number, most=_NEWEST)
            missed, now = schedules.missed(tx).get(number, 0), tx.now
        policy = self._policies.current()
        parts: list[Element] = [
            line(bold(f"Schedule {number}: {schedule.timing.name}")),
            line(code(_request(run))),
            bullets(
                [words(schedule.timing.words)],
                [words(f"owner: {policy.name_person(schedule.owner)}")],
            ),
        ]
        if schedule.standing is not Standing.ACTIVE:
            parts.append(line(bold(_standing(schedule))))
        else:
            coming = schedule.timing.timetable.spoken(now, count=_NEWEST)
            parts += [line(bold("Next")), bullets(*([words(at)] for at in coming))]
        if fires:
            parts += [line(bold("Last")), bullets(*_became(schedule, fires))]
        if missed:
            parts.append(line(words(_missed(missed))))
        acts = ", ".join(self._acts)
        parts.append(line(code(f"{answers.COMMAND} schedule {number} …"), words(f" {acts}")))
        return Message(f"Schedule {number}", [rich(*parts)])

    def _suspend(self, number: int, typed: Typed) -> Message:
        self._workflow.schedules.suspend(number, person=typed.person, why=typed.said.reason)
        return answers.said(f"Schedule {number} fires no more until it is resumed.")

    def _resume(self, number: int, typed: Typed) -> Message:
        resumed = self._workflow.schedules.resume(number, person=typed.person)
        coming = resumed.timing.timetable.spoken(resumed.decided, count=1)
        return answers.said(f"Schedule {number} fires again, next {''.join(coming)}.")

    def _end(self, number: int, typed: Typed) -> Message:
        self._workflow.schedules.end(number, person=typed.person, why=typed.said.reason)
        return answers.said(f"Schedule {number} has ended.")

    def _take(self, number: int, typed: Typed) -> Message | None:
        run = self._workflow.schedules.take(
            number, person=typed.person, origin=typed.origin, reason=typed.said.reason
        )
        return answers.said(f"{run.title}: {run.summary}") if run.over else None


def _halves(text: str) -> tuple[Sequence[str], bool, Sequence[str]]:
    """Split at the two dashes, which phones make a long one of."""
    typed = forms.split(text)
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
    if schedule.standing is not Standing.ACTIVE:
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
        f'{answers.COMMAND} schedule "monthly scrub" cron="0 3 1 * *" zone=Europe/Amsterdam '
        "-- zfs scrub start nas1 tank"
    )
    return Message(
        "How to type a schedule",
        [
            rich(
                line(bold("Have something done again and again")),
                line(code(f"{answers.COMMAND} {_USAGE}")),
                bullets(*settings),
                line(words("For example "), code(example)),
            )
        ],
    )

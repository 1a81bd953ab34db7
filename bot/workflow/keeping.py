"""Keeping schedules: who owns one, or its area, stops it, starts it again or takes it over."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from bot.policy import Policy
from bot.run import Origin, Run
from bot.store import changelog, runs, schedules
from bot.store.database import Transaction
from bot.store.schedules import Schedule, Standing
from bot.timetable import Timetable, Timing
from bot.workflow import asking, firing, founding
from bot.workflow.asking import Unfit, fold_reason, record
from bot.workflow.deciding import NotYours, TooLate
from bot.workflow.parts import Parts
from bot.workflow.visibility import require_view_of_schedule
from runbooks import AnyRunbook


class Schedules:
    """What doors may do about schedules. Raises Unfit, NotYours, TooLate and NoSuchSchedule."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def ask(
        self,
        runbooks: Sequence[AnyRunbook],
        *,
        spelled: str,
        person: str,
        origin: Origin,
        timing: Timing,
        reason: str = "",
    ) -> Run:
        """Ask for a schedule. spelled: several hosts as they were typed; "" for one host."""
        about: _About = {"person": person, "origin": origin, "reason": reason, "timing": timing}
        if spelled:
            return asking.ask_all(self._parts, runbooks, spelled=spelled, **about)
        return asking.ask(self._parts, runbooks[0], **about)

    def fire_due(self) -> None:
        """Ask for what is due now."""
        firing.fire_due(self._parts)

    def timetables(self) -> Mapping[int, Timetable]:
        """Return when each schedule fires that fires now, by its number."""
        with self._parts.database.reading() as tx:
            return {n: timing.timetable for n, timing in schedules.timings(tx).items()}

    def suspend(self, number: int, *, person: str, why: str = "") -> Schedule:
        """Let it fire no more until somebody resumes it."""
        require_view_of_schedule(self._parts, number, person=person)
        return _stand(self._parts, number, Standing.SUSPENDED, person=person, why=why)

    def end(self, number: int, *, person: str, why: str = "") -> Schedule:
        """Let it fire no more, for good."""
        require_view_of_schedule(self._parts, number, person=person)
        return _stand(self._parts, number, Standing.ENDED, person=person, why=why)

    def resume(self, number: int, *, person: str) -> Schedule:
        """Let it fire again, from the next moment on; what was missed meanwhile stays missed."""
        require_view_of_schedule(self._parts, number, person=person)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            schedule = schedules.hold(tx, number)
            founded = runs.get(tx, schedule.run)
            _must_keep(policy, founded, schedule, person)
            if schedule.standing is not Standing.SUSPENDED:
                raise TooLate(f"schedule {number} is {schedule.standing}")
            try:
                founding.check(self._parts, tx, schedule, founded)
            except founding.NotApproved as shut:
                raise TooLate(str(shut)) from None
            schedules.stand(tx, schedule, Standing.ACTIVE, "")
            _log(tx, "schedule resumed", schedule, person, "")
            return schedules.get(tx, number)

    def take(self, number: int, *, person: str, origin: Origin, reason: str = "") -> Run:
        """Ask for the same schedule as one's own; once that is approved the old one ends."""
        require_view_of_schedule(self._parts, number, person=person)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            schedule = schedules.get(tx, number)
            if schedule.standing is Standing.ENDED:
                raise TooLate(f"schedule {number} has ended: {schedule.why}")
            founded = runs.get(tx, schedule.run)
            hosts = founded.hosts or (founded.host,)
            gone = [host for host in hosts if host not in policy.inventory.hosts]
            if gone:
                raise Unfit(f"not in the inventory any more: {', '.join(gone)}")
            timing = replace(schedule.timing, replaces=number)
            asked = [founded, *runs.children(tx, founded.id)]
            new, *children = [
                runs.NewRun(
                    words=each.words,
                    kind=each.kind,
                    fields=each.fields,
                    request=each.request,
                    host=each.host,
                    area=policy.area_of(each.host).name,
                    asked_by=person,
                    origin=origin,
                    reason=fold_reason(reason) or f"takes schedule {number} over",
                    hosts=each.hosts,
                    timing=timing,
                )
                for each in asked
            ]
            return record(self._parts, tx, policy, new, children)


class _About(TypedDict):
    person: str
    origin: Origin
    reason: str
    timing: Timing


def _stand(parts: Parts, number: int, standing: Standing, *, person: str, why: str) -> Schedule:
    policy, why = parts.policies.current(), fold_reason(why)
    with parts.database.transaction() as tx:
        schedule = schedules.hold(tx, number)
        _must_keep(policy, runs.get(tx, schedule.run), schedule, person)
        if schedule.standing in {standing, Standing.ENDED}:
            raise TooLate(f"schedule {number} is {schedule.standing} already")
        said = f"by {policy.name_person(person)}" + (f": {why}" if why else "")
        schedules.stand(tx, schedule, standing, said)
        _log(tx, f"schedule {standing}", schedule, person, why)
        return schedules.get(tx, number)


def _must_keep(policy: Policy, founded: Run, schedule: Schedule, person: str) -> None:
    area = policy.household.areas.get(founded.area)
    owners = area.owners if area else ()
    if person != schedule.owner and person not in owners:
        names = ", ".join(sorted(map(policy.name_person, {schedule.owner, *owners})))
        raise NotYours(f"schedule {schedule.id} is kept by its owner and its area's: {names}")


def _log(tx: Transaction, what: str, schedule: Schedule, person: str, why: str) -> None:
    changelog.append(tx, what, run=schedule.run, person=person, schedule=schedule.id, why=why)

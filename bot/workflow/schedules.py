"""Keeping schedules: who owns one, or its area, stops it, starts it again or takes it over."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from bot.audit import change_log
from bot.db import runs, schedules
from bot.db.database import Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.execution import schedule_runner
from bot.model.run import Origin, Run
from bot.model.schedule import CronExpression, ScheduleTiming
from bot.policy import Policy
from bot.workflow import requests, schedule_approval
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest, fold_reason, record_request
from bot.workflow.visibility import require_view_of_schedule
from runbooks import AnyRunbook


class ScheduleActions:
    """What doors may do about schedules. Raises Unfit, NotYours, TooLate and NoSuchSchedule."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def ask(
        self,
        runbooks: Sequence[AnyRunbook],
        *,
        spelled: str,
        person: str,
        origin: Origin,
        timing: ScheduleTiming,
        reason: str = "",
    ) -> Run:
        """Ask for a schedule. spelled: several hosts as they were typed; "" for one host."""
        about: _About = {"person": person, "origin": origin, "reason": reason, "timing": timing}
        if spelled:
            return requests.create_fanout_request(self._parts, runbooks, spelled=spelled, **about)
        return requests.create_request(self._parts, runbooks[0], **about)

    def fire_due(self) -> None:
        """Ask for what is due now."""
        schedule_runner.fire_due_schedules(self._parts)

    def timetables(self) -> Mapping[int, CronExpression]:
        """Return when each schedule fires that fires now, by its number."""
        with self._parts.database.reading() as tx:
            return {n: timing.timetable for n, timing in schedules.list_timings(tx).items()}

    def suspend(self, number: int, *, person: str, why: str = "") -> Schedule:
        """Let it fire no more until somebody resumes it."""
        require_view_of_schedule(self._parts, number, person=person)
        return _stand(self._parts, number, ScheduleState.SUSPENDED, person=person, why=why)

    def end(self, number: int, *, person: str, why: str = "") -> Schedule:
        """Let it fire no more, for good."""
        require_view_of_schedule(self._parts, number, person=person)
        return _stand(self._parts, number, ScheduleState.ENDED, person=person, why=why)

    def resume(self, number: int, *, person: str) -> Schedule:
        """Let it fire again, from the next moment on; what was missed meanwhile stays missed."""
        require_view_of_schedule(self._parts, number, person=person)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            schedule = schedules.lock_schedule(tx, number)
            founded = runs.get_run(tx, schedule.run)
            _must_keep(policy, founded, schedule, person)
            if schedule.standing is not ScheduleState.SUSPENDED:
                raise TooLate(f"schedule {number} is {schedule.standing}")
            try:
                schedule_approval.check_schedule_approval(self._parts, tx, schedule, founded)
            except schedule_approval.NotApproved as shut:
                raise TooLate(str(shut)) from None
            schedules.set_schedule_state(tx, schedule, ScheduleState.ACTIVE, "")
            _log(tx, "schedule resumed", schedule, person, "")
            return schedules.get_schedule(tx, number)

    def take(self, number: int, *, person: str, origin: Origin, reason: str = "") -> Run:
        """Ask for the same schedule as one's own; once that is approved the old one ends."""
        require_view_of_schedule(self._parts, number, person=person)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            schedule = schedules.get_schedule(tx, number)
            if schedule.standing is ScheduleState.ENDED:
                raise TooLate(f"schedule {number} has ended: {schedule.why}")
            founded = runs.get_run(tx, schedule.run)
            hosts = founded.hosts or (founded.host,)
            gone = [host for host in hosts if host not in policy.inventory.hosts]
            if gone:
                raise InvalidRequest(f"not in the inventory any more: {', '.join(gone)}")
            timing = replace(schedule.timing, replaces=number)
            asked = [founded, *runs.list_children(tx, founded.id)]
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
            return record_request(self._parts, tx, policy, new, children)


class _About(TypedDict):
    person: str
    origin: Origin
    reason: str
    timing: ScheduleTiming


def _stand(
    parts: WorkflowContext, number: int, standing: ScheduleState, *, person: str, why: str
) -> Schedule:
    policy, why = parts.policies.current(), fold_reason(why)
    with parts.database.transaction() as tx:
        schedule = schedules.lock_schedule(tx, number)
        _must_keep(policy, runs.get_run(tx, schedule.run), schedule, person)
        if schedule.standing in {standing, ScheduleState.ENDED}:
            raise TooLate(f"schedule {number} is {schedule.standing} already")
        said = f"by {policy.name_person(person)}" + (f": {why}" if why else "")
        schedules.set_schedule_state(tx, schedule, standing, said)
        _log(tx, f"schedule {standing}", schedule, person, why)
        return schedules.get_schedule(tx, number)


def _must_keep(policy: Policy, founded: Run, schedule: Schedule, person: str) -> None:
    area = policy.household.areas.get(founded.area)
    owners = area.owners if area else ()
    if person != schedule.owner and person not in owners:
        names = ", ".join(sorted(map(policy.name_person, {schedule.owner, *owners})))
        raise NotAllowed(f"schedule {schedule.id} is kept by its owner and its area's: {names}")


def _log(tx: Transaction, what: str, schedule: Schedule, person: str, why: str) -> None:
    change_log.append_entry(
        tx, what, run=schedule.run, person=person, schedule=schedule.id, why=why
    )

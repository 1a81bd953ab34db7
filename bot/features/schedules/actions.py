"""Suspend, resume, end and take over schedules."""

from collections.abc import Mapping
from dataclasses import replace

from bot.audit import change_log, events
from bot.db import runs
from bot.features.schedules import approval, rows
from bot.features.schedules.rows import Schedule
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestOrigin, Run
from bot.model.schedule import ScheduleState
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import record_request, shorten_reason

# What the log records when a schedule comes into a state.
SCHEDULE_STATE_EVENTS: Mapping[ScheduleState, type[events.ScheduleChanged]] = {
    ScheduleState.ACTIVE: events.ScheduleResumed,
    ScheduleState.SUSPENDED: events.ScheduleSuspended,
    ScheduleState.LAPSED: events.ScheduleLapsed,
    ScheduleState.ENDED: events.ScheduleEnded,
}


class ScheduleActions:
    """What people may do about schedules.

    Methods raise InvalidRequestError, NotAllowed, TooLate and NoSuchSchedule.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def suspend_schedule(self, number: int, *, person: str, reason: str = "") -> Schedule:
        """Suspend a schedule until it is resumed."""
        _require_view(self._context, number, person=person)
        return _set_state(
            self._context, number, ScheduleState.SUSPENDED, person=person, reason=reason
        )

    def end_schedule(self, number: int, *, person: str, reason: str = "") -> Schedule:
        """End a schedule for good."""
        _require_view(self._context, number, person=person)
        return _set_state(self._context, number, ScheduleState.ENDED, person=person, reason=reason)

    def resume_schedule(self, number: int, *, person: str) -> Schedule:
        """Resume a schedule from its next due time; runs missed meanwhile stay missed."""
        _require_view(self._context, number, person=person)
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            schedule = rows.lock_schedule(tx, number)
            founding = runs.get_run(tx, schedule.run)
            _check_can_manage(policy, founding, schedule, person)
            if schedule.state is not ScheduleState.SUSPENDED:
                raise TooLate(f"schedule {number} is {schedule.state}")
            try:
                approval.check_schedule_approval(self._context, tx, schedule, founding)
            except approval.ScheduleNotApproved as error:
                raise TooLate(str(error)) from None
            rows.set_schedule_state(tx, schedule, ScheduleState.ACTIVE, "")
            resumed = events.ScheduleResumed(schedule=number)
            change_log.append_entry(tx, resumed, run=schedule.run, person=person)
            return rows.get_schedule(tx, number)

    def take_over_schedule(
        self, number: int, *, person: str, origin: RequestOrigin, reason: str = ""
    ) -> Run:
        """Request the same schedule with a new owner; once it is approved, the old one ends."""
        _require_view(self._context, number, person=person)
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            schedule = rows.get_schedule(tx, number)
            if schedule.state is ScheduleState.ENDED:
                raise TooLate(f"schedule {number} has ended: {schedule.reason}")
            founding = runs.get_run(tx, schedule.run)
            hosts = founding.hosts or (founding.host,)
            missing = [host for host in hosts if host not in policy.inventory.hosts]
            if missing:
                raise InvalidRequestError(f"not in the inventory any more: {', '.join(missing)}")
            timing = replace(schedule.timing, replaces_schedule=number)
            originals = [founding, *runs.list_children(tx, founding.id)]
            new, *children = [
                runs.NewRun(
                    runbook=each.runbook,
                    kind=each.kind,
                    values=each.values,
                    request=each.request,
                    host=each.host,
                    area=policy.get_area(each.host).name,
                    requested_by=person,
                    origin=origin,
                    reason=shorten_reason(reason) or f"takes over schedule {number}",
                    hosts=each.hosts,
                    timing=timing,
                )
                for each in originals
            ]
            return record_request(self._context, tx, policy, new, children)


def _require_view(context: WorkflowContext, number: int, *, person: str) -> None:
    """Raise NoSuchSchedule if it does not exist, or the person may not view it."""
    policy = context.policies.get_policy()
    if policy.find_person(person) is None:
        return
    with context.database.reading(policy.get_view_rights(person)) as tx:
        rows.get_schedule(tx, number)


def _set_state(
    context: WorkflowContext, number: int, state: ScheduleState, *, person: str, reason: str
) -> Schedule:
    policy, reason = context.policies.get_policy(), shorten_reason(reason)
    with context.database.transaction() as tx:
        schedule = rows.lock_schedule(tx, number)
        _check_can_manage(policy, runs.get_run(tx, schedule.run), schedule, person)
        if schedule.state in {state, ScheduleState.ENDED}:
            raise TooLate(f"schedule {number} is {schedule.state} already")
        text = f"by {policy.get_person_name(person)}" + (f": {reason}" if reason else "")
        rows.set_schedule_state(tx, schedule, state, text)
        left = SCHEDULE_STATE_EVENTS[state](schedule=number, reason=reason)
        change_log.append_entry(tx, left, run=schedule.run, person=person)
        return rows.get_schedule(tx, number)


def _check_can_manage(policy: Policy, founding_run: Run, schedule: Schedule, person: str) -> None:
    managers = approval.list_managers(policy, schedule, founding_run)
    if person not in managers:
        names = ", ".join(sorted(map(policy.get_person_name, managers)))
        raise NotAllowed(
            f"only the owners of schedule {schedule.id} and of its area can do that: {names}"
        )

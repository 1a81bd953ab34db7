"""Describe a schedule to its approvers, in the same words in web, chat, API and CLI."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.features.schedules import rows as schedules
from bot.features.schedules.rows import Schedule, ScheduleState
from bot.model.plan import ResolvedPlan
from bot.model.run import Run
from bot.model.schedule import ScheduleTiming
from bot.model.times import DAY


@dataclass(frozen=True)
class ScheduleDetails:
    """A schedule as it is shown to its approvers."""

    request: str
    """What each run does, as it would be typed."""
    hosts: Sequence[str]
    when: str
    """The cron expression in words, its time zone, and what happens to missed runs."""
    upcoming: Sequence[str]
    """The next due times, in the schedule's time zone; empty if it is not active."""
    approval: str
    """Whether later runs need an approval, and until when."""
    current: str
    """How the steps of the plan relate to later runs."""

    @property
    def labelled_rows(self) -> Sequence[tuple[str, str]]:
        """Label and text of each detail that is not empty."""
        found = (
            ("Runs", self.request),
            ("Hosts", ", ".join(self.hosts)),
            ("When", self.when),
            ("Next", "; ".join(self.upcoming)),
            ("Approval", self.approval),
            ("Now", self.current),
        )
        return [(label, text) for label, text in found if text]


def list_recent_schedules(tx: Transaction) -> tuple[list[Schedule], int]:
    """Return the schedules without those that ended long ago, and how many are left out."""
    found = schedules.list_schedules(tx)
    since = tx.now - schedules.ENDED_DAYS * DAY
    ends = change_log.list_entries_since(tx, events.ScheduleEnded.kind, since)
    recent = {entry.run for entry in ends}
    shown = [one for one in found if one.state is not ScheduleState.ENDED or one.run in recent]
    return shown, len(found) - len(shown)


def get_schedule_details(tx: Transaction, run: Run) -> ScheduleDetails | None:
    """Return the details of a request for a schedule; None for any other request."""
    schedule = schedules.get_by_run(tx, run.id) if run.timing else None
    return describe_schedule(run, now=tx.now, lapses_at=schedule.lapses_at if schedule else None)


def describe_schedule(run: Run, *, now: int, lapses_at: int | None) -> ScheduleDetails | None:
    """Describe a request for a schedule.

    now: microseconds since 1970. lapses_at: when the approval ends; None before it begins.
    """
    timing, proposal = run.timing, run.plan
    if timing is None:
        return None
    is_open = not run.is_ended
    return ScheduleDetails(
        request=run.request or run.runbook,
        hosts=run.hosts or (run.host,),
        when=timing.description,
        upcoming=timing.cron_expression.format_due_times(now)
        if is_open or lapses_at is not None
        else (),
        approval=_describe_approval(run, timing, proposal, now=now, lapses_at=lapses_at)
        if proposal
        else "",
        current=_describe_current_plan(run, proposal) if proposal and is_open else "",
    )


def _describe_approval(
    run: Run, timing: ScheduleTiming, plan: ResolvedPlan, *, now: int, lapses_at: int | None
) -> str:
    """Describe whether later runs need an approval, and until when."""
    if run.is_ended and lapses_at is None:
        return ""
    if not run.required_approvals:
        return "No approval is needed, neither now nor for later runs."
    local = timing.cron_expression.format_local_time
    if lapses_at is not None:
        until = f"until {local(lapses_at)}"
    else:
        days = plan.schedule_lifetime // DAY
        until = (
            f"for {days} days: until {local(now + plan.schedule_lifetime)} if it is approved now"
        )
    return (
        f"Approved once. Later runs need no approval {until}. After that, or when the runbook or "
        "a host key changes, it does not run until it is approved again."
    )


def _describe_current_plan(run: Run, plan: ResolvedPlan) -> str:
    if run.kind == "check":
        return ""
    text = "The steps are what it would do now."
    if not plan.steps:
        text = "There is nothing to do now."
    return f"{text} Each run reads its hosts and plans its steps again."

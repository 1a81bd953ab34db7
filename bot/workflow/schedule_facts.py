"""What people approve when they approve a schedule, in the same words at every door."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.db import schedules
from bot.db.database import Transaction
from bot.model.plan import ResolvedPlan
from bot.model.run import Run
from bot.model.schedule import ScheduleTiming

_DAY = 86_400_000_000


@dataclass(frozen=True)
class ScheduleDetails:
    """A schedule as it is shown to its approvers."""

    request: str
    """What each run does, as it would be typed."""
    hosts: Sequence[str]
    when: str
    """The cron expression in words, its time zone, and what happens to missed runs."""
    upcoming: Sequence[str]
    """The next times, in the schedule's time zone; none of a schedule that does not fire."""
    approval: str
    """Whether later runs need an approval, and until when."""
    current: str
    """What it would do now, beside the steps of the plan."""

    @property
    def labelled_rows(self) -> Sequence[tuple[str, str]]:
        """Everything, each under its label; what is empty is left out."""
        found = (
            ("Runs", self.request),
            ("Hosts", ", ".join(self.hosts)),
            ("When", self.when),
            ("Next", "; ".join(self.upcoming)),
            ("Approval", self.approval),
            ("Now", self.current),
        )
        return [(label, text) for label, text in found if text]


def get_schedule_details(tx: Transaction, run: Run) -> ScheduleDetails | None:
    """Return what a request for a schedule is about; None for any other request."""
    begun = schedules.get_by_run(tx, run.id) if run.timing else None
    return describe_schedule(run, now=tx.now, lapses_at=begun.lapses_at if begun else None)


def describe_schedule(run: Run, *, now: int, lapses_at: int | None) -> ScheduleDetails | None:
    """Describe a request for a schedule.

    now: microseconds since 1970. lapses: when the approval ends, None while it has not begun.
    """
    timing, proposal = run.timing, run.plan
    if timing is None:
        return None
    open_still = not run.is_ended
    return ScheduleDetails(
        request=run.request or run.runbook,
        hosts=run.hosts or (run.host,),
        when=timing.description,
        upcoming=timing.cron_expression.format_due_times(now)
        if open_still or lapses_at is not None
        else (),
        approval=_describe_approval(run, timing, proposal, now=now, lapses_at=lapses_at)
        if proposal
        else "",
        current=_describe_current_plan(run, proposal) if proposal and open_still else "",
    )


def _describe_approval(
    run: Run, timing: ScheduleTiming, plan: ResolvedPlan, *, now: int, lapses_at: int | None
) -> str:
    """Say whether later runs need an approval, and until when."""
    if run.is_ended and lapses_at is None:
        return ""
    if not run.required_approvals:
        return "No approval is needed, neither now nor for later runs."
    local = timing.cron_expression.format_local_time
    if lapses_at is not None:
        until = f"until {local(lapses_at)}"
    else:
        days = plan.schedule_lifetime // _DAY
        until = (
            f"for {days} days: until {local(now + plan.schedule_lifetime)} if it is approved now"
        )
    return (
        f"Approved once. Later runs need no approval {until}. After that, or when the runbook or "
        "a host key changes, it fires no more until it is approved again."
    )


def _describe_current_plan(run: Run, plan: ResolvedPlan) -> str:
    if run.kind == "check":
        return ""
    now = "The steps are what it would do now."
    if not plan.steps:
        now = "There is nothing to do now."
    return f"{now} Each run reads its hosts again and does what is left then."

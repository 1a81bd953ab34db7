"""Describe a schedule to its approvers, in the same words in web, chat, API and CLI."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
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


def describe_schedule(run: Run, *, now: int) -> ScheduleDetails | None:
    """Describe a request for a schedule; None for any other. now: microseconds since 1970."""
    timing, proposal = run.timing, run.plan
    if timing is None:
        return None
    lapses_at = _get_end_of_approval(run)
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


def _get_end_of_approval(run: Run) -> int | None:
    """Return until when the approval of a schedule is valid; None before it begins."""
    if run.state is not State.SUCCEEDED or run.plan is None or run.ended_at is None:
        return None
    return run.ended_at + run.plan.schedule_lifetime


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

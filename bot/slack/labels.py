"""How a run stands, in words that nobody can misread. Pure."""

from dataclasses import dataclass

from bot.model.run import State
from bot.model.run_states import get_run_display
from bot.slack.run_facts import SlackRunView


@dataclass(frozen=True)
class RunLabel:
    """icon: an emoji's name, never without its words. label: how it stands. text: the rest.

    joint: what stands between label and text.
    """

    icon: str
    label: str
    text: str
    separator: str = ": "

    @property
    def text_after_label(self) -> str:
        """What follows the label: ": waits for run 7" or " by Olga Owner: not today"."""
        return f"{self.separator}{self.text}" if self.text else ""


_MAX_HOSTS = 3


def build_run_label(story: SlackRunView) -> RunLabel:
    run = story.run
    display = get_run_display(run)
    icon, label = display.emoji, display.label
    text = _describe_activity(story) or run.summary
    # Some summaries begin with what the label says: "Denied by Olga: not today".
    if text.startswith(label):
        left = text[len(label) :]
        return RunLabel(icon, label, left.lstrip(": "), ": " if left.startswith(":") else " ")
    return RunLabel(icon, label, text)


def format_run_line(story: SlackRunView) -> str:
    """Return point and action, to be read without anything else."""
    run, name = story.run, story.get_person_name(story.run.requested_by)
    seen = build_run_label(story)
    if run.state is State.PENDING:
        return f"{seen.label}: {run.title} ({story.area_title}), asked by {name}"
    more = f" – {seen.text}" if seen.text else ""
    return f"{seen.label}: {run.title} ({story.area_title}){more}"


def _describe_activity(story: SlackRunView) -> str:
    """Say what happens now; "" of a run that has ended."""
    run = story.run
    match run.state:
        case State.PLANNING:
            return run.summary or f"reading {run.host}, nothing is changed"
        case State.PENDING | State.COUNTER_PROPOSED:
            return _describe_missing_approvals(story)
        case State.QUEUED:
            return run.summary or f"starts as soon as {run.host} is free"
        case State.STARTING:
            return f"reading {run.host} again before anything is sent"
        case State.RUNNING:
            return _describe_progress(story)
        case _:
            return ""


def _describe_missing_approvals(story: SlackRunView) -> str:
    if story.run.state is State.COUNTER_PROPOSED:
        return _describe_counter_proposal(story)
    needed = story.run.required_approvals
    given = (
        len(story.approvals)
        if story.missing_approvals is None
        else needed - story.missing_approvals
    )
    of = f" from {story.approvals_from}" if story.approvals_from else ""
    return f"{given} of {needed}{of}"


def _describe_counter_proposal(story: SlackRunView) -> str:
    """Say who chose the values, and whose turn it is."""
    run = story.run
    editor = story.get_person_name(run.editors[-1]) if run.editors else "an approver"
    instead = f" in place of run {run.proposal_for}" if run.proposal_for else ""
    return (
        f"{editor} proposes this{instead}; {story.get_person_name(run.requested_by)} accepts it "
        "or not"
    )


def _describe_progress(story: SlackRunView) -> str:
    """Say how far it is, and since when: a card is drawn anew as the minutes pass."""
    run, sent = story.run, len(story.step_records)
    so_far = f", for {lasting}" if (lasting := _format_duration(story)) else ""
    if run.hosts:
        at = ", ".join(story.unfinished_hosts[:_MAX_HOSTS])
        more = len(story.unfinished_hosts) - _MAX_HOSTS
        where = f", {at}{f' and {more} more' if more > 0 else ''} under way" if at else ""
        return f"{story.ended_children_count} of {len(run.hosts)} hosts done{where}{so_far}"
    if not sent:
        return f"nothing is sent to {run.host} yet{so_far}"
    steps = len(run.plan.steps) if run.plan else sent
    return f"step {sent} of {steps} is under way on {run.host}{so_far}"


def _format_duration(story: SlackRunView) -> str:
    """Return how long it has been running, in whole minutes; "" below one."""
    if story.run.started_at is None:
        return ""
    minutes = (story.now - story.run.started_at) // 60_000_000
    if minutes < 1:
        return ""
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

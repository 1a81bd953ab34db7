"""The state of a run in words. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.model.run import Run, State
from bot.model.run_states import Tone, describe_outcome
from bot.model.sequence import list_parts
from bot.model.text import capitalise_sentence, format_count
from bot.model.waiting import describe_waiting
from bot.slack.run_facts import SlackRunView

# The colour of a card: Slack shows them in plain text, too.
TONE_EMOJI: Mapping[Tone, str] = {
    Tone.NEUTRAL: "⚪",
    Tone.INFO: "🔵",
    Tone.PENDING: "🟡",
    Tone.SUCCESS: "🟢",
    Tone.WARNING: "🟠",
    Tone.DANGER: "🔴",
}
_LOOK_ORDER = (Tone.DANGER, Tone.WARNING, Tone.PENDING, Tone.INFO)


def rank_tone(tone: Tone) -> int:
    """Return the place of a run with this tone in a table: first those that need a look."""
    return _LOOK_ORDER.index(tone) if tone in _LOOK_ORDER else len(_LOOK_ORDER)


@dataclass(frozen=True)
class RunLabel:
    """The label of a run's state and a text with details."""

    icon: str
    """Name of an emoji; always shown with the label."""
    label: str
    text: str

    @property
    def text_after_label(self) -> str:
        """A colon and the text: ": waits for run 7"."""
        return f": {self.text}" if self.text else ""


_MAX_HOSTS = 3


def build_run_label(run_view: SlackRunView) -> RunLabel:
    """Return the label of a run, with its activity or its summary."""
    run = run_view.run
    display = run_view.display
    text = _describe_activity(run_view) or run.summary
    return RunLabel(display.emoji, display.label, text)


def format_title_with_host(run: Run) -> str:
    """Return the request; first the host, if the request does not begin with it."""
    return run.title if run.request and run.values.get("host") else f"{run.host}: {run.title}"


def format_heading(run_view: SlackRunView) -> str:
    """Return number, state and request, in that order: notifications show the first words.

    Such as `Run 12 · Needs approval: abusers clear lb1 203.0.113.9`.
    """
    run = run_view.run
    return f"Run {run.id} · {run_view.display.label}: {format_title_with_host(run)}"


def format_run_line(run_view: SlackRunView) -> str:
    """Return one line with number, state and request, for notifications."""
    line = f"{format_heading(run_view)} ({run_view.area_title})"
    if run_view.run.state is State.PENDING:
        return f"{line}, requested by {run_view.requester_name}"
    text = build_run_label(run_view).text
    return f"{line} – {text}" if text else line


def _describe_activity(run_view: SlackRunView) -> str:
    """Describe what happens now; return "" for a run that has ended."""
    run = run_view.run
    match run.state:
        case State.PLANNING:
            return describe_outcome(run) or _describe_reading(run_view)
        case State.PENDING | State.COUNTER_PROPOSED:
            return _describe_missing_approvals(run_view)
        case State.QUEUED:
            return describe_outcome(run) or f"starts as soon as {run.host} is free"
        case State.STARTING:
            return f"reading {run.host} again before anything is sent"
        case State.RUNNING:
            return _describe_progress(run_view)
        case _:
            return ""


def _describe_reading(run_view: SlackRunView) -> str:
    if run_view.run.hosts:
        done, of = run_view.view.ended_children_count, _describe_children(run_view.run)
        return f"{done} of {of} read; nothing is changed"
    return f"reading {run_view.run.host}; nothing is changed"


def _describe_children(run: Run) -> str:
    return (
        f"{len(list_parts(run.values))} changes" if run.is_sequence else f"{len(run.hosts)} hosts"
    )


def _describe_missing_approvals(run_view: SlackRunView) -> str:
    if run_view.run.state is State.COUNTER_PROPOSED:
        return _describe_counter_proposal(run_view)
    view = run_view.view
    needed = format_count(view.run.required_approvals, "approval")
    source = f" from {view.approvals_from}" if view.approvals_from else ""
    return f"{view.given_approvals} of {needed}{source}"


def _describe_counter_proposal(run_view: SlackRunView) -> str:
    """Name the approver who proposes other values, and the requester who decides."""
    run, proposal = run_view.run, run_view.view.counter_proposal
    editor = run_view.get_person_name(proposal.person if proposal else run.editors[-1])
    original = f" instead of run {run.proposal_for}" if run.proposal_for else ""
    requester = run_view.get_person_name(run.requested_by)
    return f"{editor} proposes these values{original}; {requester} accepts or withdraws it"


def _describe_progress(run_view: SlackRunView) -> str:
    """Describe how far the run is and for how long: its card is updated every minute."""
    run, sent = run_view.run, len(run_view.step_records)
    so_far = f", for {lasting}" if (lasting := _format_duration(run_view)) else ""
    if run.hosts:
        at = ", ".join(run_view.view.unfinished_hosts[:_MAX_HOSTS])
        more = len(run_view.view.unfinished_hosts) - _MAX_HOSTS
        where = f", running on {at}{f' and {more} more' if more > 0 else ''}" if at else ""
        done, of = run_view.view.ended_children_count, _describe_children(run)
        waits = f". {capitalise_sentence(describe_waiting(run.waiting))}" if run.waiting else ""
        return f"{done} of {of} done{where}{so_far}{waits}"
    if not sent:
        return f"nothing sent to {run.host} yet{so_far}"
    steps = len(run.plan.steps) if run.plan else sent
    return f"step {sent} of {steps} on {run.host}{so_far}"


def _format_duration(run_view: SlackRunView) -> str:
    """Return the run time in whole minutes; "" below one minute."""
    if run_view.run.started_at is None:
        return ""
    minutes = (run_view.view.now - run_view.run.started_at) // 60_000_000
    if minutes < 1:
        return ""
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

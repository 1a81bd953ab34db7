"""How a run stands, in words that nobody can misread. Pure."""

from dataclasses import dataclass

from bot.model.run import State
from bot.model.run_states import describe_run
from bot.slack.run_facts import Story


@dataclass(frozen=True)
class Verdict:
    """icon: an emoji's name, never without its words. label: how it stands. text: the rest.

    joint: what stands between label and text.
    """

    icon: str
    label: str
    text: str
    joint: str = ": "

    @property
    def rest(self) -> str:
        """What follows the label: ": waits for run 7" or " by Olga Owner: not today"."""
        return f"{self.joint}{self.text}" if self.text else ""


_MOST_HOSTS = 3


def verdict(story: Story) -> Verdict:
    run = story.run
    display = describe_run(run)
    icon, label = display.emoji, display.label
    text = _under_way(story) or run.summary
    # Some summaries begin with what the label says: "Denied by Olga: not today".
    if text.startswith(label):
        left = text[len(label) :]
        return Verdict(icon, label, left.lstrip(": "), ": " if left.startswith(":") else " ")
    return Verdict(icon, label, text)


def in_one_line(story: Story) -> str:
    """Return point and action, to be read without anything else."""
    run, name = story.run, story.name(story.run.asked_by)
    seen = verdict(story)
    if run.state is State.WAITING:
        return f"{seen.label}: {run.title} ({story.area}), asked by {name}"
    more = f" – {seen.text}" if seen.text else ""
    return f"{seen.label}: {run.title} ({story.area}){more}"


def _under_way(story: Story) -> str:
    """Say what happens now; "" of a run that has ended."""
    run = story.run
    match run.state:
        case State.ASKED:
            return run.summary or f"reading {run.host}, nothing is changed"
        case State.WAITING | State.OFFERED:
            return _wanted(story)
        case State.READY:
            return run.summary or f"starts as soon as {run.host} is free"
        case State.STARTING:
            return f"reading {run.host} again before anything is sent"
        case State.RUNNING:
            return _progress(story)
        case _:
            return ""


def _wanted(story: Story) -> str:
    if story.run.state is State.OFFERED:
        return _offered(story)
    needed = story.run.needed
    given = len(story.yes_votes) if story.missing is None else needed - story.missing
    of = f" from {story.whose}" if story.whose else ""
    return f"{given} of {needed}{of}"


def _offered(story: Story) -> str:
    """Say who chose the values, and whose turn it is."""
    run = story.run
    editor = story.name(run.editors[-1]) if run.editors else "an approver"
    instead = f" in place of run {run.counters}" if run.counters else ""
    return f"{editor} proposes this{instead}; {story.name(run.asked_by)} accepts it or not"


def _progress(story: Story) -> str:
    """Say how far it is, and since when: a card is drawn anew as the minutes pass."""
    run, sent = story.run, len(story.steps)
    so_far = f", for {lasting}" if (lasting := _lasting(story)) else ""
    if run.hosts:
        at = ", ".join(story.under_way[:_MOST_HOSTS])
        more = len(story.under_way) - _MOST_HOSTS
        where = f", {at}{f' and {more} more' if more > 0 else ''} under way" if at else ""
        return f"{story.hosts_done} of {len(run.hosts)} hosts done{where}{so_far}"
    if not sent:
        return f"nothing is sent to {run.host} yet{so_far}"
    steps = len(run.proposal.steps) if run.proposal else sent
    return f"step {sent} of {steps} is under way on {run.host}{so_far}"


def _lasting(story: Story) -> str:
    """Return how long it has been running, in whole minutes; "" below one."""
    if story.run.started is None:
        return ""
    minutes = (story.now - story.run.started) // 60_000_000
    if minutes < 1:
        return ""
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

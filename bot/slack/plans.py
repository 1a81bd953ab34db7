"""Plans drawn: why, and each step with its exact command, what it changes and its undo. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bot.proposal import Proposal, ProposedStep
from bot.run import StepRecord, StepState
from bot.schedule_facts import ScheduleFacts
from bot.slack.blocks import (
    Block,
    Element,
    bold,
    bullets,
    code,
    line,
    preformatted,
    rich,
    shortened,
    words,
)

# Slack folds long messages away; what is approved here must be seen here, and at a glance.
_MOST_STEPS = 12
_MOST_CHARACTERS = 6000
_MOST_COMMAND = 2500
_MOST_LISTED = 20

_BECAME: Mapping[StepState, str] = {
    StepState.INTENT: "sent, its end is not seen yet",
    StepState.SUCCEEDED: "done",
    StepState.FAILED: "failed",
    StepState.UNKNOWN: "nobody saw its end",
}


def fits(proposal: Proposal) -> bool:
    """Return whether chat can show all of the plan; else nobody may approve it there."""
    commands = [str(step.do) for step in proposal.steps]
    return (
        len(commands) <= _MOST_STEPS
        and max(map(len, commands), default=0) <= _MOST_COMMAND
        and sum(map(len, _texts(proposal))) <= _MOST_CHARACTERS
    )


def drawn(proposal: Proposal, records: Sequence[StepRecord]) -> list[Block]:
    """Draw all of the plan, or, if it does not fit, a list of what it does."""
    became = {record.n: record for record in records}
    found = line(bold("Found: "), words(shortened(proposal.because, 1000)))
    if not fits(proposal):
        return [rich(found, *_listed(proposal, became))]
    parts = [found]
    for numbers in _alike(proposal.steps, became):
        parts += _step(numbers, proposal.steps, became.get(numbers[0]))
    if proposal.notes:
        parts.append(bullets(*([words(note)] for note in proposal.notes)))
    return [rich(*parts)]


def draw_schedule(facts: ScheduleFacts) -> Block:
    """Draw what a schedule does and when, above the steps that it would do now."""
    return rich(*(line(bold(f"{label}: "), words(text)) for label, text in facts.rows))


def _alike(
    steps: Sequence[ProposedStep], became: Mapping[int, StepRecord]
) -> Sequence[Sequence[int]]:
    """Return the numbers of steps that are to be drawn as one: the same on one host after another,
    and as far with each."""

    def all_but_host(n: int) -> object:
        record = became.get(n)
        return replace(steps[n - 1], host="", fingerprint=""), record and record.state

    numbers = range(1, len(steps) + 1)
    if len({step.host for step in steps}) < len(steps):
        return [[n] for n in numbers]
    return [list(group) for _, group in groupby(numbers, key=all_but_host)]


def _step(
    numbers: Sequence[int], steps: Sequence[ProposedStep], record: StepRecord | None
) -> list[Element]:
    """Draw steps that differ in their hosts alone."""
    step = steps[numbers[0] - 1]
    hosts = ", ".join(steps[n - 1].host for n in numbers)
    which = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    return [line(*_title(which, step, hosts, record)), preformatted(str(step.do)), *_undo(step)]


def _title(which: str, step: ProposedStep, hosts: str, record: StepRecord | None) -> list[Element]:
    parts = [bold(f"{which}. {step.title}"), words(f" on {hosts}")]
    if step.before or step.after:
        parts += [
            words(": "),
            code(step.before or "nothing"),
            words(" → "),
            code(step.after or "nothing"),
        ]
    return parts + ([words(f" – {_BECAME[record.state]}")] if record else [])


def _undo(step: ProposedStep) -> list[Element]:
    if step.undo is None:
        return [line(bold("Cannot be undone: "), words(step.no_undo))]
    undo = str(step.undo)
    if "\n" in undo:
        return [line(words("Undo:")), preformatted(undo)]
    return [line(words("Undo: "), code(undo))]


def _listed(proposal: Proposal, became: Mapping[int, StepRecord]) -> list[Element]:
    steps = list(enumerate(proposal.steps, start=1))
    titles = [
        [
            words(shortened(f"{n}. {step.title} on {step.host}", 150)),
            *([words(f" – {_BECAME[became[n].state]}")] if n in became else []),
        ]
        for n, step in steps[:_MOST_LISTED]
    ]
    if len(steps) > _MOST_LISTED:
        titles.append([words(f"… and {len(steps) - _MOST_LISTED} more")])
    return [bullets(*titles)]


def _texts(proposal: Proposal) -> list[str]:
    texts = [proposal.because, *proposal.notes, *proposal.keys]
    for step in proposal.steps:
        undo = str(step.undo) if step.undo is not None else step.no_undo
        texts += [step.title, step.host, str(step.do), undo, step.before, step.after]
    return texts

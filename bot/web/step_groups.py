"""Fold equal steps on several hosts into one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.model.plan import PlannedStep
from bot.model.run import StepRecord

NumberedStep = tuple[int, PlannedStep, StepRecord | None]


@dataclass(frozen=True)
class StepGroup:
    """Steps that differ only in their host."""

    steps: Sequence[NumberedStep]

    @property
    def number(self) -> int:
        return self.steps[0][0]

    @property
    def step(self) -> PlannedStep:
        return self.steps[0][1]

    @property
    def records(self) -> Sequence[StepRecord]:
        return [record for _, _, record in self.steps if record]


def group_equal_steps(steps: Sequence[NumberedStep]) -> Sequence[StepGroup]:
    """Return the steps in groups, in the order of the first step of each."""
    groups: dict[tuple[object, ...], list[NumberedStep]] = {}
    for numbered in steps:
        step = numbered[1]
        key = (step.title, step.command, step.undo, step.no_undo_reason, step.before, step.after)
        hosts = groups.setdefault((*key, ""), [])
        if any(other.host == step.host for _, other, _ in hosts):
            hosts = groups.setdefault((*key, numbered[0]), [])
        hosts.append(numbered)
    return [StepGroup(group) for group in groups.values()]

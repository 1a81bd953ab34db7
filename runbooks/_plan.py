"""What a runbook hands over: a plan of exact steps, or a report of what it saw."""

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.command import Command


class Refused(Exception):
    """The runbook will not do this now. The message says why, and what to do instead."""


@dataclass(frozen=True)
class NoUndo:
    """Stands where an undo would: this step cannot be taken back, and here is why."""

    reason: str


@dataclass(frozen=True)
class Step:
    """One command on one host.

    before, after: the value that the step changes, as people read it. `before` is part of what is
    approved, so it holds nothing that moves by itself, such as a counter or a time left.
    undo_title: of the undo, where that is more than this step taken back.
    """

    title: str
    host: str
    do: Command
    undo: Command | NoUndo
    before: str = ""
    after: str = ""
    undo_title: str = ""


@dataclass(frozen=True)
class Plan:
    """The steps still needed. A plan without steps means that all is already as asked.

    because: what was found, in one sentence. notes: what else the person who approves should
    know (what it will disturb, what may happen next); may hold values that move.
    """

    current_state: str
    steps: Sequence[Step] = ()
    notes: Sequence[str] = ()

    @property
    def is_reversible(self) -> bool:
        return not any(isinstance(step.undo, NoUndo) for step in self.steps)


@dataclass(frozen=True)
class Table:
    """Rows for people: drawn as a table on the web, aligned text in chat and terminal."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """What a check saw.

    summary: one sentence that stands alone. findings: what a person should act on, one each.
    running: what it tells of is still under way.
    """

    summary: str
    healthy: bool = True
    findings: Sequence[str] = ()
    table: Table | None = None
    running: bool = False

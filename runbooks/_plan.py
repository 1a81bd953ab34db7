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


@dataclass(frozen=True, order=True)
class Leg:
    """Something that carries a service: a host, or one part of it, such as lb1/haproxy."""

    host: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.part}" if self.part else self.host

    @classmethod
    def parse(cls, text: str) -> "Leg":
        """Return the leg that is written as `lb1` or `lb1/haproxy`."""
        host, _, part = text.partition("/")
        return cls(host, part)

    def overlaps(self, other: "Leg") -> bool:
        """Return whether taking one of them down takes the other down."""
        return self.host == other.host and (
            not self.part or not other.part or self.part == other.part
        )

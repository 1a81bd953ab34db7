"""What a runbook returns: a change returns a `Plan` with steps, a check returns a `Report`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectors.command import Command


class Refused(Exception):
    """The runbook refuses the request now.

    Raise it in `read` or `plan`. The message is shown to the requester: say why, and what to do
    instead, such as `tank is DEGRADED: replace the disk before scrubbing`.
    """


@dataclass(frozen=True)
class NoUndo:
    """The undo of a step that cannot be undone. It makes the plan irreversible."""

    reason: str
    """Why it cannot be undone, as a clause: `HAProxy forgets all entries`."""


@dataclass(frozen=True)
class Step:
    """One command on one host, with its undo."""

    title: str
    """What it does, in the imperative: `Use bfq on sdb`."""
    host: str
    """The host's name in the inventory."""
    do: Command
    """The command."""
    undo: Command | NoUndo
    """The command that restores the state before the step, or why there is none."""
    before: str = ""
    """The value that the step changes. It is part of what is approved, so do not include anything
    that changes by itself, such as a counter or a remaining time."""
    after: str = ""
    """The value after the step."""
    undo_title: str = ""
    """The title of the undo, if it is more than this step in reverse."""


@dataclass(frozen=True)
class Plan:
    """The steps that are still needed. No steps mean that everything is already as requested."""

    current_state: str
    """The fact that was read on the host, in one sentence without a full stop: `swappiness is 10`.
    Without steps, it follows both `No changes:` and `Verified:`, so leave out "already"."""
    steps: Sequence[Step] = ()
    """The steps, in order. They are undone in reverse order."""
    notes: Sequence[str] = ()
    """What an approver should also know: what it disturbs, what can happen next. One sentence
    each. Notes are not part of what is approved, so they may include changing values."""
    takes_down: "Sequence[Leg]" = ()
    """What may be down, if only the state says so. See `Change.takes_down` for the rest."""

    @property
    def is_reversible(self) -> bool:
        """Whether every step has an undo."""
        return not any(isinstance(step.undo, NoUndo) for step in self.steps)


@dataclass(frozen=True)
class Table:
    """Rows for people: a table on the web, aligned text in chat and terminal."""

    columns: Sequence[str]
    """The headings."""
    rows: Sequence[Sequence[str]]
    """One cell for each column."""


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    summary: str
    """One sentence that is complete without the rest."""
    healthy: bool = True
    """Whether no person has to act."""
    findings: Sequence[str] = ()
    """What a person should act on or know, one sentence each."""
    table: Table | None = None
    """The details."""
    running: bool = False
    """Whether the work that it reports on is still running."""

    @classmethod
    def from_findings(
        cls,
        summary: str,
        findings: Iterable[str],
        table: Table | None = None,
        *,
        notes: Iterable[str] = (),
    ) -> "Report":
        """Return a report that is healthy if it has no findings, and without an empty table.

        notes: findings that require no action.
        """
        problems = [*findings]
        shown = table if table and table.rows else None
        return cls(summary, not problems, [*problems, *notes], shown)


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

"""The ledger: what was done on a host, written down there by what did it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.model.run import ENDED_STATES, Run, State, StepRecord, StepState
from connectors.command import Query, QueryRunner, Shell
from runbooks import Change, Host, NoUndo, Plan, Step

PARTS = ("one", "two")
# So that some are killed before the line is written, and some after it.
_PAUSE = "sleep 0.0%s"
_WRITE = (
    f'{{ {_PAUSE % 3}; echo "$1 $2" | '
    "dd of=ledger oflag=append,sync conv=notrunc status=none; "
    f'{_PAUSE % 2}; echo "wrote $1"; }}'
)
_READ = 'cd "$HOME" && touch ledger && cat ledger'


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines())


class WriteDown(Change[tuple[str, ...]], words="ledger write", example="lb1 5f", undo="cannot"):
    """Write two lines into a host's ledger, one step each."""

    host: Host
    nonce: str

    def read(self, ask: QueryRunner) -> tuple[str, ...]:
        return ask(self.host, Query(Shell(("sh", "-c", _READ)), _lines))

    def plan(self, lines: tuple[str, ...]) -> Plan:
        missing = [part for part in PARTS if f"{self.nonce} {part}" not in lines]
        steps = [
            Step(
                f"Write {part}",
                self.host,
                Shell(("sh", "-c", f'cd "$HOME" && {_WRITE}', "write", self.nonce, part)),
                NoUndo("it is a ledger"),
            )
            for part in missing
        ]
        return Plan(f"{len(PARTS) - len(missing)} of {len(PARTS)} lines are there", steps)


@dataclass
class Toll:
    """What a campaign has come to. Every list names what should not be."""

    faults: int = 0
    lines: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    duplicated: list[str] = field(default_factory=list[str])
    unrecorded: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    hanging: list[str] = field(default_factory=list[str])

    @property
    def wrong(self) -> list[str]:
        return [*self.duplicated, *self.unrecorded, *self.lost, *self.hanging]

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        # Nothing seen in n tries happens with 95 % certainty less often than in 3 of n, which says
        # nothing of a few tries.
        sure = (
            f"; with 95 % certainty fewer than {300 / self.faults:.2g} % of them do harm"
            if self.faults > 5
            else ""
        )
        return (
            f"{self.faults} faults, {sum(self.ends.values())} runs ({ends}), {self.lines} lines: "
            f"{len(self.lost)} lost, {len(self.duplicated)} duplicated, "
            f"{len(self.unrecorded)} unrecorded, {len(self.hanging)} without an end"
            f"{'' if self.wrong else sure}"
        )


def judged(
    lines: Sequence[str],
    known: Mapping[int, Run],
    steps: Mapping[int, Sequence[StepRecord]],
    acknowledged: Sequence[int],
    *,
    faults: int,
) -> Toll:
    """Hold what the hosts have against what Keyturn says. lines: of all ledgers."""
    toll = Toll(faults=faults, lines=len(lines), ends=Counter(run.state for run in known.values()))
    written = Counter(lines)
    toll.duplicated = [f"{line!r} {n} times" for line, n in written.items() if n > 1]
    meant: dict[str, StepState] = {}
    for number, run in known.items():
        for record in steps[number]:
            line = f"{run.values['nonce']} {_part(run, record.step_number)}"
            meant[line] = record.state
            if record.state is StepState.SUCCEEDED and line not in written:
                toll.lost.append(f"run {number} says it wrote {line!r}")
            if record.state is StepState.FAILED and line in written:
                toll.lost.append(f"run {number} says it did not write {line!r}")
        if run.state not in ENDED_STATES:
            toll.hanging.append(f"run {number} is {run.state}: {run.summary}")
        if run.state is State.SUCCEEDED and not _all_written(run, written):
            toll.lost.append(f"run {number} has succeeded, and its lines are not there")
    toll.unrecorded = [f"{line!r}" for line in written if line not in meant]
    toll.lost += [f"request {number}" for number in acknowledged if number not in known]
    return toll


def _part(run: Run, n: int) -> str:
    return run.plan.steps[n - 1].command.words[-1] if _is_planned(run, n) else "?"  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType, reportOptionalMemberAccess] - it is a Shell


def _is_planned(run: Run, n: int) -> bool:
    return run.plan is not None and len(run.plan.steps) >= n


def _all_written(run: Run, written: Mapping[str, int]) -> bool:
    return all(written.get(f"{run.values['nonce']} {part}") for part in PARTS)

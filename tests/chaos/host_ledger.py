"""A ledger on each host that shows which steps really ran, to compare with the change log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.audit import verification
from bot.db import runs as run_records
from bot.db import search
from bot.db.database import Database
from bot.model.run import ENDED_STATES, Run, State, StepRecord, StepState
from connectors.command import Query, QueryRunner, Shell
from runbooks import Change, Host, NoUndo, Plan, Step
from tests.playground.fleet import LoopbackFleet

PARTS = ("one", "two")
# So that some processes are killed before the line is written, and some after it.
_PAUSE = "sleep 0.0%s"
_WRITE = (
    f'{{ {_PAUSE % 3}; echo "$1 $2" | '
    "dd of=ledger oflag=append,sync conv=notrunc status=none; "
    f'{_PAUSE % 2}; echo "wrote $1"; }}'
)
_READ = 'cd "$HOME" && touch ledger && cat ledger'


def _split_lines(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines())


class WriteToLedger(
    Change[tuple[str, ...]], words="ledger write", example="lb1 5f", undo="cannot"
):
    """Write two lines into a host's ledger, in two steps."""

    host: Host
    nonce: str

    def read(self, ask: QueryRunner) -> tuple[str, ...]:
        return ask(self.host, Query(Shell(("sh", "-c", _READ)), _split_lines))

    def plan(self, lines: tuple[str, ...]) -> Plan:
        missing = [part for part in PARTS if f"{self.nonce} {part}" not in lines]
        steps = [
            Step(
                f"Write {part}",
                self.host,
                Shell(("sh", "-c", f'cd "$HOME" && {_WRITE}', "write", self.nonce, part)),
                NoUndo("a ledger keeps its lines"),
            )
            for part in missing
        ]
        return Plan(f"{len(PARTS) - len(missing)} of {len(PARTS)} lines are there", steps)


# A test holds a host within a write, or within a read after it, by the file `hold`, which says in
# which of them.
_HOLD = (
    'if [ "$(cat hold 2>/dev/null)" = %s ]; then echo held >>log; '
    "while [ -e hold ]; do sleep 0.02; done; fi"
)
_READ_NOTES = (
    f'cd "$HOME" && touch log && if [ -s log ]; then {_HOLD % "read"}; fi; '
    "cat note-* 2>/dev/null || :"
)
_WRITE_NOTE = f'cd "$HOME" && {_HOLD % "write"}; echo "$1 $2" >"note-$1"; echo "wrote $1" >>log'


class KeepNote(
    Change[Mapping[str, str]], words="note keep", example="lb1 a new", undo="cannot", sets="{name}"
):
    """Keep one value in a file of a host."""

    host: Host
    name: str
    value: str

    def read(self, ask: QueryRunner) -> Mapping[str, str]:
        return ask(self.host, Query(Shell(("sh", "-c", _READ_NOTES)), _parse_notes))

    def plan(self, notes: Mapping[str, str]) -> Plan:
        if notes.get(self.name) == self.value:
            return Plan(f"{self.name} is {self.value}")
        write = Shell(("sh", "-c", _WRITE_NOTE, "write", self.name, self.value))
        return Plan(f"{self.name} is missing", [Step("Write", self.host, write, NoUndo("a test"))])


def _parse_notes(text: str) -> Mapping[str, str]:
    return dict(line.split() for line in text.splitlines())


@dataclass
class CampaignResult:
    """The result of a campaign of faults.

    lines: how many the ledgers have. run_counts: the runs by their state. The lists describe each
    violation: a line that was written twice, one without a step record, a run or line that is
    lost, and a run that did not end.
    """

    faults: int = 0
    lines: int = 0
    run_counts: Counter[str] = field(default_factory=Counter[str])
    duplicated: list[str] = field(default_factory=list[str])
    unrecorded: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])

    @property
    def violations(self) -> list[str]:
        return [*self.duplicated, *self.unrecorded, *self.lost, *self.unfinished]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.run_counts.items()))
        # The rule of three: what did not happen in n trials happens, with 95 % confidence, in
        # fewer than 3 of n. With a few trials that says nothing.
        confidence = (
            f"; with 95 % certainty fewer than {300 / self.faults:.2g} % of them do harm"
            if self.faults > 5
            else ""
        )
        return (
            f"{self.faults} faults, {sum(self.run_counts.values())} runs ({counts}), "
            f"{self.lines} lines: {len(self.lost)} lost, {len(self.duplicated)} duplicated, "
            f"{len(self.unrecorded)} unrecorded, {len(self.unfinished)} without an end"
            f"{'' if self.violations else confidence}"
        )


def list_all_runs(database: Database) -> Sequence[Run]:
    with database.reading() as tx:
        return search.find_newest_runs(tx, search.RunFilter(), most=100_000)


def read_ledgers(fleet: LoopbackFleet) -> list[str]:
    """Return the lines of the ledgers of all hosts."""
    ledgers = [host.home / "ledger" for host in fleet.hosts.values()]
    return [line for file in ledgers if file.exists() for line in file.read_text().splitlines()]


def collect_result(
    database: Database,
    runs: Sequence[Run],
    fleet: LoopbackFleet,
    acknowledged: Sequence[int],
    *,
    faults: int,
) -> CampaignResult:
    """Verify the change log, and compare the runs with the ledgers of the hosts.

    Args:
        runs: All runs of the database.
        acknowledged: The numbers of the requests that Keyturn said it had stored.
    """
    with database.reading() as tx:
        steps = {run.id: run_records.list_steps(tx, run.id) for run in runs}
        verdict = verification.verify_log(tx)
    assert verdict.broken is None, verdict.why
    return compare_with_ledgers(
        read_ledgers(fleet), {run.id: run for run in runs}, steps, acknowledged, faults=faults
    )


def compare_with_ledgers(
    lines: Sequence[str],
    runs: Mapping[int, Run],
    steps: Mapping[int, Sequence[StepRecord]],
    acknowledged: Sequence[int],
    *,
    faults: int,
) -> CampaignResult:
    """Compare the ledgers of the hosts with what Keyturn recorded.

    Args:
        lines: Of all ledgers.
        runs: By number.
        steps: The step records, by the number of their run.
        acknowledged: The numbers of the requests that Keyturn said it had stored.
        faults: How many there were.
    """
    result = CampaignResult(
        faults=faults, lines=len(lines), run_counts=Counter(run.state for run in runs.values())
    )
    written = Counter(lines)
    result.duplicated = [f"{line!r} {n} times" for line, n in written.items() if n > 1]
    recorded: set[str] = set()
    for number, run in runs.items():
        for record in steps[number]:
            line = f"{run.values['nonce']} {_get_part(run, record.step_number)}"
            recorded.add(line)
            if record.state is StepState.SUCCEEDED and line not in written:
                result.lost.append(f"run {number} says it wrote {line!r}")
            if record.state is StepState.FAILED and line in written:
                result.lost.append(f"run {number} says it did not write {line!r}")
        if run.state not in ENDED_STATES:
            result.unfinished.append(f"run {number} is {run.state}: {run.summary}")
        if run.state is State.SUCCEEDED and not _has_all_lines(run, written):
            result.lost.append(f"run {number} has succeeded, and its lines are not there")
    result.unrecorded = [f"{line!r}" for line in written if line not in recorded]
    result.lost += [f"request {number}" for number in acknowledged if number not in runs]
    return result


def _get_part(run: Run, step_number: int) -> str:
    if run.plan is None or len(run.plan.steps) < step_number:
        return "?"
    command = run.plan.steps[step_number - 1].command
    assert isinstance(command, Shell)
    return command.words[-1]


def _has_all_lines(run: Run, written: Mapping[str, int]) -> bool:
    return all(written.get(f"{run.values['nonce']} {part}") for part in PARTS)

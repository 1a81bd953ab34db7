"""A comparison: two runs beside each other, line by line, from asking to their ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from bot.db import runs, search
from bot.db.database import Transaction
from bot.db.search import RunFilter
from bot.model import times
from bot.model.run import Run, StepRecord, StepState, Vote

# Lines of one side that are compared; more would take long, and nobody reads them side by side.
_MOST = 600
# So many lines that are alike stand around what differs; the others are folded.
_AROUND = 3
# What was asked so often since with other values was not asked lately with these.
_LATELY = 50


@dataclass(frozen=True)
class Side:
    """One of the two. name: what a person is called."""

    run: Run
    votes: Sequence[Vote]
    records: Mapping[int, StepRecord]
    name: Callable[[str], str]


@dataclass(frozen=True)
class Line:
    """kind: alike, changed, left, right or folded. left, right: None where a side has no line."""

    kind: str
    left: str | None = None
    right: str | None = None
    folded: int = 0

    @property
    def says(self) -> str:
        """What the colours tell, for those who do not see them."""
        return {
            "changed": "Differs",
            "left": "Only on the left",
            "right": "Only on the right",
        }.get(self.kind, "Alike")


@dataclass(frozen=True)
class Section:
    title: str
    lines: Sequence[Line]

    @property
    def differing(self) -> int:
        return sum(line.kind not in {"alike", "folded"} for line in self.lines)


def find_pair(
    tx: Transaction, b: int, a: int | None, *, name: Callable[[str], str]
) -> tuple[Side | None, Side]:
    """Return run a and run b; without a, the run before that is most like b, if there is one.

    Raises NoSuchRun.
    """
    right = runs.get_run(tx, b)
    left = _before(tx, right) if a is None else runs.get_run(tx, a)
    return left and _side(tx, left, name), _side(tx, right, name)


def _before(tx: Transaction, run: Run) -> Run | None:
    """Return the newest earlier run of the runbook on the host: best with the same values."""
    wanted = RunFilter(host=run.host, words=run.words, before=run.id)
    found = search.find_newest_runs(tx, wanted, most=_LATELY)
    same = [each for each in found if dict(each.fields) == dict(run.fields)]
    chosen = next(iter(same or found), None)
    return chosen and runs.get_run(tx, chosen.id)


def _side(tx: Transaction, run: Run, name: Callable[[str], str]) -> Side:
    told = runs.list_steps_of_children(tx, run.id) if run.hosts else runs.list_steps(tx, run.id)
    votes = runs.list_votes(tx, run.parent or run.id)
    return Side(run, votes, {record.n: record for record in told}, name)


def compare_runs(a: Side, b: Side) -> list[Section]:
    """Return what there is to see, with what is the same folded."""
    told = ((title, [*tell(a)], [*tell(b)]) for title, tell in _TELLERS.items())
    return [Section(title, _aligned(left, right)) for title, left, right in told if left or right]


def _aligned(left: Sequence[str], right: Sequence[str]) -> list[Line]:
    left, right = _capped(left), _capped(right)
    found: list[Line] = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        pairs = [*zip_longest(left[first:last], right[begin:end])]
        found += [_line(kind, one, other) for one, other in pairs]
    return _folded(found)


def _capped(lines: Sequence[str]) -> list[str]:
    flat = [part for line in lines for part in line.split("\n")]
    more = len(flat) - _MOST
    return [*flat[:_MOST], f"[… {more} lines are left out here …]"] if more > 0 else flat


def _line(kind: str, left: str | None, right: str | None) -> Line:
    if kind == "equal":
        return Line("alike", left, right)
    if left is None:
        return Line("right", None, right)
    return Line("changed" if right is not None else "left", left, right)


def _folded(lines: Sequence[Line]) -> list[Line]:
    """Leave out what is alike and far from everything that differs."""
    differ = [n for n, line in enumerate(lines) if line.kind != "alike"]
    near = {n + step for n in differ for step in range(-_AROUND, _AROUND + 1)}
    found: list[Line] = []
    for n, line in enumerate(lines):
        # To say that one line is alike takes a line.
        alone = n - 1 in near | {-1} and n + 1 in near | {len(lines)}
        if n in near or alone or len(lines) <= 2 * _AROUND:
            found.append(line)
        elif found and found[-1].kind == "folded":
            found[-1] = Line("folded", folded=found[-1].folded + 1)
        else:
            found.append(Line("folded", folded=1))
    return found


def _request(side: Side) -> Iterator[str]:
    run = side.run
    yield run.words
    for name, value in run.fields.items():
        yield f"{name}: {value}"
    if run.hosts:
        yield f"hosts: {', '.join(run.hosts)}"
    yield f"asked by: {side.name(run.asked_by)}"
    yield f"through: {run.origin.door}"
    if run.reason:
        yield f"reason: {run.reason}"


def _plan(side: Side) -> Iterator[str]:
    if side.run.proposal is None:
        return
    yield f"found: {side.run.proposal.because}"
    for note in side.run.proposal.notes:
        yield f"note: {note}"
    for n, step in enumerate(side.run.proposal.steps, start=1):
        yield f"{n}. {step.title}"
        yield f"   on: {step.host} {step.fingerprint}"
        yield f"   before: {step.before}"
        yield f"   after: {step.after}"
        yield f"   runs: {step.do}"
        yield f"   undo: {step.undo if step.undo is not None else step.no_undo}"


def _keys(side: Side) -> Iterator[str]:
    for vote in side.votes:
        whose = f" for {side.name(vote.instead_of)}" if vote.instead_of else ""
        factor = " with a second factor" if vote.factor else ""
        why = f": {vote.reason}" if vote.reason else ""
        yield f"{side.name(vote.person)}{whose} {_did(vote)}{factor}{why}"


def _did(vote: Vote) -> str:
    return "approved" if vote.yes else "denied"


def _end(side: Side) -> Iterator[str]:
    yield side.run.standing.capitalize()
    if side.run.summary:
        yield side.run.summary
    report = side.run.report
    if report is None:
        return
    yield from report.findings
    if report.table:
        yield "  ".join(report.table.columns)
        for row in report.table.rows:
            yield "  ".join(row)


_WORDS = {
    StepState.INTENT: "sent",
    StepState.SUCCEEDED: "done",
    StepState.FAILED: "failed",
    StepState.UNKNOWN: "unknown",
}


def _outputs(side: Side) -> Iterator[str]:
    titles = [step.title for step in side.run.proposal.steps] if side.run.proposal else []
    for n, record in sorted(side.records.items()):
        title = titles[n - 1] if n <= len(titles) else "a step"
        status = "" if record.status is None else f", exit status {record.status}"
        yield f"{n}. {title}: {_WORDS[record.state]}{status}"
        if record.trouble:
            yield record.trouble
        yield from record.output.splitlines()


def _timing(side: Side) -> Iterator[str]:
    run = side.run
    yield f"asked: {times.format_utc(run.asked)}"
    if run.started:
        yield f"waited: {times.format_span(run.started - run.asked)}"
    if run.started and run.ended:
        yield f"took: {times.format_span(run.ended - run.started)}"
    for n, record in sorted(side.records.items()):
        if record.ended:
            yield f"step {n} took: {times.format_span(record.ended - record.sent)}"


_TELLERS: Mapping[str, Callable[[Side], Iterator[str]]] = {
    "How it ended": _end,
    "Request": _request,
    "Plan": _plan,
    "What the hosts said": _outputs,
    "Keys": _keys,
    "Timing": _timing,
}

"""Reconciling: a step whose end nobody saw is asked after where it ran.

The host keeps a marker of each step (connectors.step_marker). What it says becomes the outcome,
and is proven by reading again as any other. Where it cannot say, reading again may still show that
nothing is left to do. Only what neither can tell waits for a person.
"""

import threading
from dataclasses import dataclass, field

from bot.audit import change_log, spool, verification
from bot.db import leases, runs
from bot.db.database import Transaction
from bot.execution.executor import Executor
from bot.execution.intent import name_step_marker
from bot.execution.planner import Remaining, compute_remaining
from bot.model.canonical import Canonical
from bot.model.plan import PlannedStep
from bot.model.run import Run, State, StepRecord, StepState
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_end, end_run
from connectors.command import Shell
from connectors.errors import HostError
from connectors.step_marker import StepMarker
from connectors.step_status import MarkerState, StepStatus
from runbooks import Refused

_SECOND = 1_000_000
_FIRST_WAIT, _LONGEST_WAIT = 2 * _SECOND, 600 * _SECOND
# A marker that is missing says something for as long as markers are kept, and a day less.
_KEPT = 6 * 86400
# A host that was started so soon after the step was sent may have lost its marker.
_SLACK = 10
# Longer than a shell needs from taking its place to writing down that it begins.
_SOON = 60

ASKED, ANSWERED = "asked the host", "host answered"
_OPEN = frozenset({StepState.INTENT, StepState.UNKNOWN})


@dataclass(frozen=True)
class ReconcileResult:
    """What asking came to. state: of the step; UNKNOWN where the host could not tell.

    words: for people, after the host's name. again: whether it may say more later. facts: for the
    log, None if it did not answer. status, output, trouble: of the step, as it is kept.
    """

    words: str
    state: StepState = StepState.UNKNOWN
    again: bool = False
    facts: dict[str, Canonical] | None = None
    status: int | None = None
    output: str = ""
    trouble: str = ""


@dataclass
class _Waiting:
    """When to ask again, by the database's clock; None for never."""

    at: int | None = 0
    wait: int = _FIRST_WAIT


@dataclass(frozen=True)
class _Case:
    """A run whose end nobody saw, the step that it is about, and how that is called there."""

    run: Run
    step: PlannedStep
    record: StepRecord
    mark: StepMarker
    spooled: ReconcileResult | None
    now: int

    @property
    def steps(self) -> int:
        return len(self.run.proposal.steps) if self.run.proposal else 0


@dataclass
class Reconciler:
    """Asks hosts about steps; asks again, ever more seldom, what may say more later."""

    parts: WorkflowContext
    applying: Executor
    _waiting: dict[int, _Waiting] = field(default_factory=dict[int, _Waiting])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self, tx: Transaction) -> list[Run]:
        """Return the runs whose hosts are to be asked now; each again after a longer while.

        Whoever asks may be a worker elsewhere, of whom we hear nothing here.
        """
        unknown = runs.list_unknown_outcomes(tx)
        with self._lock:
            known = {run.id for run in unknown}
            for number in [number for number in self._waiting if number not in known]:
                del self._waiting[number]
            return [run for run in unknown if self._is_due(run.id, tx.now)]

    def _is_due(self, number: int, now: int) -> bool:
        waiting = self._waiting.setdefault(number, _Waiting())
        if waiting.at is None or waiting.at > now:
            return False
        waiting.at = now + waiting.wait
        waiting.wait = min(waiting.wait * 2, _LONGEST_WAIT)
        return True

    def reconcile(self, number: int) -> None:
        """Ask about one run. Raises NoPolicy and StoreUnavailable: then nothing was concluded."""
        case = self._case(number)
        if case is None:
            self._prove(number)
            return
        finding = case.spooled or self._asked(case)
        left: Remaining | None = None
        try:
            # What may still be under way is not read: it says nothing yet.
            if not finding.again or (finding.facts is not None and _is_unmarked(finding)):
                left = compute_remaining(self.parts, case.run, self.parts.policies.current())
        except HostError as trouble:
            finding = ReconcileResult(f"cannot be read: {trouble}", again=True)
        except Refused as refused:
            finding = _refused(finding, refused)
        with self.parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.UNKNOWN:
                self._concluded(tx, run, case, finding, left)
            if not finding.again or run.state is not State.UNKNOWN:
                self._ask_no_more(number)

    def _prove(self, number: int) -> None:
        """Read the proof of a run whose every step was done, if that is all it lacks."""
        with self.parts.database.reading() as tx:
            run, records = runs.get_run(tx, number), runs.list_steps(tx, number)
        wanted = len(run.proposal.steps) if run.proposal else 0
        done = [each for each in records if each.state is StepState.SUCCEEDED]
        left, again = None, False
        if run.state is State.UNKNOWN and 0 < wanted == len(done):
            try:
                left = compute_remaining(self.parts, run, self.parts.policies.current())
            except HostError:
                again = True
            except Refused as refused:
                left = Remaining(str(refused), run.proposal.steps if run.proposal else ())
        with self.parts.database.transaction() as tx:
            held = runs.lock_run(tx, number)
            if left is not None and held.state is State.UNKNOWN:
                self.applying.conclude_proof(tx, held, left)
            if not again:
                self._ask_no_more(number)

    def _case(self, number: int) -> _Case | None:
        with self.parts.database.reading() as tx:
            run = runs.get_run(tx, number)
            if run.state is not State.UNKNOWN or run.hosts or run.proposal is None:
                return None
            record = next(
                (each for each in runs.list_steps(tx, number) if each.state in _OPEN), None
            )
            if record is None or _may_have_gone_on(tx, run, record):
                return None
            lease = leases.get_lease(tx, number)
            # The host then turns away whoever had the run before it was taken from them.
            mark = name_step_marker(tx, run, record.n, fence=lease.fence if lease else 1)
            spooled = _spooled(tx, run, record.n)
            step = run.proposal.steps[record.n - 1]
            return _Case(run, step, record, mark, spooled, tx.now)

    def _asked(self, case: _Case) -> ReconcileResult:
        step = case.step
        try:
            found = self.parts.fleet.query_step(step.host, case.mark, fingerprint=step.fingerprint)
        except HostError as trouble:
            return ReconcileResult(f"could not be asked: {trouble}", again=True)
        finding = judge_marker(found, step, case.record, case.now)
        # Another login has another home, and another setting another place: neither knows of it.
        if found.state is MarkerState.CLOSED and self._is_other_policy(case.run):
            words = (
                "does not know of it, and may have been asked in another place than was told it"
            )
            return ReconcileResult(f"{words}: the policy was changed since", facts=finding.facts)
        return finding

    def _is_other_policy(self, run: Run) -> bool:
        approved = run.proposal.policy_version if run.proposal else ""
        return self.parts.policies.current().version != approved

    def _ask_no_more(self, number: int) -> None:
        with self._lock:
            if (waiting := self._waiting.get(number)) is not None:
                waiting.at = None

    def _concluded(
        self,
        tx: Transaction,
        run: Run,
        case: _Case,
        finding: ReconcileResult,
        left: Remaining | None,
    ) -> None:
        self._told(tx, run, case, finding)
        n, host = case.record.n, case.step.host
        if finding.state is not StepState.UNKNOWN:
            self.applying.conclude(
                tx,
                run,
                n,
                finding.state,
                status=finding.status,
                output=finding.output,
                trouble=finding.trouble,
            )
        sure = finding.state is not StepState.UNKNOWN
        if (left is not None and not left.steps and finding.state is not StepState.FAILED) or (
            finding.state is StepState.SUCCEEDED and n == case.steps and left is not None
        ):
            self.applying.conclude_proof(tx, run, left)
        elif sure:
            again = f" Reading again: {left.because}." if left is not None else ""
            rest = n < case.steps and finding.state is StepState.SUCCEEDED
            unsent = " The steps after it were not sent: ask again to have them done." * rest
            said = f"Step {n} of {case.steps}: {host} {finding.words}.{again}{unsent}"
            end_run(self.parts, tx, run, State.FAILED, said)
        else:
            self._left_open(tx, run, case, finding, left)

    def _told(self, tx: Transaction, run: Run, case: _Case, finding: ReconcileResult) -> None:
        """Write down that the host was asked, unless it is as it was the last time."""
        n, host = case.record.n, case.step.host
        told = [
            each
            for each in change_log.list_entries_of_run(tx, run.id)
            if each.kind in {ASKED, ANSWERED}
        ]
        if told and told[-1].facts.get("says") == finding.words:
            return
        missed = None if finding.facts is not None else finding.words
        change_log.append_entry(tx, ASKED, run=run.id, host=host, n=n, says=missed)
        if finding.facts is not None:
            change_log.append_entry(
                tx,
                ANSWERED,
                run=run.id,
                person="",
                host=host,
                n=n,
                says=finding.words,
                **finding.facts,
            )

    def _left_open(
        self,
        tx: Transaction,
        run: Run,
        case: _Case,
        finding: ReconcileResult,
        left: Remaining | None,
    ) -> None:
        """Say to people how far it is known."""
        host = case.step.host
        told = "it says how that ended, or an owner settles"
        until = told if finding.again else "an owner settles"
        again = f" Reading again: {left.because}." if left is not None else ""
        summary = (
            f"Nobody knows whether step {case.record.n} of {case.steps} was done: {host} "
            f"{finding.words}.{again} {host} stays locked until {until} this run."
        )
        if summary != run.summary:
            announce_end(tx, runs.amend_run(tx, run, summary=summary))


def judge_marker(
    found: StepStatus, step: PlannedStep, record: StepRecord, now: int
) -> ReconcileResult:
    """Say what a host's answer means for a step. now: microseconds since 1970. Pure."""
    seconds = (now - record.sent) / _SECOND
    facts: dict[str, Canonical] = {
        "fate": found.state.value,
        "status": found.status,
        "began": found.started_at,
        "ended": found.ended_at,
        "out_bytes": found.out_bytes,
        "err_bytes": found.err_bytes,
    }
    if found.state is MarkerState.ENDED:
        return _ended(found, step, facts)
    if found.state is MarkerState.CLOSED:
        return _never_begun(found, seconds, facts)
    # One that was about to begin says more within moments, or never.
    again = found.state is not MarkerState.STARTING or seconds < _SOON
    return ReconcileResult(
        _SAYS[found.state], again=again and found.state in _MORE_LATER, facts=facts
    )


_SAYS = {
    MarkerState.STARTING: "says that it was about to begin, and nothing more",
    MarkerState.RUNNING: "says that the command is still running there",
    MarkerState.GONE: "says that it began, and was ended from outside before it had come to its "
    "end",
    MarkerState.REBOOTED: "says that it began, and was restarted before it had come to its end",
    MarkerState.UNMARKED: "keeps no marker, and cannot say",
}
_MORE_LATER = frozenset({MarkerState.STARTING, MarkerState.RUNNING, MarkerState.UNMARKED})


def _never_begun(
    found: StepStatus, seconds: float, facts: dict[str, Canonical]
) -> ReconcileResult:
    """Take a missing marker for what it is: seconds have gone by since the step was sent."""
    if found.uptime < seconds + _SLACK:
        return ReconcileResult(
            "was restarted since it was sent, and does not know of it", facts=facts
        )
    if seconds > _KEPT:
        return ReconcileResult("does not know of it, and keeps no marker for so long", facts=facts)
    words = "says that it never began, and never will. Nothing was done by it"
    return ReconcileResult(words, StepState.FAILED, facts=facts, trouble="it never began")


def _ended(found: StepStatus, step: PlannedStep, facts: dict[str, Canonical]) -> ReconcileResult:
    if not isinstance(step.do, Shell):
        raise TypeError(f"{step.host} remembers what is no command of a shell: {step.do}")
    try:
        answer = found.to_answer(step.do)
    except HostError as trouble:
        words = f"says that it ended with status {found.status}: {trouble}"
        state = StepState.FAILED if trouble.started else StepState.UNKNOWN
        return ReconcileResult(
            words, state, facts=facts, status=found.status, trouble=str(trouble)
        )
    words = "says that it was done"
    return ReconcileResult(words, StepState.SUCCEEDED, facts=facts, status=0, output=answer.text)


def _is_unmarked(finding: ReconcileResult) -> bool:
    return finding.facts is not None and finding.facts.get("fate") == MarkerState.UNMARKED


def _refused(finding: ReconcileResult, refused: Refused) -> ReconcileResult:
    """Keep what the host said; that its runbook refuses by now proves nothing either way."""
    words = f"{finding.words}; reading again: {refused}"
    return ReconcileResult(
        words,
        finding.state,
        again=finding.again,
        facts=finding.facts,
        status=finding.status,
        output=finding.output,
        trouble=finding.trouble,
    )


def _may_have_gone_on(tx: Transaction, run: Run, record: StepRecord) -> bool:
    """Say whether steps after this one may have been sent that a restored backup cannot know."""
    last = run.proposal is None or record.n == len(run.proposal.steps)
    restored = None if last else change_log.get_last_entry_of_kind(tx, verification.RESTORED)
    return restored is not None and restored.at > record.sent


def _spooled(tx: Transaction, run: Run, n: int) -> ReconcileResult | None:
    """Return what we ourselves wrote down beside the database while it could not be written."""
    for entry in reversed(change_log.list_entries_of_run(tx, run.id)):
        if entry.kind != spool.TROUBLE or entry.facts.get("n") != n:
            continue
        outcome, status = entry.facts.get("outcome"), entry.facts.get("status")
        if outcome in {StepState.SUCCEEDED, StepState.FAILED}:
            return ReconcileResult(
                f"said that it ended with status {status}, as was noted beside the database",
                StepState(outcome),
                facts={"status": status, "noted": True},
                status=status,
                trouble=str(entry.facts.get("trouble") or ""),
            )
    return None

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
from bot.execution.intent import build_step_marker
from bot.execution.planner import RemainingWork, compute_remaining
from bot.model.canonical import Canonical
from bot.model.plan import PlannedStep
from bot.model.run import Run, State, StepRecord, StepState
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from connectors.command import Shell
from connectors.errors import HostError
from connectors.step_marker import StepMarker
from connectors.step_status import MarkerState, StepStatus
from runbooks import Refused

_SECOND = 1_000_000
_FIRST_WAIT, _LONGEST_WAIT = 2 * _SECOND, 600 * _SECOND
# A marker that is missing says something for as long as markers are kept, and a day less.
_MARKER_SECONDS = 6 * 86400
# A host that was started so soon after the step was sent may have lost its marker.
_BOOT_TOLERANCE_SECONDS = 10
# Longer than a shell needs from taking its place to writing down that it begins.
_STARTING_SECONDS = 60

ASKED, ANSWERED = "host queried", "host answered"
_OPEN_STEP_STATES = frozenset({StepState.INTENT, StepState.UNKNOWN})


@dataclass(frozen=True)
class ReconcileResult:
    """What asking came to. state: of the step; UNKNOWN where the host could not tell.

    words: for people, after the host's name. again: whether it may say more later. facts: for the
    log, None if it did not answer. status, output, trouble: of the step, as it is kept.
    """

    description: str
    state: StepState = StepState.UNKNOWN
    can_retry: bool = False
    facts: dict[str, Canonical] | None = None
    status: int | None = None
    output: str = ""
    error: str = ""


@dataclass
class _Retry:
    """When to ask again, by the database's clock; None for never."""

    next_at: int | None = 0
    delay: int = _FIRST_WAIT


@dataclass(frozen=True)
class _UnknownStep:
    """A run whose end nobody saw, the step that it is about, and how that is called there."""

    run: Run
    step: PlannedStep
    record: StepRecord
    marker: StepMarker
    spooled_result: ReconcileResult | None
    now: int

    @property
    def step_count(self) -> int:
        return len(self.run.plan.steps) if self.run.plan else 0


@dataclass
class Reconciler:
    """Asks hosts about steps; asks again, ever more seldom, what may say more later."""

    context: WorkflowContext
    executor: Executor
    _retries: dict[int, _Retry] = field(default_factory=dict[int, _Retry])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list_due_runs(self, tx: Transaction) -> list[Run]:
        """Return the runs whose hosts are to be asked now; each again after a longer while.

        Whoever asks may be a worker elsewhere, of whom we hear nothing here.
        """
        unknown = runs.list_unknown_outcomes(tx)
        with self._lock:
            known = {run.id for run in unknown}
            for number in [number for number in self._retries if number not in known]:
                del self._retries[number]
            return [run for run in unknown if self._is_due(run.id, tx.now)]

    def _is_due(self, number: int, now: int) -> bool:
        waiting = self._retries.setdefault(number, _Retry())
        if waiting.next_at is None or waiting.next_at > now:
            return False
        waiting.next_at = now + waiting.delay
        waiting.delay = min(waiting.delay * 2, _LONGEST_WAIT)
        return True

    def reconcile_run(self, number: int) -> None:
        """Ask about one run. Raises NoPolicy and StoreUnavailable: then nothing was concluded."""
        case = self._load_unknown_step(number)
        if case is None:
            self._verify_finished_run(number)
            return
        finding = case.spooled_result or self._query_host(case)
        left: RemainingWork | None = None
        try:
            # What may still be under way is not read: it says nothing yet.
            if not finding.can_retry or (finding.facts is not None and _is_unmarked(finding)):
                left = compute_remaining(
                    self.context, case.run, self.context.policies.get_policy()
                )
        except HostError as trouble:
            finding = ReconcileResult(f"cannot be read: {trouble}", can_retry=True)
        except Refused as refused:
            finding = _add_refusal(finding, refused)
        with self.context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.UNKNOWN:
                self._record_result(tx, run, case, finding, left)
            if not finding.can_retry or run.state is not State.UNKNOWN:
                self._stop_retrying(number)

    def _verify_finished_run(self, number: int) -> None:
        """Read the proof of a run whose every step was done, if that is all it lacks."""
        with self.context.database.reading() as tx:
            run, records = runs.get_run(tx, number), runs.list_steps(tx, number)
        wanted = len(run.plan.steps) if run.plan else 0
        done = [each for each in records if each.state is StepState.SUCCEEDED]
        left, again = None, False
        if run.state is State.UNKNOWN and 0 < wanted == len(done):
            try:
                left = compute_remaining(self.context, run, self.context.policies.get_policy())
            except HostError:
                again = True
            except Refused as refused:
                left = RemainingWork(str(refused), run.plan.steps if run.plan else ())
        with self.context.database.transaction() as tx:
            held = runs.lock_run(tx, number)
            if left is not None and held.state is State.UNKNOWN:
                self.executor.record_verification(tx, held, left)
            if not again:
                self._stop_retrying(number)

    def _load_unknown_step(self, number: int) -> _UnknownStep | None:
        with self.context.database.reading() as tx:
            run = runs.get_run(tx, number)
            if run.state is not State.UNKNOWN or run.hosts or run.plan is None:
                return None
            record = next(
                (each for each in runs.list_steps(tx, number) if each.state in _OPEN_STEP_STATES),
                None,
            )
            if record is None or _may_have_later_steps(tx, run, record):
                return None
            lease = leases.get_lease(tx, number)
            # The host then turns away whoever had the run before it was taken from them.
            mark = build_step_marker(
                tx, run, record.step_number, fence=lease.fence if lease else 1
            )
            spooled = _find_spooled_result(tx, run, record.step_number)
            step = run.plan.steps[record.step_number - 1]
            return _UnknownStep(run, step, record, mark, spooled, tx.now)

    def _query_host(self, unknown_step: _UnknownStep) -> ReconcileResult:
        step = unknown_step.step
        try:
            found = self.context.fleet.query_step(
                step.host, unknown_step.marker, fingerprint=step.fingerprint
            )
        except HostError as trouble:
            return ReconcileResult(f"could not be asked: {trouble}", can_retry=True)
        finding = interpret_marker(found, step, unknown_step.record, unknown_step.now)
        # Another login has another home, and another setting another place: neither knows of it.
        if found.state is MarkerState.CLOSED and self._is_policy_changed(unknown_step.run):
            words = (
                "does not know of it, and may have been asked in another place than was told it"
            )
            return ReconcileResult(f"{words}: the policy was changed since", facts=finding.facts)
        return finding

    def _is_policy_changed(self, run: Run) -> bool:
        approved = run.plan.policy_version if run.plan else ""
        return self.context.policies.get_policy().version != approved

    def _stop_retrying(self, number: int) -> None:
        with self._lock:
            if (waiting := self._retries.get(number)) is not None:
                waiting.next_at = None

    def _record_result(
        self,
        tx: Transaction,
        run: Run,
        unknown_step: _UnknownStep,
        result: ReconcileResult,
        remaining: RemainingWork | None,
    ) -> None:
        self._log_query(tx, run, unknown_step, result)
        n, host = unknown_step.record.step_number, unknown_step.step.host
        if result.state is not StepState.UNKNOWN:
            self.executor.record_reconciled_step(
                tx,
                run,
                n,
                result.state,
                status=result.status,
                output=result.output,
                error=result.error,
            )
        sure = result.state is not StepState.UNKNOWN
        if (
            remaining is not None and not remaining.steps and result.state is not StepState.FAILED
        ) or (
            result.state is StepState.SUCCEEDED
            and n == unknown_step.step_count
            and remaining is not None
        ):
            self.executor.record_verification(tx, run, remaining)
        elif sure:
            again = f" Reading again: {remaining.current_state}." if remaining is not None else ""
            rest = n < unknown_step.step_count and result.state is StepState.SUCCEEDED
            unsent = " The steps after it were not sent: ask again to have them done." * rest
            said = (
                f"Step {n} of {unknown_step.step_count}: {host} "
                f"{result.description}.{again}{unsent}"
            )
            end_run(self.context, tx, run, State.FAILED, said)
        else:
            self._record_unknown_outcome(tx, run, unknown_step, result, remaining)

    def _log_query(
        self, tx: Transaction, run: Run, unknown_step: _UnknownStep, result: ReconcileResult
    ) -> None:
        """Write down that the host was asked, unless it is as it was the last time."""
        n, host = unknown_step.record.step_number, unknown_step.step.host
        told = [
            each
            for each in change_log.list_entries_of_run(tx, run.id)
            if each.kind in {ASKED, ANSWERED}
        ]
        if told and told[-1].facts.get("result") == result.description:
            return
        missed = None if result.facts is not None else result.description
        change_log.append_entry(tx, ASKED, run=run.id, host=host, step=n, result=missed)
        if result.facts is not None:
            change_log.append_entry(
                tx,
                ANSWERED,
                run=run.id,
                person="",
                host=host,
                step=n,
                result=result.description,
                **result.facts,
            )

    def _record_unknown_outcome(
        self,
        tx: Transaction,
        run: Run,
        unknown_step: _UnknownStep,
        result: ReconcileResult,
        remaining: RemainingWork | None,
    ) -> None:
        """Say to people how far it is known."""
        host = unknown_step.step.host
        told = "it says how that ended, or an owner resolves"
        until = told if result.can_retry else "an owner resolves"
        again = f" Reading again: {remaining.current_state}." if remaining is not None else ""
        summary = (
            f"Nobody knows whether step {unknown_step.record.step_number} of "
            f"{unknown_step.step_count} was done: {host} "
            f"{result.description}.{again} {host} stays locked until {until} this run."
        )
        if summary != run.summary:
            announce_run_change(tx, runs.amend_run(tx, run, summary=summary))


def interpret_marker(
    marker: StepStatus, step: PlannedStep, record: StepRecord, now: int
) -> ReconcileResult:
    """Say what a host's answer means for a step. now: microseconds since 1970. Pure."""
    seconds = (now - record.sent_at) / _SECOND
    facts: dict[str, Canonical] = {
        "marker": marker.state.value,
        "exit_status": marker.status,
        "started_at": marker.started_at,
        "ended_at": marker.ended_at,
        "out_bytes": marker.out_bytes,
        "err_bytes": marker.err_bytes,
    }
    if marker.state is MarkerState.ENDED:
        return _interpret_ended_step(marker, step, facts)
    if marker.state is MarkerState.CLOSED:
        return _interpret_missing_marker(marker, seconds, facts)
    # One that was about to begin says more within moments, or never.
    again = marker.state is not MarkerState.STARTING or seconds < _STARTING_SECONDS
    return ReconcileResult(
        _FATE_DESCRIPTIONS[marker.state],
        can_retry=again and marker.state in _RETRYABLE_FATES,
        facts=facts,
    )


_FATE_DESCRIPTIONS = {
    MarkerState.STARTING: "says that it was about to begin, and nothing more",
    MarkerState.RUNNING: "says that the command is still running there",
    MarkerState.GONE: "says that it began, and was ended from outside before it had come to its "
    "end",
    MarkerState.REBOOTED: "says that it began, and was restarted before it had come to its end",
    MarkerState.UNMARKED: "keeps no marker, and cannot say",
}
_RETRYABLE_FATES = frozenset({MarkerState.STARTING, MarkerState.RUNNING, MarkerState.UNMARKED})


def _interpret_missing_marker(
    marker: StepStatus, seconds: float, facts: dict[str, Canonical]
) -> ReconcileResult:
    """Take a missing marker for what it is: seconds have gone by since the step was sent."""
    if marker.uptime < seconds + _BOOT_TOLERANCE_SECONDS:
        return ReconcileResult(
            "was restarted since it was sent, and does not know of it", facts=facts
        )
    if seconds > _MARKER_SECONDS:
        return ReconcileResult("does not know of it, and keeps no marker for so long", facts=facts)
    words = "says that it never began, and never will. Nothing was done by it"
    return ReconcileResult(words, StepState.FAILED, facts=facts, error="it never began")


def _interpret_ended_step(
    marker: StepStatus, step: PlannedStep, facts: dict[str, Canonical]
) -> ReconcileResult:
    if not isinstance(step.command, Shell):
        raise TypeError(f"{step.host} remembers what is no command of a shell: {step.command}")
    try:
        answer = marker.to_answer(step.command)
    except HostError as trouble:
        words = f"says that it ended with status {marker.status}: {trouble}"
        state = StepState.FAILED if trouble.started else StepState.UNKNOWN
        return ReconcileResult(words, state, facts=facts, status=marker.status, error=str(trouble))
    words = "says that it was done"
    return ReconcileResult(words, StepState.SUCCEEDED, facts=facts, status=0, output=answer.text)


def _is_unmarked(result: ReconcileResult) -> bool:
    return result.facts is not None and result.facts.get("marker") == MarkerState.UNMARKED


def _add_refusal(result: ReconcileResult, refusal: Refused) -> ReconcileResult:
    """Keep what the host said; that its runbook refuses by now proves nothing either way."""
    words = f"{result.description}; reading again: {refusal}"
    return ReconcileResult(
        words,
        result.state,
        can_retry=result.can_retry,
        facts=result.facts,
        status=result.status,
        output=result.output,
        error=result.error,
    )


def _may_have_later_steps(tx: Transaction, run: Run, record: StepRecord) -> bool:
    """Say whether steps after this one may have been sent that a restored backup cannot know."""
    last = run.plan is None or record.step_number == len(run.plan.steps)
    restored = None if last else change_log.get_last_entry_of_kind(tx, verification.RESTORED_KIND)
    return restored is not None and restored.at > record.sent_at


def _find_spooled_result(tx: Transaction, run: Run, step_number: int) -> ReconcileResult | None:
    """Return what we ourselves wrote down beside the database while it could not be written."""
    for entry in reversed(change_log.list_entries_of_run(tx, run.id)):
        if entry.kind != spool.LOGGING_FAILED_KIND or entry.facts.get("step") != step_number:
            continue
        outcome, status = entry.facts.get("outcome"), entry.facts.get("exit_status")
        if outcome in {StepState.SUCCEEDED, StepState.FAILED}:
            return ReconcileResult(
                f"said that it ended with status {status}, as was noted beside the database",
                StepState(outcome),
                facts={"exit_status": status, "noted": True},
                status=status,
                error=str(entry.facts.get("error") or ""),
            )
    return None

"""Reconcile steps with an unknown outcome by querying the host.

A change on probation is waited for first: its host restores what was, or has kept the change.
The host keeps a marker of each step (connectors.step_marker), which provides the outcome; an
enrolled host has a record, which only root writes. The run is then verified like any other.
Without either, planning again may show that nothing is left to do. Only where none of it helps
does the run wait for an owner.
"""

import threading
from dataclasses import dataclass, field, replace
from functools import partial

from bot.audit import change_log, events
from bot.db import leases, runs
from bot.db.database import Transaction
from bot.execution.executor import Executor, StepOutcome, find_signed_step
from bot.execution.intent import build_step_marker
from bot.execution.planner import RemainingWork, compute_remaining
from bot.model.plan import PlannedStep
from bot.model.run import Run, State, StepRecord, StepState
from bot.model.times import MINUTE, SECOND
from bot.queries.open_probation import OpenProbation, find_open_probation
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from connectors.command import Shell
from connectors.errors import CommandError, HostError
from connectors.probation import DEVICE, ProbationStatus, query_probation
from connectors.run_signed import SignedStep
from connectors.step_marker import StepMarker
from connectors.step_status import NO_STATUS, MarkerState, StepStatus
from runbooks import Refused

_FIRST_WAIT, _LONGEST_WAIT = 2 * SECOND, 10 * MINUTE
# A missing marker is meaningful only within the time that hosts keep markers, less a day.
_MARKER_SECONDS = 6 * 86400
# A host that booted so soon after the step was sent may have lost its marker.
_BOOT_TOLERANCE_SECONDS = 10
# Longer than a shell needs from creating the marker to recording its start.
_STARTING_SECONDS = 60

_OPEN_STEP_STATES = frozenset({StepState.INTENT, StepState.UNKNOWN})


@dataclass(frozen=True)
class ReconcileResult:
    """What a host returned about a step."""

    description: str
    """For people, after the name of the host."""
    state: StepState = StepState.UNKNOWN
    """The state of the step; UNKNOWN if the host does not know it."""
    can_retry: bool = False
    """Whether the host may return more later."""
    answer: events.HostAnswered | None = None
    """What the log records; None if the host did not answer."""
    status: int | None = None
    output: str = ""
    error: str = ""


@dataclass
class _Retry:
    """When to query the host again, by the database's clock; None for never."""

    next_at: int | None = 0
    delay: int = _FIRST_WAIT


@dataclass(frozen=True)
class _UnknownStep:
    """A run with an unknown outcome, its open step, and the marker of the step."""

    run: Run
    step: PlannedStep
    record: StepRecord
    marker: StepMarker
    spooled_result: ReconcileResult | None
    now: int


@dataclass
class Reconciler:
    """Queries hosts about steps, and repeats the query after growing delays."""

    context: WorkflowContext
    executor: Executor
    _retries: dict[int, _Retry] = field(default_factory=dict[int, _Retry])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list_due_runs(self, tx: Transaction) -> list[Run]:
        """Return the runs whose hosts to query now; each again after a longer delay.

        The query may be made by a worker in another process.
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
        """Query the host of a run. Raises NoPolicyError and StoreUnavailable."""
        if self._await_probation(number):
            return
        step = self._load_unknown_step(number)
        if step is None:
            self._verify_finished_run(number)
            return
        result = step.spooled_result or self._query_host(step)
        left: RemainingWork | None = None
        try:
            # A step that may still be running is not read: the state of the host is not final.
            if not result.can_retry or (_is_unmarked(result)):
                left = compute_remaining(
                    self.context, step.run, self.context.policies.get_policy()
                )
        except HostError as error:
            result = ReconcileResult(f"cannot be read: {error}", can_retry=True)
        except Refused as refused:
            result = _add_refusal(result, refused)
        with self.context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.UNKNOWN:
                self._record_result(tx, run, step, result, left)
            if not result.can_retry or run.state is not State.UNKNOWN:
                self._stop_retrying(number)

    def _await_probation(self, number: int) -> bool:
        """Return whether a change is still on probation, or the end of it ended the run."""
        with self.context.database.reading() as tx:
            run = runs.get_run(tx, number)
            opened = find_open_probation(tx, run) if run.state is State.UNKNOWN else None
        if opened is None:
            return False
        try:
            status = self.context.fleet.run_query(opened.host, query_probation(opened.name))
        except HostError as error:
            self._amend_summary(
                number,
                f"{opened} is on probation: the host restores what was by itself. It cannot be "
                f"read now: {error}.",
            )
            return True
        if status.armed == opened.change and not status.is_lost:
            self._amend_summary(
                number,
                f"{opened} is on probation: the host restores what was, and then this run ends.",
                retry_in=max(status.seconds_left, 0) + 2,
            )
            return True
        if status.restored == opened.change:
            self._record_restore(number, opened, status)
            return True
        if opened.name == DEVICE.name:
            return self._await_device(number, opened)
        return self._end_without_restore(number, opened)

    def _await_device(self, number: int, opened: OpenProbation) -> bool:
        """Find out from its configuration whether a device reverted a change or kept it."""
        with self.context.database.reading() as tx:
            run = runs.get_run(tx, number)
        try:
            left = compute_remaining(self.context, run, self.context.policies.get_policy())
        except HostError as error:
            self._amend_summary(number, f"{opened.host} cannot be read: {error}.")
            return True
        except Refused as refused:
            # It refuses only what is not in force.
            left = RemainingWork(str(refused), run.plan.steps if run.plan else ())
        if left.steps:
            self._record_restore(number, opened, ProbationStatus(restored=opened.change))
        return bool(left.steps)

    def _record_restore(self, number: int, opened: OpenProbation, status: ProbationStatus) -> None:
        why = (
            f"Restored by host: {opened.host} restored {opened.name}, since the change was not "
            "confirmed"
            if status.restore_status == 0
            else f"The restore by {opened.host} failed with status {status.restore_status}: check "
            f"{opened.name} there"
        )
        with self.context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.UNKNOWN:
                change_log.append_entry(
                    tx,
                    events.RestoredByHost(
                        probation=opened.name, exit_status=status.restore_status
                    ),
                    run=run.id,
                    host=opened.host,
                )
                end_run(self.context, tx, run, State.FAILED, f"{why}.{_describe_failure(tx, run)}")
        self._stop_retrying(number)

    def _end_without_restore(self, number: int, opened: OpenProbation) -> bool:
        """End a run whose every sent step has an outcome; return False if one has none."""
        with self.context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            records = runs.list_steps(tx, number)
            if run.state is not State.UNKNOWN or any(
                each.state in _OPEN_STEP_STATES for each in records
            ):
                return False
            summary = (
                f"{opened.host} has no record of the probation: check {opened.name} there."
                f"{_describe_failure(tx, run)}"
            )
            end_run(self.context, tx, run, State.FAILED, summary)
        self._stop_retrying(number)
        return True

    def _amend_summary(self, number: int, summary: str, *, retry_in: int | None = None) -> None:
        """Show what is known, and query the host again after *retry_in* seconds."""
        with self.context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            summary += _describe_failure(tx, run)
            if run.state is State.UNKNOWN:
                _show_summary(tx, run, summary)
            with self._lock:
                if retry_in is not None and number in self._retries:
                    self._retries[number] = _Retry(tx.now + retry_in * SECOND)

    def _verify_finished_run(self, number: int) -> None:
        """Verify a run whose every step succeeded, if that is all that is missing."""
        with self.context.database.reading() as tx:
            run, records = runs.get_run(tx, number), runs.list_steps(tx, number)
        done = [each for each in records if each.state is StepState.SUCCEEDED]
        left, again = None, False
        if run.state is State.UNKNOWN and 0 < run.step_count == len(done):
            try:
                left = compute_remaining(
                    self.context, run, self.context.policies.get_policy(), verifies=True
                )
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
            # With this fencing token, the host refuses the worker that had the run before.
            marker = build_step_marker(
                tx, run, record.step_number, fence=lease.fence if lease else 1
            )
            spooled = _find_spooled_result(tx, run, record.step_number)
            step = run.plan.steps[record.step_number - 1]
            return _UnknownStep(run, step, record, marker, spooled, tx.now)

    def _query_host(self, unknown_step: _UnknownStep) -> ReconcileResult:
        step = unknown_step.step
        try:
            found = self._query_status(unknown_step)
        except HostError as error:
            return ReconcileResult(f"could not be asked: {error}", can_retry=True)
        result = interpret_marker(found, step, unknown_step.record, unknown_step.now)
        # Another login has another home, and another setting another place: neither knows of it.
        if found.state is MarkerState.CLOSED and self._is_policy_changed(unknown_step.run):
            words = (
                "has no record of it, and the query may have gone to another address than the step"
            )
            return ReconcileResult(f"{words}: the policy was changed since", answer=result.answer)
        return result

    def _query_status(self, unknown_step: _UnknownStep) -> StepStatus:
        step, fleet = unknown_step.step, self.context.fleet
        number = unknown_step.record.step_number
        signed = find_signed_step(self.context, unknown_step.run, number)
        if signed is not None:
            return self._query_record(step, signed)
        # Only a shell keeps markers. A BMC, which the host may know nothing of, has none.
        if not isinstance(step.command, Shell):
            return NO_STATUS
        return fleet.query_step(step.host, unknown_step.marker, fingerprint=step.fingerprint)

    def _query_record(self, step: PlannedStep, signed: SignedStep) -> StepStatus:
        """Query the record of an enrolled host; a step that has not begun is given up there.

        The host refuses that where a signature counts no more: then the step stays WAITING.
        """
        ask = partial(
            self.context.fleet.query_with_changer, step.host, fingerprint=step.fingerprint
        )
        status = ask(signed.query_record())
        if status.state is not MarkerState.WAITING:
            return status
        try:
            return ask(signed.query_after_closing())
        except CommandError:
            return ask(signed.query_record())

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
        is_known = result.state is not StepState.UNKNOWN
        if is_known:
            outcome = StepOutcome(result.state, result.status, result.output, result.error)
            self.executor.record_step_outcome(tx, run, n, outcome)
        has_later_steps = n < run.step_count and result.state is StepState.SUCCEEDED
        is_complete = result.state is StepState.SUCCEEDED and not has_later_steps
        may_be_complete = (
            remaining is not None and not remaining.steps and result.state is not StepState.FAILED
        )
        if remaining is not None and (is_complete or may_be_complete):
            self.executor.record_verification(tx, run, remaining)
            return
        current = f" Current state: {remaining.current_state}." if remaining is not None else ""
        found = f"{host} {result.description}.{current}"
        if is_known:
            unsent = " Later steps were not sent: request it again to execute them."
            summary = f"Step {n} of {run.step_count}: {found}{unsent * has_later_steps}"
            end_run(self.context, tx, run, State.FAILED, summary)
            return
        until = "the host returns the outcome, or an owner resolves" * result.can_retry
        summary = (
            f"The outcome of step {n} of {run.step_count} is unknown: {found} {host} stays locked "
            f"until {until or 'an owner resolves'} this run."
        )
        _show_summary(tx, run, summary)

    def _log_query(
        self, tx: Transaction, run: Run, unknown_step: _UnknownStep, result: ReconcileResult
    ) -> None:
        """Log the query and its result, unless the result is the same as the last time."""
        n, host = unknown_step.record.step_number, unknown_step.step.host
        kinds = (events.HostQueried.kind, events.HostAnswered.kind)
        entries = change_log.list_entries_of_run(tx, run.id, kinds)
        last = entries[-1].event if entries else None
        if (
            isinstance(last, events.HostQueried | events.HostAnswered)
            and last.result == result.description
        ):
            return
        missed = "" if result.answer else result.description
        queried = events.HostQueried(step=n, result=missed)
        change_log.append_entry(tx, queried, run=run.id, host=host)
        if result.answer:
            answered = replace(result.answer, result=result.description)
            change_log.append_entry(tx, answered, run=run.id, host=host)


def _show_summary(tx: Transaction, run: Run, summary: str) -> None:
    """Announce what is known, unless it is the same as the last time."""
    summary = tx.redactor.redact_for_storage(summary)
    if summary != run.summary:
        announce_run_change(tx, runs.amend_run(tx, run, summary=summary))


def _describe_failure(tx: Transaction, run: Run) -> str:
    """Return a sentence about the step of a run that did not succeed, after a blank."""
    for record in runs.list_steps(tx, run.id):
        if record.state is not StepState.SUCCEEDED:
            error = record.error or "its outcome is unknown"
            return f" Step {record.step_number} of {run.step_count}: {error}."
    return ""


def interpret_marker(
    marker: StepStatus, step: PlannedStep, record: StepRecord, now: int
) -> ReconcileResult:
    """Return what the marker means for a step. now: microseconds since 1970. Pure."""
    seconds = (now - record.sent_at) / SECOND
    answer = events.HostAnswered(
        step=record.step_number,
        marker=marker.state.value,
        exit_status=marker.status,
        started_at=marker.started_at,
        ended_at=marker.ended_at,
        out_bytes=marker.out_bytes,
        err_bytes=marker.err_bytes,
    )
    if marker.state is MarkerState.ENDED:
        return _interpret_ended_step(marker, step, answer)
    if marker.state is MarkerState.GIVEN_UP:
        return _describe_unstarted_step(answer)
    if marker.state is MarkerState.CLOSED:
        return _interpret_missing_marker(marker, seconds, answer)
    # A step that was about to start is recorded within seconds, or never.
    may_change = marker.state is not MarkerState.STARTING or seconds < _STARTING_SECONDS
    return ReconcileResult(
        _FATE_DESCRIPTIONS[marker.state],
        can_retry=may_change and marker.state in _RETRYABLE_FATES,
        answer=answer,
    )


_FATE_DESCRIPTIONS = {
    MarkerState.STARTING: "recorded that the step was about to start, and nothing more",
    MarkerState.RUNNING: "returned that the command is still running",
    MarkerState.GONE: "returned that the step started, and was killed before it finished",
    MarkerState.REBOOTED: "returned that the step started, and the host restarted before "
    "it finished",
    MarkerState.UNMARKED: "keeps no marker of the step",
    MarkerState.WAITING: "returned that the step has not started, and still could: it refuses to "
    "give it up until the plan expires",
    MarkerState.INTERRUPTED: "returned that the step began, and has no record of how it ended",
}
_RETRYABLE_FATES = frozenset(
    {MarkerState.STARTING, MarkerState.RUNNING, MarkerState.UNMARKED, MarkerState.WAITING}
)


def _interpret_missing_marker(
    marker: StepStatus, seconds: float, answer: events.HostAnswered
) -> ReconcileResult:
    """Interpret a missing marker. seconds: time since the step was sent."""
    if marker.uptime < seconds + _BOOT_TOLERANCE_SECONDS:
        return ReconcileResult(
            "has restarted since the step was sent, and has no record of it", answer=answer
        )
    if seconds > _MARKER_SECONDS:
        return ReconcileResult(
            "has no record of it any more, because hosts delete old markers", answer=answer
        )
    return _describe_unstarted_step(answer)


def _describe_unstarted_step(answer: events.HostAnswered) -> ReconcileResult:
    words = "returned that the step never started, and never will. It changed nothing"
    return ReconcileResult(words, StepState.FAILED, answer=answer, error="the step never started")


def _interpret_ended_step(
    marker: StepStatus, step: PlannedStep, answer: events.HostAnswered
) -> ReconcileResult:
    if not isinstance(step.command, Shell):
        raise TypeError(
            f"{step.host} has a marker of a step that is not a shell command: {step.command}"
        )
    try:
        command_answer = marker.to_answer(step.command)
    except HostError as error:
        words = f"returned that it exited with status {marker.status}: {error}"
        state = StepState.FAILED if error.started else StepState.UNKNOWN
        return ReconcileResult(words, state, answer=answer, status=marker.status, error=str(error))
    words = "returned that the step succeeded"
    return ReconcileResult(
        words, StepState.SUCCEEDED, answer=answer, status=0, output=command_answer.text
    )


def _is_unmarked(result: ReconcileResult) -> bool:
    return result.answer is not None and result.answer.marker == MarkerState.UNMARKED


def _add_refusal(result: ReconcileResult, refusal: Refused) -> ReconcileResult:
    """Keep the result of the host: a refusal of the runbook proves neither outcome."""
    return replace(result, description=f"{result.description}; planning again: {refusal}")


def _may_have_later_steps(tx: Transaction, run: Run, record: StepRecord) -> bool:
    """Return whether later steps may have been sent that a restored backup does not contain."""
    is_last = run.plan is None or record.step_number == run.step_count
    restored = None if is_last else change_log.get_last_entry_of_kind(tx, events.Restored.kind)
    return restored is not None and restored.at > record.sent_at


def _find_spooled_result(tx: Transaction, run: Run, step_number: int) -> ReconcileResult | None:
    """Return the outcome that was spooled while the database could not be written."""
    kinds = [events.LoggingFailed.kind]
    for entry in reversed(change_log.list_entries_of_run(tx, run.id, kinds)):
        event = entry.event
        if not isinstance(event, events.LoggingFailed) or event.step != step_number:
            continue
        if event.outcome in {StepState.SUCCEEDED, StepState.FAILED}:
            status = event.exit_status
            return ReconcileResult(
                f"returned exit status {status}, as recorded in the spool",
                StepState(event.outcome),
                answer=events.HostAnswered(step=step_number, exit_status=status, noted=True),
                status=status,
                error=event.error,
            )
    return None

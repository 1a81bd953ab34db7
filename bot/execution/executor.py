"""Applying: step by step, each intent committed before its command, each outcome after it."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bot import observability
from bot.audit import change_log, output
from bot.audit.spool import LOGGING_FAILED_KIND
from bot.db import live_output, runs
from bot.db.database import StoreRefused, StoreUnavailable, Transaction
from bot.db.lease_keeper import HeldLease
from bot.execution import follow_up, gate, recovery
from bot.execution.intent import StepIntent
from bot.execution.live_output import LiveOutputWriter
from bot.execution.planner import RemainingWork, compute_remaining
from bot.model.canonical import Canonical
from bot.model.run import Run, State, StepRecord, StepState
from bot.policy import NoPolicyError
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from connectors.command import Command, RunHooks, Shell
from connectors.errors import HostError, prefix_host
from runbooks import Refused

log = logging.getLogger(__name__)

# So often something is written that the database refuses and does not merely miss.
_MAX_REFUSED_WRITES = 4


@dataclass(frozen=True)
class _StepOutcome:
    state: StepState
    status: int | None = None
    output: str = ""
    error: str = ""


class Executor:
    """Carries approved runs out. closing: set when the process is about to end."""

    def __init__(self, context: WorkflowContext, closing: threading.Event) -> None:
        self._context, self._closing = context, closing
        self._live_output = LiveOutputWriter(context.database)

    def start_run(self, number: int) -> None:
        """Claim the run, look again, pass the gate, do every step, and prove it."""
        claimed = gate.claim_run(self._context, number)
        if claimed is None:
            return
        try:
            self._check_and_execute(claimed)
        finally:
            self._context.lease_keeper.drop_lease(claimed.held_lease)

    def resume_run(self, number: int) -> None:
        """Do what is left of a run that another worker began."""
        claimed = gate.resume_run(self._context, number)
        if claimed is None:
            return
        try:
            self._execute_steps(claimed.run, claimed.held_lease, steps_done=claimed.steps_done)
        finally:
            self._context.lease_keeper.drop_lease(claimed.held_lease)

    def _check_and_execute(self, claimed_run: gate.ClaimedRun) -> None:
        try:
            left = compute_remaining(
                self._context, claimed_run.run, self._context.policies.get_policy()
            )
        except Refused as refused:
            self._end_before_first_step(
                claimed_run, State.STALE, f"After this was shown, this came up: {refused}"
            )
            return
        except HostError as trouble:
            if self._closing.is_set():
                self._hand_over_run(claimed_run.held_lease)
                return
            said = prefix_host(claimed_run.run.host, str(trouble))
            self._end_before_first_step(claimed_run, State.FAILED, f"{said}. Nothing was sent.")
            return
        if self._closing.is_set():
            self._hand_over_run(claimed_run.held_lease)
            return
        with observability.trace_span("gate", run=claimed_run.run.id, host=claimed_run.run.host):
            first = gate.pass_gate(self._context, claimed_run, left)
        if first is not None:
            self._execute_steps(first.run, claimed_run.held_lease, first)

    def _hand_over_run(self, held_lease: HeldLease) -> None:
        """Let others have the run at once, and not only when nobody has heard of us for long."""
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, held_lease.run_id)
            under_way = run.state in {State.STARTING, State.RUNNING}
            if under_way and self._context.lease_keeper.regain_lease(tx, held_lease):
                recovery.hand_over_run(self._context, tx, run)

    def _end_before_first_step(
        self, claimed_run: gate.ClaimedRun, state: State, summary: str
    ) -> None:
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, claimed_run.run.id)
            if run.state is State.STARTING and self._context.lease_keeper.regain_lease(
                tx, claimed_run.held_lease
            ):
                end_run(self._context, tx, run, state, summary)

    def _execute_steps(
        self,
        run: Run,
        held_lease: HeldLease,
        intent: StepIntent | None = None,
        *,
        steps_done: int = 0,
    ) -> None:
        """Do every step that is left. intent: of the first of them, if that has passed the gate.

        done: how many steps were done before.
        """
        count = len(run.plan.steps) if run.plan else 0
        for n in range(steps_done + 1, count + 1):
            if intent is None and self._closing.is_set():
                # No step is under way: whoever takes it goes on, or ends it with what was done.
                self._hand_over_run(held_lease)
                return
            intent = intent or gate.authorise_next_step(self._context, run, held_lease, n)
            if intent is None:
                return
            with observability.trace_span(
                "step", run=run.id, host=intent.step.host, step=n
            ) as more:
                outcome = self._execute_step(intent, held_lease)
                more({"outcome": outcome.state.value})
            intent = None
            ours = self._write_until_stored(
                lambda tx, n=n, outcome=outcome: self._record_own_step(
                    tx, run, held_lease, n, outcome
                ),
                run_id=run.id,
                facts=_build_outcome_facts(n, outcome),
            )
            if not ours:
                return
            if outcome.state is not StepState.SUCCEEDED:
                self._end_after_failed_step(run, held_lease, n, outcome)
                return
        with observability.trace_span("proof", run=run.id, host=run.host):
            self._verify_run(run, held_lease)

    def _execute_step(self, intent: StepIntent, held_lease: HeldLease) -> _StepOutcome:
        """Send one command. What goes wrong after it may have begun is unknown, never failed."""
        step, command = intent.step, _add_checkpoint_note(intent)
        with self._live_output.capture_step(intent.run.id, intent.step_number) as (
            tail,
            on_output,
        ):
            hooks = RunHooks(lambda: self._context.lease_keeper.check_lease(held_lease), on_output)
            try:
                self._context.lease_keeper.check_lease(held_lease)
                answer = self._context.fleet.run_command(
                    step.host, command, fingerprint=step.fingerprint, hooks=hooks
                )
            except HostError as trouble:
                state = StepState.UNKNOWN if trouble.started is None else StepState.FAILED
                return _StepOutcome(state, output=tail.text, error=str(trouble))
            except Exception:
                log.exception("run %d step %d", intent.run.id, intent.step_number)
                return _StepOutcome(
                    StepState.UNKNOWN, error="a fault in Keyturn itself; see its log"
                )
        return _StepOutcome(StepState.SUCCEEDED, answer.status, answer.text)

    def record_reconciled_step(
        self,
        tx: Transaction,
        run: Run,
        n: int,
        state: StepState,
        *,
        status: int | None,
        output: str,
        error: str,
    ) -> None:
        """Write down what has become of a step that was asked after."""
        self._record_step_outcome(tx, run, n, _StepOutcome(state, status, output, error))

    def _record_own_step(
        self, tx: Transaction, run: Run, held_lease: HeldLease, n: int, outcome: _StepOutcome
    ) -> bool:
        """Write down what became of a step; False if others have taken the run over meanwhile."""
        if self._lock_own_run(tx, run, held_lease) is None:
            why = "It came when somebody else had taken the run over, who could not know it"
            change_log.append_entry(
                tx,
                LOGGING_FAILED_KIND,
                run=run.id,
                person="",
                host="",
                reason=why,
                **_build_outcome_facts(n, outcome),
            )
            return False
        self._record_step_outcome(tx, run, n, outcome)
        return True

    def _record_step_outcome(
        self, tx: Transaction, run: Run, n: int, outcome: _StepOutcome
    ) -> None:
        said = output.prepare_output(tx, outcome.output)
        runs.record_outcome(
            tx,
            StepRecord(
                run.id, n, outcome.state, 0, tx.now, outcome.status, said.text, outcome.error
            ),
        )
        entry = change_log.append_entry(
            tx,
            f"step {outcome.state}",
            run=run.id,
            host=run.host,
            step=n,
            exit_status=outcome.status,
            output_sha256=said.sha256,
            error=outcome.error,
        )
        output.store_output(tx, entry, n, said)
        live_output.delete_lines(tx, run.id, n)
        announce_run_change(tx, run)

    def _lock_own_run(self, tx: Transaction, run: Run, held_lease: HeldLease) -> Run | None:
        """Return the run as it is, held; None if others have taken it over meanwhile."""
        held = runs.lock_run(tx, run.id)
        ours = held.state is State.RUNNING and self._context.lease_keeper.regain_lease(
            tx, held_lease
        )
        return held if ours else None

    def _end_after_failed_step(
        self, run: Run, held_lease: HeldLease, n: int, outcome: _StepOutcome
    ) -> None:
        of = len(run.plan.steps) if run.plan else n
        found = self._describe_current_state(run)
        if outcome.state is StepState.UNKNOWN:
            summary = (
                f"Nobody knows whether step {n} of {of} was done: {outcome.error}. {found} "
                f"{run.host} stays locked until an owner resolves this run."
            )
            state = State.UNKNOWN
        else:
            summary = f"Step {n} of {of} failed: {outcome.error}. {found}"
            state = State.FAILED
        self._end_until_stored(run, held_lease, state, summary)

    def _verify_run(self, run: Run, held_lease: HeldLease) -> None:
        """Plan once more: what is empty now is proven."""
        try:
            left = compute_remaining(self._context, run, self._context.policies.get_policy())
        except (HostError, Refused, NoPolicyError) as trouble:
            if self._closing.is_set() and isinstance(trouble, HostError):
                self._hand_over_run(held_lease)
                return
            summary = f"Every step was done, but the proof could not be read: {trouble}"
            self._end_until_stored(run, held_lease, State.FAILED, summary)
            return
        proof: dict[str, Canonical] = {
            "current_state": left.current_state,
            "steps_left": len(left.steps),
        }
        self._write_until_stored(
            lambda tx: self._record_own_verification(tx, run, held_lease, left),
            run_id=run.id,
            facts=proof,
        )

    def _record_own_verification(
        self, tx: Transaction, run: Run, held_lease: HeldLease, remaining: RemainingWork
    ) -> bool:
        ours = self._lock_own_run(tx, run, held_lease)
        if ours is not None:
            self.record_verification(tx, ours, remaining)
        return ours is not None

    def record_verification(self, tx: Transaction, run: Run, remaining: RemainingWork) -> None:
        """End a run by what reading again has shown."""
        if remaining.steps:
            todo = "; ".join(step.title for step in remaining.steps)
            summary = (
                f"Every step was done, yet it did not hold: {remaining.current_state}. Left: "
                f"{todo}"
            )
            end_run(self._context, tx, run, State.FAILED, summary)
            return
        change_log.append_entry(
            tx, "verified", run=run.id, host=run.host, current_state=remaining.current_state
        )
        done = f"Proven by reading again: {remaining.current_state}"
        end_run(self._context, tx, run, State.SUCCEEDED, done)
        follow_up.begin_follow_up(self._context, tx, run)

    def _end_own_run(
        self, tx: Transaction, run: Run, held_lease: HeldLease, state: State, summary: str
    ) -> bool:
        ours = self._lock_own_run(tx, run, held_lease)
        if ours is not None:
            end_run(self._context, tx, ours, state, summary)
        return ours is not None

    def _describe_current_state(self, run: Run) -> str:
        """Say in a sentence how the host looks after a step that did not succeed."""
        try:
            left = compute_remaining(self._context, run, self._context.policies.get_policy())
        except (HostError, Refused, NoPolicyError) as trouble:
            return f"Reading again did not help: {trouble}."
        return f"Reading again: {left.current_state}."

    def _end_until_stored(
        self, run: Run, held_lease: HeldLease, state: State, summary: str
    ) -> None:
        self._write_until_stored(
            lambda tx: self._end_own_run(tx, run, held_lease, state, summary),
            run_id=run.id,
            facts={"state": state.value, "summary": summary},
        )

    def _write_until_stored(
        self,
        write: Callable[[Transaction], bool],
        *,
        run_id: int,
        facts: Mapping[str, Canonical],
    ) -> bool:
        """Write what has happened on a host, however long the database needs to come back.

        The thread waits with its lock and its run, and sends nothing more. If the process ends
        first, recovery finds an intent without an outcome and calls it unknown; what is known is
        in the spool then, for whoever settles the run. What the database refuses for good is given
        up after a few tries: the clock then calls the run unknown. Returns what *write* did.
        """
        spooled = False
        wait, tries = 0.1, 0
        while True:
            try:
                with self._context.database.together() as tx:
                    done = write(tx)
            except StoreUnavailable as trouble:
                log.critical("the change log cannot be written, retrying: %s", trouble)
                spooled = spooled or self._write_to_spool(run_id, facts, str(trouble))
                tries += isinstance(trouble, StoreRefused)
                if tries >= _MAX_REFUSED_WRITES or self._closing.wait(wait):
                    raise
                wait = min(wait * 2, 2.0)
            else:
                return done

    def _write_to_spool(
        self, run_id: int, facts_to_keep: Mapping[str, Canonical], reason: str
    ) -> bool:
        """Note beside the database what is known; False if that is not possible either."""
        if self._context.spool is None:
            return True
        redactor = self._context.database.redactor
        facts = {name: redactor.redact_value(value) for name, value in facts_to_keep.items()}
        try:
            self._context.spool.add_facts(run_id, facts | {"reason": reason})
        except OSError as trouble:
            log.critical("run %d: nor can the spool: %s; known is: %s", run_id, trouble, facts)
            return False
        return True


def _add_checkpoint_note(intent: StepIntent) -> Command:
    """Let the host's own log see how far ours is: who rewrites ours cannot rewrite that."""
    command = intent.step.command
    if not isinstance(command, Shell):
        return command
    note = f"run {intent.run.id} step {intent.step_number}: {intent.checkpoint.text}"
    return replace(command, note=note, marker=intent.marker)


def _build_outcome_facts(n: int, outcome: _StepOutcome) -> dict[str, Canonical]:
    return {
        "step": n,
        "outcome": outcome.state.value,
        "exit_status": outcome.status,
        "error": outcome.error,
    }

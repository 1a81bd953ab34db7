"""Execute approved runs: each intent is committed before its command, each outcome after it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from bot import observability
from bot.audit import change_log, events
from bot.db import live_output, outputs, runs
from bot.db.database import StoreRefused, StoreUnavailable, Transaction
from bot.db.lease_keeper import HeldLease
from bot.execution import follow_up, gate, recovery
from bot.execution.intent import StepIntent
from bot.execution.live_output import LiveOutputWriter
from bot.execution.planner import compute_remaining
from bot.execution.witnessing import wait_for_witnesses
from bot.model.plan import RemainingWork
from bot.model.run import RefusedBy, Run, State, StepRecord, StepState
from bot.policy import NoPolicyError
from bot.queries.open_probation import find_open_probation
from bot.queries.signatures import list_signatures
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from bot.workflow.hooks import RefusedByFeature, prepare_work
from connectors.command import Command, RunHooks, Shell
from connectors.errors import HostError, UnreachableError, prefix_host
from connectors.probation import find_kept_change, query_host_keys
from connectors.run_signed import SignedStep, SignedTexts
from runbooks import Refused

log = logging.getLogger(__name__)

# How often a write is tried that the database refuses (not: that it is unavailable for).
_MAX_REFUSED_WRITES = 4
# Between two tries to keep a change on probation.
_KEEP_AGAIN_SECONDS = 1


@dataclass(frozen=True)
class StepOutcome:
    """How one step ended."""

    state: StepState
    status: int | None = None
    output: str = ""
    error: str = ""


class Executor:
    """Executes approved runs. closing: set when the process is about to end."""

    def __init__(self, context: WorkflowContext, closing: threading.Event) -> None:
        self._context, self._closing = context, closing
        self._live_output = LiveOutputWriter(context.database)

    def start_run(self, number: int) -> None:
        """Claim the run, plan again, pass the gate, execute every step, and verify."""
        claimed = gate.claim_run(self._context, number)
        if claimed is None:
            return
        try:
            self._check_and_execute(claimed)
        finally:
            self._context.lease_keeper.drop_lease(claimed.held_lease)

    def resume_run(self, number: int) -> None:
        """Execute the remaining steps of a run that another worker began."""
        claimed = gate.resume_run(self._context, number)
        if claimed is None:
            return
        try:
            self._execute_steps(claimed.run, claimed.held_lease, steps_done=claimed.steps_done)
        finally:
            self._context.lease_keeper.drop_lease(claimed.held_lease)

    def _check_and_execute(self, claimed_run: gate.ClaimedRun) -> None:
        try:
            policy = self._context.policies.get_policy()
            left = compute_remaining(self._context, claimed_run.run, policy)
            left = prepare_work(self._context, policy, claimed_run.run, left)
        except Refused as refused:
            self._end_before_first_step(
                claimed_run, State.STALE, f"After the plan was made, {refused}"
            )
            return
        except RefusedByFeature as error:
            self._end_before_first_step(
                claimed_run, State.REFUSED, str(error), refused_by=error.refused_by
            )
            return
        except HostError as error:
            if self._closing.is_set():
                self._hand_over_run(claimed_run.held_lease)
                return
            reason = prefix_host(claimed_run.run.host, str(error))
            self._end_before_first_step(claimed_run, State.FAILED, f"{reason}. Nothing was sent.")
            return
        if self._closing.is_set():
            self._hand_over_run(claimed_run.held_lease)
            return
        with observability.trace_span("gate", run=claimed_run.run.id, host=claimed_run.run.host):
            first = gate.pass_gate(self._context, claimed_run, left)
        if first is not None:
            self._execute_steps(first.run, claimed_run.held_lease, first)

    def _hand_over_run(self, held_lease: HeldLease) -> None:
        """Hand the run to other workers now, without waiting for the lease to expire."""
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, held_lease.run_id)
            is_active = run.state in {State.STARTING, State.RUNNING}
            if is_active and self._context.lease_keeper.regain_lease(tx, held_lease):
                recovery.hand_over_run(self._context, tx, run)

    def _end_before_first_step(
        self,
        claimed_run: gate.ClaimedRun,
        state: State,
        summary: str,
        *,
        refused_by: RefusedBy | None = None,
    ) -> None:
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, claimed_run.run.id)
            if run.state is State.STARTING and self._context.lease_keeper.regain_lease(
                tx, claimed_run.held_lease
            ):
                end_run(self._context, tx, run, state, summary, refused_by=refused_by)

    def _execute_steps(
        self,
        run: Run,
        held_lease: HeldLease,
        intent: StepIntent | None = None,
        *,
        steps_done: int = 0,
    ) -> None:
        """Execute the remaining steps.

        Args:
            intent: The intent of the first of them, if it has passed the gate.
            steps_done: How many steps were executed before.
        """
        for n in range(steps_done + 1, run.step_count + 1):
            if intent is None and self._closing.is_set():
                # No step is under way: the next worker continues, or ends the run.
                self._hand_over_run(held_lease)
                return
            intent = intent or gate.authorise_next_step(self._context, run, held_lease, n)
            if intent is None:
                return
            with observability.trace_span(
                "step", run=run.id, host=intent.step.host, step=n
            ) as add_attributes:
                outcome = self._execute_step(intent, held_lease)
                add_attributes({"outcome": outcome.state.value})
            intent = None
            if not self._store_step_outcome(run, held_lease, n, outcome):
                return
            if outcome.state is not StepState.SUCCEEDED:
                self._end_after_failed_step(run, held_lease, n, outcome)
                return
        with observability.trace_span("verify", run=run.id, host=run.host):
            self._verify_run(run, held_lease)

    def _execute_step(self, intent: StepIntent, held_lease: HeldLease) -> StepOutcome:
        """Send one command. An error after it may have started means unknown, never failed."""
        with self._live_output.capture_step(intent.run.id, intent.step_number) as (
            tail,
            on_output,
        ):
            hooks = RunHooks(lambda: self._context.lease_keeper.check_lease(held_lease), on_output)
            if why := wait_for_witnesses(self._context, intent, held_lease, self._closing):
                return StepOutcome(StepState.FAILED, error=why)
            try:
                return self._send_step(intent, held_lease, hooks)
            except HostError as error:
                state = StepState.UNKNOWN if error.started is None else StepState.FAILED
                return StepOutcome(state, output=tail.text, error=str(error))
            except Exception:
                log.exception(
                    "internal error in run %d, step %d", intent.run.id, intent.step_number
                )
                return StepOutcome(StepState.UNKNOWN, error="an internal error; see the log")

    def _send_step(
        self, intent: StepIntent, held_lease: HeldLease, hooks: RunHooks
    ) -> StepOutcome:
        """Send one command. Raises HostError.

        While a change is on probation, keeping it is tried again if its host was not reached.
        """
        step, command = intent.step, _add_checkpoint_note(intent)
        sent = add_signatures(self._context, intent, command)
        while True:
            try:
                reached = check_vantage(self._context, step.host, command)
                self._context.lease_keeper.check_lease(held_lease)
                answer = self._context.fleet.run_command(
                    step.host, sent, fingerprint=step.fingerprint, hooks=hooks
                )
            except UnreachableError:
                if not self._can_keep_later(intent.run, held_lease, command):
                    raise
            else:
                return StepOutcome(StepState.SUCCEEDED, answer.status, reached + answer.text)

    def _can_keep_later(self, run: Run, held_lease: HeldLease, command: Command) -> bool:
        """Return, after some seconds, whether a command can still keep a change on probation."""
        if find_kept_change(command) is None or self._closing.wait(_KEEP_AGAIN_SECONDS):
            return False
        with self._context.database.reading() as tx:
            opened = find_open_probation(tx, run)
            is_over = opened is None or tx.now >= opened.restores_at
        return not is_over and gate.may_send_again(self._context, run, held_lease)

    def _store_step_outcome(
        self, run: Run, held_lease: HeldLease, n: int, outcome: StepOutcome
    ) -> bool:
        """Store the outcome of a step; return False if another worker has taken over the run."""
        unlogged = events.LoggingFailed(
            step=n,
            outcome=outcome.state.value,
            exit_status=outcome.status,
            error=outcome.error,
        )
        late = replace(
            unlogged, reason="The outcome arrived after another worker had taken over the run"
        )
        return self._write_until_stored(
            run,
            held_lease,
            lambda tx, own_run: self.record_step_outcome(tx, own_run, n, outcome),
            unlogged=unlogged,
            write_if_lost=lambda tx: change_log.append_entry(tx, late, run=run.id),
        )

    def record_step_outcome(self, tx: Transaction, run: Run, n: int, outcome: StepOutcome) -> None:
        """Record and log how a step ended, with its output."""
        stored = outputs.prepare_output(tx, outcome.output)
        runs.record_outcome(
            tx,
            StepRecord(
                run.id, n, outcome.state, 0, tx.now, outcome.status, stored.text, outcome.error
            ),
        )
        entry = change_log.append_entry(
            tx,
            events.STEP_ENDS[outcome.state](
                step=n,
                exit_status=outcome.status,
                output_sha256=stored.sha256,
                error=outcome.error,
            ),
            run=run,
        )
        outputs.store_outputs(tx, n, [(entry.seq, run.id, stored)])
        live_output.delete_lines(tx, run.id, n)
        announce_run_change(tx, run)

    def _end_after_failed_step(
        self, run: Run, held_lease: HeldLease, n: int, outcome: StepOutcome
    ) -> None:
        current_state = self._describe_current_state(run)
        if outcome.state is StepState.UNKNOWN:
            summary = (
                f"The outcome of step {n} of {run.step_count} is unknown: {outcome.error}. "
                f"{current_state} {run.host} stays locked until an owner resolves this run."
            )
            state = State.UNKNOWN
        else:
            summary = f"Step {n} of {run.step_count} failed: {outcome.error}. {current_state}"
            state = State.FAILED
        self._end_until_stored(run, held_lease, state, summary)

    def _verify_run(self, run: Run, held_lease: HeldLease) -> None:
        """Plan once more: the run is verified if the plan is empty."""
        try:
            left = compute_remaining(
                self._context, run, self._context.policies.get_policy(), verifies=True
            )
        except (HostError, Refused, NoPolicyError) as error:
            if self._closing.is_set() and isinstance(error, HostError):
                self._hand_over_run(held_lease)
                return
            summary = f"Every step succeeded, but the result could not be verified: {error}"
            self._end_until_stored(run, held_lease, State.FAILED, summary)
            return
        self._write_until_stored(
            run,
            held_lease,
            lambda tx, own_run: self.record_verification(tx, own_run, left),
            unlogged=events.LoggingFailed(
                current_state=left.current_state, steps_left=len(left.steps)
            ),
        )

    def record_verification(self, tx: Transaction, run: Run, remaining: RemainingWork) -> None:
        """End a run by the plan that was made after its last step."""
        if remaining.steps:
            todo = "; ".join(step.title for step in remaining.steps)
            summary = (
                f"Every step succeeded, but verification failed: {remaining.current_state}. "
                f"Remaining: {todo}"
            )
            end_run(self._context, tx, run, State.FAILED, summary)
            return
        state = remaining.current_state
        change_log.append_entry(tx, events.Verified(current_state=state), run=run)
        end_run(self._context, tx, run, State.SUCCEEDED, f"Verified: {state}")
        follow_up.begin_follow_up(self._context, tx, run)

    def _describe_current_state(self, run: Run) -> str:
        """Return a sentence about the current state of the host after a step did not succeed."""
        try:
            left = compute_remaining(self._context, run, self._context.policies.get_policy())
        except (HostError, Refused, NoPolicyError) as error:
            return f"The current state cannot be read: {error}."
        return f"Current state: {left.current_state}."

    def _end_until_stored(
        self, run: Run, held_lease: HeldLease, state: State, summary: str
    ) -> None:
        self._write_until_stored(
            run,
            held_lease,
            lambda tx, own_run: end_run(self._context, tx, own_run, state, summary),
            unlogged=events.LoggingFailed(state=state.value, summary=summary),
        )

    def _write_until_stored(
        self,
        run: Run,
        held_lease: HeldLease,
        write: Callable[[Transaction, Run], object],
        *,
        unlogged: events.LoggingFailed,
        write_if_lost: Callable[[Transaction], object] | None = None,
    ) -> bool:
        """Store what has happened on a host, and retry while the database is unavailable.

        The thread keeps lock and run meanwhile, and sends nothing more. If the process ends first,
        recovery finds an intent without an outcome, and the facts are in the spool. A write that
        the database refuses is given up after a few tries; the outcome is then unknown.

        Args:
            write: Writes about the run, which the transaction has locked.
            unlogged: What is to be stored, for the spool.
            write_if_lost: Called instead if another worker has taken over the run.

        Returns:
            False if another worker has taken over the run.
        """
        spooled = False
        wait, tries = 0.1, 0
        while True:
            try:
                with self._context.database.shared_transaction() as tx:
                    own_run = self._lock_own_run(tx, run, held_lease)
                    if own_run is not None:
                        write(tx, own_run)
                    elif write_if_lost is not None:
                        write_if_lost(tx)
            except StoreUnavailable as error:
                log.critical("the change log cannot be written, retrying: %s", error)
                spooled = spooled or self._write_to_spool(run.id, unlogged, str(error))
                tries += isinstance(error, StoreRefused)
                if tries >= _MAX_REFUSED_WRITES or self._closing.wait(wait):
                    raise
                wait = min(wait * 2, 2.0)
            else:
                return own_run is not None

    def _lock_own_run(self, tx: Transaction, run: Run, held_lease: HeldLease) -> Run | None:
        """Lock and return the run; None if another worker has taken it over."""
        current = runs.lock_run(tx, run.id)
        is_ours = current.state is State.RUNNING and self._context.lease_keeper.regain_lease(
            tx, held_lease
        )
        return current if is_ours else None

    def _write_to_spool(self, run_id: int, unlogged: events.LoggingFailed, reason: str) -> bool:
        """Write facts to the spool; return False if that fails, too."""
        if self._context.spool is None:
            return True
        redactor = self._context.database.redactor
        kept = unlogged.encode().items()
        facts = {name: redactor.redact_value(value) for name, value in kept}
        try:
            self._context.spool.add_facts(run_id, facts | {"reason": reason})
        except OSError as error:
            log.critical(
                "run %d: the spool cannot be written either: %s: %s", run_id, error, facts
            )
            return False
        return True


def _add_checkpoint_note(intent: StepIntent) -> Command:
    """Add a checkpoint of the change log to the host's own log, which protects it there."""
    command = intent.step.command
    if not isinstance(command, Shell):
        return command
    note = f"run {intent.run.id} step {intent.step_number}: {intent.checkpoint.line}"
    return replace(command, note=note, marker=intent.marker)


def check_vantage(context: WorkflowContext, name: str, command: Command) -> str:
    """Return a line for the output of a step that keeps a change; "" for any other step.

    Raises UnreachableError if the vantage of the host does not reach it.
    """
    inventory = context.policies.get_policy().inventory
    host = inventory[name]
    if host.vantage is None or find_kept_change(command) is None:
        return ""
    try:
        keys = context.fleet.run_query(host.vantage, query_host_keys(host.address, host.port))
    except HostError as error:
        raise UnreachableError(f"the vantage {host.vantage} cannot be used: {error}") from error
    # The fingerprint of a CA is not that of the key which it has signed.
    if not keys or (host.host_ca is None and host.fingerprint not in keys):
        found = "with another key" if keys else "not"
        raise UnreachableError(
            f"{host.vantage} reaches {name} {found} at {host.address} port {host.port}: the "
            "change was not kept"
        )
    return f"{host.vantage} reaches {name}, which shows its key there\n"


def add_signatures(context: WorkflowContext, intent: StepIntent, command: Command) -> Command:
    """Return the command as its host wants it: an enrolled one with plan and signatures."""
    signed = find_signed_step(context, intent.run, intent.step_number)
    if signed is None or not isinstance(command, Shell):
        return command
    return signed.sign_command(command)


def find_signed_step(context: WorkflowContext, run: Run, step_number: int) -> SignedStep | None:
    """Return what an enrolled host needs for a step; None for one that no such host runs.

    A part of a request for many hosts was signed with the whole.
    """
    if run.plan is None:
        return None
    step = run.plan.steps[step_number - 1]
    host = context.policies.get_policy().inventory[step.host]
    if not host.signed or not isinstance(step.command, Shell):
        return None
    with context.database.reading() as tx:
        signed = runs.get_run(tx, run.parent) if run.parent is not None else run
        signatures = list_signatures(tx, signed)
    section, number = run.plan.find_section(step_number)
    document = signed.plan.document if signed.plan else ""
    return SignedStep(number, SignedTexts(document, section.text, tuple(signatures)))

"""Applying: step by step, each intent committed before its command, each outcome after it."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bot import observability
from bot.audit import change_log, output
from bot.audit.spool import TROUBLE
from bot.db import live_output, runs
from bot.db.database import StoreRefused, StoreUnavailable, Transaction
from bot.execution import follow_up, gate, recovery
from bot.execution.intent import Intent
from bot.execution.lease_keeper import HeldRun
from bot.execution.live_output import LiveOutputWriter
from bot.execution.planner import Remaining, compute_remaining
from bot.model.canonical import Canonical
from bot.model.run import Run, State, StepRecord, StepState
from bot.policy import NoPolicy
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_end, end_run
from connectors.command import Command, RunHooks, Shell
from connectors.errors import HostError, prefix_host
from runbooks import Refused

log = logging.getLogger(__name__)

# So often something is written that the database refuses and does not merely miss.
_REFUSALS = 4


@dataclass(frozen=True)
class _Outcome:
    state: StepState
    status: int | None = None
    output: str = ""
    trouble: str = ""


class Executor:
    """Carries approved runs out. closing: set when the process is about to end."""

    def __init__(self, parts: WorkflowContext, closing: threading.Event) -> None:
        self._parts, self._closing = parts, closing
        self._listening = LiveOutputWriter(parts.database)

    def start(self, number: int) -> None:
        """Claim the run, look again, pass the gate, do every step, and prove it."""
        claimed = gate.claim_run(self._parts, number)
        if claimed is None:
            return
        try:
            self._begin(claimed)
        finally:
            self._parts.worker.drop(claimed.hold)

    def resume(self, number: int) -> None:
        """Do what is left of a run that another worker began."""
        claimed = gate.resume_run(self._parts, number)
        if claimed is None:
            return
        try:
            self._do(claimed.run, claimed.hold, done=claimed.done)
        finally:
            self._parts.worker.drop(claimed.hold)

    def _begin(self, claimed: gate.Claimed) -> None:
        try:
            left = compute_remaining(self._parts, claimed.run, self._parts.policies.current())
        except Refused as refused:
            self._end_unsent(
                claimed, State.STALE, f"After this was shown, this came up: {refused}"
            )
            return
        except HostError as trouble:
            if self._closing.is_set():
                self._hand_over(claimed.hold)
                return
            said = prefix_host(claimed.run.host, str(trouble))
            self._end_unsent(claimed, State.FAILED, f"{said}. Nothing was sent.")
            return
        if self._closing.is_set():
            self._hand_over(claimed.hold)
            return
        with observability.trace_span("gate", run=claimed.run.id, host=claimed.run.host):
            first = gate.open_gate(self._parts, claimed, left)
        if first is not None:
            self._do(first.run, claimed.hold, first)

    def _hand_over(self, hold: HeldRun) -> None:
        """Let others have the run at once, and not only when nobody has heard of us for long."""
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, hold.run)
            under_way = run.state in {State.STARTING, State.RUNNING}
            if under_way and self._parts.worker.regains(tx, hold):
                recovery.hand_over_run(self._parts, tx, run)

    def _end_unsent(self, claimed: gate.Claimed, state: State, summary: str) -> None:
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, claimed.run.id)
            if run.state is State.STARTING and self._parts.worker.regains(tx, claimed.hold):
                end_run(self._parts, tx, run, state, summary)

    def _do(
        self, running: Run, hold: HeldRun, intent: Intent | None = None, *, done: int = 0
    ) -> None:
        """Do every step that is left. intent: of the first of them, if that has passed the gate.

        done: how many steps were done before.
        """
        count = len(running.proposal.steps) if running.proposal else 0
        for n in range(done + 1, count + 1):
            if intent is None and self._closing.is_set():
                # No step is under way: whoever takes it goes on, or ends it with what was done.
                self._hand_over(hold)
                return
            intent = intent or gate.authorise_next_step(self._parts, running, hold, n)
            if intent is None:
                return
            with observability.trace_span(
                "step", run=running.id, host=intent.step.host, step=n
            ) as more:
                outcome = self._tell(intent, hold)
                more({"outcome": outcome.state.value})
            intent = None
            ours = self._durably(
                lambda tx, n=n, outcome=outcome: self._conclude(tx, running, hold, n, outcome),
                run=running.id,
                known=_known(n, outcome),
            )
            if not ours:
                return
            if outcome.state is not StepState.SUCCEEDED:
                self._give_up(running, hold, n, outcome)
                return
        with observability.trace_span("proof", run=running.id, host=running.host):
            self._prove(running, hold)

    def _tell(self, intent: Intent, hold: HeldRun) -> _Outcome:
        """Send one command. What goes wrong after it may have begun is unknown, never failed."""
        step, command = intent.step, _witnessed(intent)
        with self._listening.to(intent.run.id, intent.n) as (tail, on_output):
            hooks = RunHooks(lambda: self._parts.worker.check(hold), on_output)
            try:
                self._parts.worker.check(hold)
                answer = self._parts.fleet.run_command(
                    step.host, command, fingerprint=step.fingerprint, hooks=hooks
                )
            except HostError as trouble:
                state = StepState.UNKNOWN if trouble.started is None else StepState.FAILED
                return _Outcome(state, output=tail.said, trouble=str(trouble))
            except Exception:
                log.exception("run %d step %d", intent.run.id, intent.n)
                return _Outcome(
                    StepState.UNKNOWN, trouble="a fault in Keyturn itself; see its log"
                )
        return _Outcome(StepState.SUCCEEDED, answer.status, answer.text)

    def conclude(
        self,
        tx: Transaction,
        run: Run,
        n: int,
        state: StepState,
        *,
        status: int | None,
        output: str,
        trouble: str,
    ) -> None:
        """Write down what has become of a step that was asked after."""
        self._record(tx, run, n, _Outcome(state, status, output, trouble))

    def _conclude(
        self, tx: Transaction, run: Run, hold: HeldRun, n: int, outcome: _Outcome
    ) -> bool:
        """Write down what became of a step; False if others have taken the run over meanwhile."""
        if self._ours(tx, run, hold) is None:
            why = "It came when somebody else had taken the run over, who could not know it"
            change_log.append_entry(
                tx, TROUBLE, run=run.id, person="", host="", why=why, **_known(n, outcome)
            )
            return False
        self._record(tx, run, n, outcome)
        return True

    def _record(self, tx: Transaction, run: Run, n: int, outcome: _Outcome) -> None:
        said = output.prepare_output(tx, outcome.output)
        runs.record_outcome(
            tx,
            StepRecord(
                run.id, n, outcome.state, 0, tx.now, outcome.status, said.text, outcome.trouble
            ),
        )
        entry = change_log.append_entry(
            tx,
            f"step {outcome.state}",
            run=run.id,
            host=run.host,
            n=n,
            status=outcome.status,
            output_sha256=said.sha256,
            trouble=outcome.trouble,
        )
        output.store_output(tx, entry, n, said)
        live_output.delete_lines(tx, run.id, n)
        announce_end(tx, run)

    def _ours(self, tx: Transaction, run: Run, hold: HeldRun) -> Run | None:
        """Return the run as it is, held; None if others have taken it over meanwhile."""
        held = runs.lock_run(tx, run.id)
        ours = held.state is State.RUNNING and self._parts.worker.regains(tx, hold)
        return held if ours else None

    def _give_up(self, running: Run, hold: HeldRun, n: int, outcome: _Outcome) -> None:
        of = len(running.proposal.steps) if running.proposal else n
        found = self._look_again(running)
        if outcome.state is StepState.UNKNOWN:
            summary = (
                f"Nobody knows whether step {n} of {of} was done: {outcome.trouble}. {found} "
                f"{running.host} stays locked until an owner settles this run."
            )
            state = State.UNKNOWN
        else:
            summary = f"Step {n} of {of} failed: {outcome.trouble}. {found}"
            state = State.FAILED
        self._end_durably(running, hold, state, summary)

    def _prove(self, running: Run, hold: HeldRun) -> None:
        """Plan once more: what is empty now is proven."""
        try:
            left = compute_remaining(self._parts, running, self._parts.policies.current())
        except (HostError, Refused, NoPolicy) as trouble:
            if self._closing.is_set() and isinstance(trouble, HostError):
                self._hand_over(hold)
                return
            summary = f"Every step was done, but the proof could not be read: {trouble}"
            self._end_durably(running, hold, State.FAILED, summary)
            return
        proof: dict[str, Canonical] = {"because": left.because, "steps_left": len(left.steps)}
        self._durably(
            lambda tx: self._conclude_proof(tx, running, hold, left), run=running.id, known=proof
        )

    def _conclude_proof(
        self, tx: Transaction, running: Run, hold: HeldRun, left: Remaining
    ) -> bool:
        ours = self._ours(tx, running, hold)
        if ours is not None:
            self.conclude_proof(tx, ours, left)
        return ours is not None

    def conclude_proof(self, tx: Transaction, running: Run, left: Remaining) -> None:
        """End a run by what reading again has shown."""
        if left.steps:
            todo = "; ".join(step.title for step in left.steps)
            summary = f"Every step was done, yet it did not hold: {left.because}. Left: {todo}"
            end_run(self._parts, tx, running, State.FAILED, summary)
            return
        change_log.append_entry(
            tx, "proven", run=running.id, host=running.host, because=left.because
        )
        done = f"Proven by reading again: {left.because}"
        end_run(self._parts, tx, running, State.SUCCEEDED, done)
        follow_up.begin_follow_up(self._parts, tx, running)

    def _end(
        self, tx: Transaction, running: Run, hold: HeldRun, state: State, summary: str
    ) -> bool:
        ours = self._ours(tx, running, hold)
        if ours is not None:
            end_run(self._parts, tx, ours, state, summary)
        return ours is not None

    def _look_again(self, running: Run) -> str:
        """Say in a sentence how the host looks after a step that did not succeed."""
        try:
            left = compute_remaining(self._parts, running, self._parts.policies.current())
        except (HostError, Refused, NoPolicy) as trouble:
            return f"Reading again did not help: {trouble}."
        return f"Reading again: {left.because}."

    def _end_durably(self, running: Run, hold: HeldRun, state: State, summary: str) -> None:
        self._durably(
            lambda tx: self._end(tx, running, hold, state, summary),
            run=running.id,
            known={"state": state.value, "summary": summary},
        )

    def _durably(
        self,
        write: Callable[[Transaction], bool],
        *,
        run: int,
        known: Mapping[str, Canonical],
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
                with self._parts.database.together() as tx:
                    done = write(tx)
            except StoreUnavailable as trouble:
                log.critical("the change log cannot be written, retrying: %s", trouble)
                spooled = spooled or self._spool(run, known, str(trouble))
                tries += isinstance(trouble, StoreRefused)
                if tries >= _REFUSALS or self._closing.wait(wait):
                    raise
                wait = min(wait * 2, 2.0)
            else:
                return done

    def _spool(self, run: int, known: Mapping[str, Canonical], why: str) -> bool:
        """Note beside the database what is known; False if that is not possible either."""
        if self._parts.spool is None:
            return True
        redactor = self._parts.database.redactor
        facts = {name: redactor.thing(value) for name, value in known.items()}
        try:
            self._parts.spool.note(run, facts | {"why": why})
        except OSError as trouble:
            log.critical("run %d: nor can the spool: %s; known is: %s", run, trouble, facts)
            return False
        return True


def _witnessed(intent: Intent) -> Command:
    """Let the host's own log see how far ours is: who rewrites ours cannot rewrite that."""
    command = intent.step.do
    if not isinstance(command, Shell):
        return command
    note = f"run {intent.run.id} step {intent.n}: {intent.point.line}"
    return replace(command, note=note, marker=intent.mark)


def _known(n: int, outcome: _Outcome) -> dict[str, Canonical]:
    return {
        "n": n,
        "outcome": outcome.state.value,
        "status": outcome.status,
        "trouble": outcome.trouble,
    }

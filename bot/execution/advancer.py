"""What moves runs on: the dispatcher and the scheduler call it, in processes that execute."""

import logging
import threading
from collections.abc import Callable, Sequence

from bot import observability
from bot.db import runs, stops
from bot.db.database import StoreUnavailable, Transaction
from bot.execution import (
    fanout,
    follow_up,
    gate,
    recovery,
    stalled_runs,
)
from bot.execution.executor import Executor
from bot.execution.read_hosts import HostReader
from bot.execution.reconcile import Reconciler
from bot.execution.recovery import RecoveryService
from bot.model.run import RefusedBy, Run, State
from bot.policy import NoPolicyError
from bot.workflow import (
    approvals,
    counter_proposals,
    outdated_plans,
    reminders,
    requests,
    stopping,
)
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.policy_changes import PolicyRecorder

log = logging.getLogger(__name__)


class RunAdvancer:
    """Plans, executes, recovers, reminds and ends runs. closing: set when the process ends."""

    def __init__(self, context: WorkflowContext, closing: threading.Event) -> None:
        self._context, self._closing = context, closing
        self._executor = Executor(context, closing)
        self._host_reader = HostReader(context, closing)
        self._reconciler = Reconciler(context, self._executor)
        self._recovery = RecoveryService(context)
        self._policy_recorder = PolicyRecorder(context)
        self._host_duties = [
            duty for build in context.hooks.build_host_duties for duty in build(context, closing)
        ]
        self._active_runs: list[int] = []
        # Runs whose last change could not be stored: they are recovered later.
        self._interrupted_runs: set[int] = set()

    def expire_runs(self) -> list[Run]:
        """End runs that were not decided or started in time, and superseded proposals."""
        expired = approvals.expire_runs(self._context)
        return expired + counter_proposals.end_superseded_proposals(self._context)

    def remind_approvers(self) -> list[Run]:
        """Remind the approvers of runs that have waited long."""
        return reminders.remind_approvers(self._context)

    def record_policy_change(self) -> None:
        """Log a change of the policy, or that the policy is not valid."""
        self._policy_recorder.record_policy_change()

    def end_outdated_plans(self) -> list[Run]:
        """End waiting runs that were planned under an earlier policy."""
        return outdated_plans.end_outdated_plans(self._context)

    @observability.trace_run("run")
    def advance_run(self, number: int) -> None:
        """Bring a run as far as it can go now. The dispatcher calls it, in a thread of its own."""
        self._active_runs.append(number)
        try:
            self._advance_run(number)
        except StoreUnavailable as error:
            log.critical("run %d is paused until the database is available: %s", number, error)
            self._interrupted_runs.add(number)
        except Exception:
            log.exception("run %d failed by an error in Keyturn", number)
            self._end_after_internal_error(number)
        finally:
            self._active_runs.remove(number)

    def _advance_run(self, number: int) -> None:
        if self._closing.is_set():
            return
        try:
            with self._context.database.reading() as tx:
                run = runs.get_run(tx, number)
                to_plan = self._list_runs_to_plan(tx, run)
                stopped = stops.list_stopped_runs(tx, to_plan) if to_plan else set[int]()
            if run.hosts:
                fanout.advance_fanout(self._context, number)
                return
            if to_plan:
                with observability.trace_span("plan", run=number, host=run.host):
                    ready = self._host_reader.read_hosts(to_plan, stopped)
                    run = ready[0] if ready else run
            self._advance_planned_run(run)
        except NoPolicyError as error:
            self._end_without_policy(number, error)

    def _advance_planned_run(self, run: Run) -> None:
        """Do what is next for a run that is planned."""
        if run.state is State.UNKNOWN:
            self._reconciler.reconcile_run(run.id)
        elif run.state is State.RUNNING:
            self._executor.resume_run(run.id)
        elif run.state is State.QUEUED and run.timing is not None:
            self._start_schedule(run.id)
        elif run.state is State.QUEUED:
            self._executor.start_run(run.id)

    def _start_schedule(self, number: int) -> None:
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.QUEUED:
                gate.start_schedule(self._context, tx, run)

    def _list_runs_to_plan(self, tx: Transaction, run: Run) -> Sequence[Run]:
        """Return the runs to read hosts for: this one, and its siblings at the same site."""
        if run.state is not State.PLANNING or run.hosts:
            return ()
        if run.parent is None:
            return [run]
        policy = self._context.policies.get_policy()
        return [run, *requests.list_sibling_runs_at_site(tx, policy, run)]

    def run_due_follow_ups(self) -> None:
        """Check the long-running work that finished runs have started."""
        follow_up.run_due_follow_ups(self._context)

    def list_host_duties(self) -> Sequence[Callable[[], object]]:
        """Return the periodic duties that contact hosts, so they may be slow."""
        return [self.run_due_follow_ups, *self._host_duties]

    def wake_stalled_runs(self) -> None:
        """Advance runs that no worker is at: a freeze has ended, or a wake-up was lost."""
        stopping.end_stopped_runs(self._context)
        for number in list(self._interrupted_runs):
            self._interrupted_runs.discard(number)
            try:
                self._recover_run(number)
            except StoreUnavailable:
                self._interrupted_runs.add(number)
                raise
        self._wake_stalled_runs()

    def _wake_stalled_runs(self) -> None:
        database = self._context.database
        busy = self._host_reader.list_runs_being_read().union(self._active_runs)
        # SQLite has one writer: a read lets others write while thousands of runs are checked.
        with database.reading() if database.embedded else database.transaction() as tx:
            unfinished = runs.list_unfinished_briefly(tx)
            stalled = stalled_runs.list_stalled_runs(self._context, tx, unfinished, busy)
            stalled += [
                run
                for run in self._reconciler.list_due_runs(tx)
                if run.id not in self._active_runs
            ]
            if not database.embedded:
                stalled_runs.record_unattended_sites(self._context, tx, unfinished)
        if stalled:
            with database.transaction() as tx:
                for run in stalled:
                    recovery.wake_run(self._context, tx, run)

    def recover_unfinished_runs(self) -> None:
        """Resume or end the runs of an earlier process. Call it before the first advance_run()."""
        self._recovery.recover_unfinished_runs()

    def recover_expired_leases(self) -> None:
        """Resume or end the runs of workers that send no heartbeat any more."""
        self._recovery.recover_expired_leases()

    def _recover_run(self, number: int) -> None:
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            # Checked while the run is locked: a thread that works on it has not abandoned it.
            if number not in self._active_runs:
                self._recovery.recover_run(tx, run)

    def _end_after_internal_error(self, number: int) -> None:
        """End a run after an error in Keyturn itself, so that it does not wait for ever."""
        try:
            with self._context.database.transaction() as tx:
                run = runs.lock_run(tx, number)
                if self._context.lease_keeper.is_leased_by_another(tx, number):
                    # Another worker has the run by now, and may not have the same error.
                    return
                if run.state is State.RUNNING:
                    end_run(
                        self._context,
                        tx,
                        run,
                        State.UNKNOWN,
                        "An internal error occurred while a step was under way: see the log. "
                        f"{run.host} stays locked until an owner resolves this run.",
                    )
                elif run.state in {State.PLANNING, State.QUEUED, State.STARTING}:
                    end_run(
                        self._context,
                        tx,
                        run,
                        State.REFUSED if run.state is State.QUEUED else State.FAILED,
                        "An internal error occurred before anything was sent: see the log.",
                        refused_by=RefusedBy.ERROR if run.state is State.QUEUED else None,
                    )
        except StoreUnavailable as error:
            log.critical("run %d cannot be ended after an error: %s", number, error)
            self._interrupted_runs.add(number)

    def _end_without_policy(self, number: int, error: NoPolicyError) -> None:
        """End a run that nothing was sent for: without a policy, no one may do anything."""
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in {State.PLANNING, State.QUEUED, State.STARTING}:
                why = f"There is no valid policy: {error}. Nothing was sent."
                end_run(
                    self._context,
                    tx,
                    run,
                    State.REFUSED,
                    why,
                    refused_by=RefusedBy.ERROR,
                )
            elif run.state is State.RUNNING and run.hosts:
                why = f"No further host was started, because there is no valid policy: {error}"
                end_run(self._context, tx, run, State.FAILED, why)

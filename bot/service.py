"""What Slack, web, API and CLI may do to runs, and what moves a run on."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bot import observability
from bot.db import runs, stops
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.execution import (
    fanout,
    follow_up,
    gate,
    leg_claims,
    recovery,
    stalled_runs,
)
from bot.execution.executor import Executor
from bot.execution.read_hosts import HostReader
from bot.execution.reconcile import Reconciler
from bot.execution.recovery import RecoveryService
from bot.model.run import RefusedBy, RequestOrigin, RequestTerms, Run, State
from bot.model.sequence import UndoSelection
from bot.policy import NoPolicyError, PolicySource
from bot.queries.banned_people import PolicyWithoutBanned
from bot.queries.own_runbooks import OwnRunbookState
from bot.workflow import (
    approvals,
    bans,
    counter_proposals,
    outdated_plans,
    own_runbooks,
    plans,
    questions,
    reminders,
    requests,
    stopping,
    undo,
)
from bot.workflow.agents import AgentActions
from bot.workflow.break_glass import BreakGlassActions
from bot.workflow.context import WorkflowContext
from bot.workflow.delegations import DelegationActions
from bot.workflow.enrol_factor import FactorEnrolment
from bot.workflow.finish import end_run
from bot.workflow.hooks import NO_WORKFLOW_HOOKS, WorkflowHooks
from bot.workflow.policy_changes import PolicyRecorder
from bot.workflow.standing_grants import GrantActions
from bot.workflow.step_up import StepUpActions
from bot.workflow.tokens import TokenActions
from bot.workflow.visibility import require_view
from runbooks import AnyRunbook

log = logging.getLogger(__name__)

Actions = TypeVar("Actions")


class _NoExecution:
    """Replaces hosts and dispatcher: a running service polls the database within seconds."""

    def enqueue_run(self, tx: object, run_id: int, site: str) -> None:
        pass

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: object) -> tuple[int, ...]:  # noqa: ARG002 - nothing is executed here
        return ()

    def run_query(self, host: str, query: object, /) -> Any:
        raise NotImplementedError(host)

    run_command: Callable[..., Any] = run_query
    resolve_command: Callable[..., Any] = run_query
    query_step: Callable[..., Any] = run_query


class KeyturnService:
    """Handles every request the same way, whichever source it comes from.

    Methods that act on one run raise NoSuchRun where the person may not view it, NotAllowed where
    they may not act on it, and TooLate where its state does not permit the action any more.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        self._closing = threading.Event()
        self._executor = Executor(context, self._closing)
        self._host_reader = HostReader(context, self._closing)
        self._reconciler = Reconciler(context, self._executor)
        self.factor_enrolment, self.step_up = FactorEnrolment(context), StepUpActions(context)
        self.break_glass = BreakGlassActions(context)
        self.delegations, self.grants = DelegationActions(context), GrantActions(context)
        self._host_duties = [
            duty
            for build in context.hooks.build_host_duties
            for duty in build(context, self._closing)
        ]
        self.tokens = TokenActions(context)
        self.agents = AgentActions(context)
        self._recovery = RecoveryService(context)
        self._policy_recorder = PolicyRecorder(context)
        self._active_runs: list[int] = []
        # Runs whose last change could not be stored: they are recovered later.
        self._interrupted_runs: set[int] = set()

    @classmethod
    def without_execution(
        cls, database: Database, policies: PolicySource, hooks: WorkflowHooks | None = None
    ) -> "KeyturnService":
        """Return a service that reaches no host: a running service executes what it records.

        hooks: of the features.
        """
        nothing = _NoExecution()
        active = PolicyWithoutBanned(policies, database)
        context = WorkflowContext(
            database, active, nothing, nothing, hooks=hooks or NO_WORKFLOW_HOOKS
        )
        return cls(context)

    def bind(self, actions: Callable[[WorkflowContext], Actions]) -> Actions:
        """Return what people may do about the subject of a feature: its actions."""
        return actions(self._context)

    @property
    def policies(self) -> PolicySource:
        """Provides the policy without the people who are banned."""
        return self._context.policies

    def enable_runbook(self, words: str, *, person: str, alone: bool = False) -> OwnRunbookState:
        """Confirm the files of an own runbook, as `bot.workflow.own_runbooks` describes."""
        return own_runbooks.enable_runbook(self._context, words, person=person, alone=alone)

    def request_run(self, runbook: AnyRunbook, terms: RequestTerms) -> Run:
        """Record a request for one host, as request_on_hosts() does."""
        return requests.create_request(self._context, runbook, terms)

    def request_on_hosts(
        self, runbooks: Sequence[AnyRunbook], terms: RequestTerms, *, host_pattern: str
    ) -> Run:
        """Record a request as it was parsed: one runbook for each host.

        host_pattern: the hosts as they were typed; "" for a single host.

        Raises InvalidRequestError, NoPolicyError and StoreUnavailable; nothing is recorded then.
        """
        if not host_pattern:
            return self.request_run(runbooks[0], terms)
        return requests.create_fanout_request(
            self._context, runbooks, terms, host_pattern=host_pattern
        )

    def request_undo(self, number: int, terms: RequestTerms) -> Run:
        """Request the undo of a run: a new run, planned and approved like any other.

        The ticket is that of the run, unless the terms name another.
        """
        require_view(self._context, number, person=terms.person)
        with self._context.database.reading() as tx:
            original = runs.get_run(tx, number)
        if self.policies.get_policy().tickets:
            terms = replace(terms, ticket=terms.ticket or original.ticket)
        if original.is_sequence:
            return undo.request_undo_of_sequence(self._context, original, terms)
        return requests.request_undo(self._context, number, terms)

    def request_undo_of_selection(self, selection: UndoSelection, terms: RequestTerms) -> Run:
        """Request the undo of what a person or a schedule did in a time, as one request."""
        return undo.request_undo_of_selection(self._context, selection, terms)

    def request_plan(self, number: int, *, person: str, digest: str, reason: str = "") -> Run:
        """Request what a plan shows. digest, reason: as for plans.request_plan()."""
        require_view(self._context, number, person=person)
        return plans.request_plan(
            self._context, number, person=person, digest=digest, reason=reason
        )

    def request_plan_or_replan(
        self, number: int, *, person: str, digest: str, origin: RequestOrigin, reason: str = ""
    ) -> Run:
        """Request what a plan shows, or plan it again if it is not current; return that run."""
        require_view(self._context, number, person=person)
        return plans.request_plan_or_replan(
            self._context, number, person=person, digest=digest, origin=origin, reason=reason
        )

    def replan_run(self, number: int, *, person: str, origin: RequestOrigin) -> Run:
        """Plan a request again whose plan is not current any more; return the new run."""
        require_view(self._context, number, person=person)
        return plans.replan_run(self._context, number, person=person, origin=origin)

    def approve_run(
        self, number: int, *, person: str, digest: str, reason: str = "", session: str = ""
    ) -> Run:
        """Approve the plan with this digest. session: the web session; "" from other sources."""
        require_view(self._context, number, person=person)
        return approvals.approve_run(
            self._context, number, person=person, digest=digest, reason=reason, session=session
        )

    def deny_run(self, number: int, *, person: str, reason: str) -> Run:
        """Deny a run of which nothing was sent yet. The reason must not be empty."""
        require_view(self._context, number, person=person)
        return approvals.deny_run(self._context, number, person=person, reason=reason)

    def propose_values(
        self, number: int, *, person: str, changed_values: Mapping[str, str], reason: str = ""
    ) -> Run:
        """Propose other values for a request; return the run that has them."""
        require_view(self._context, number, person=person)
        return counter_proposals.propose_values(
            self._context, number, person=person, changed_values=changed_values, reason=reason
        )

    def accept_proposal(self, number: int, *, person: str, digest: str) -> Run:
        """Accept the values that an approver proposes."""
        require_view(self._context, number, person=person)
        return counter_proposals.accept_proposal(
            self._context, number, person=person, digest=digest
        )

    def ask_question(self, number: int, *, person: str, text: str) -> Run:
        """Ask the requester a question about a pending run."""
        require_view(self._context, number, person=person)
        return questions.ask_question(self._context, number, person=person, text=text)

    def answer_question(self, number: int, *, person: str, text: str) -> Run:
        """Answer the open questions about the person's own request."""
        require_view(self._context, number, person=person)
        return questions.answer_question(self._context, number, person=person, text=text)

    def reassign_run(self, number: int, *, person: str, assignee: str, reason: str = "") -> Run:
        """Ask another approver to decide a pending run."""
        require_view(self._context, number, person=person)
        return questions.reassign_run(
            self._context, number, person=person, assignee=assignee, reason=reason
        )

    def withdraw_run(self, number: int, *, person: str) -> Run:
        """Withdraw the person's own request."""
        require_view(self._context, number, person=person)
        return approvals.withdraw_run(self._context, number, person=person)

    def resolve_run(self, number: int, *, person: str, succeeded: bool, reason: str) -> Run:
        """Record how a run with an unknown outcome ended."""
        require_view(self._context, number, person=person)
        return approvals.resolve_run(
            self._context, number, person=person, succeeded=succeeded, reason=reason
        )

    def stop_run(self, number: int, *, person: str, reason: str = "") -> Run:
        """Send nothing more for a run."""
        require_view(self._context, number, person=person)
        return stopping.stop_run(self._context, number, person=person, reason=reason)

    def stop_everything(self, *, person: str, reason: str, session: str = "") -> int:
        """Send nothing more for any run; return how many runs that affects.

        session: as for approve_run().
        """
        return stopping.stop_everything(
            self._context, person=person, reason=reason, session=session
        )

    def resume_everything(self, *, person: str, reason: str, session: str = "") -> None:
        """End the stop of everything. session: as for approve_run()."""
        return stopping.resume_everything(
            self._context, person=person, reason=reason, session=session
        )

    def ban_person(
        self,
        person: str,
        *,
        banned_by: str,
        reason: str,
        session: str = "",
        requires_factor: bool = True,
    ) -> None:
        """Ban a person. Raises NotAllowed, TooLate and InvalidRequestError.

        session: as for approve_run(). requires_factor: False on the command line.
        """
        bans.ban_person(
            self._context,
            person,
            banned_by=banned_by,
            reason=reason,
            session=session,
            requires_factor=requires_factor,
        )

    def unban_person(
        self, person: str, *, unbanned_by: str, reason: str, session: str = ""
    ) -> None:
        """Lift a ban. Raises as ban_person()."""
        bans.unban_person(
            self._context, person, unbanned_by=unbanned_by, reason=reason, session=session
        )

    def release_leg(self, tree: str, event: str, *, person: str, reason: str) -> int:
        """Give claims on an event back by hand; return how many there were."""
        return leg_claims.release_by_hand(self._context, tree, event, person=person, reason=reason)

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

    @property
    def is_closing(self) -> bool:
        """Whether the process is about to end, so that nothing new starts."""
        return self._closing.is_set()

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
        leg_claims.release_due_claims(self._context)

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

    def close(self) -> None:
        """Start nothing more, and make waiting writers give up: the process is about to end.

        A step that is under way is finished. The next start resumes, or ends, what is left.
        """
        self._closing.set()

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

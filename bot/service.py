"""What Slack, web, API and CLI may do to runs."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bot.db import runs
from bot.db.database import Database
from bot.execution.advancer import RunAdvancer
from bot.model.run import RequestOrigin, RequestTerms, Run
from bot.model.sequence import UndoSelection
from bot.policy import PolicySource
from bot.queries.banned_people import PolicyWithoutBanned
from bot.queries.own_runbooks import OwnRunbookState
from bot.queries.policy_facts import PolicyWithFacts
from bot.workflow import (
    approvals,
    bans,
    counter_proposals,
    holding,
    own_runbooks,
    plans,
    questions,
    requests,
    stopping,
    undo,
)
from bot.workflow.agents import AgentActions
from bot.workflow.break_glass import BreakGlassActions
from bot.workflow.context import WorkflowContext
from bot.workflow.delegations import DelegationActions
from bot.workflow.enrol_factor import FactorEnrolment
from bot.workflow.hooks import NO_WORKFLOW_HOOKS, WorkflowHooks
from bot.workflow.standing_grants import GrantActions
from bot.workflow.step_up import StepUpActions
from bot.workflow.tokens import TokenActions
from bot.workflow.visibility import require_view
from runbooks import AnyRunbook, load_usable_catalogue

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
    query_with_changer: Callable[..., Any] = run_query


class KeyturnService:
    """Handles every request the same way, whichever source it comes from.

    Methods that act on one run raise NoSuchRun where the person may not view it, NotAllowed where
    they may not act on it, and TooLate where its state does not permit the action any more.

    advancer: what moves runs on, for the dispatcher and the scheduler.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context
        self._closing = threading.Event()
        self.advancer = RunAdvancer(context, self._closing)
        self.factor_enrolment, self.step_up = FactorEnrolment(context), StepUpActions(context)
        self.break_glass = BreakGlassActions(context)
        self.delegations, self.grants = DelegationActions(context), GrantActions(context)
        self.tokens = TokenActions(context)
        self.agents = AgentActions(context)

    @classmethod
    def without_execution(
        cls, database: Database, policies: PolicySource, hooks: WorkflowHooks | None = None
    ) -> "KeyturnService":
        """Return a service that reaches no host: a running service executes what it records.

        It stops runs and bans people also where own runbooks cannot be used: then it has none.

        hooks: of the features.
        """
        nothing, hooks = _NoExecution(), hooks or NO_WORKFLOW_HOOKS
        known = PolicyWithFacts(policies, database, hooks.policy_facts)
        active = PolicyWithoutBanned(known, database)
        usable, _ = load_usable_catalogue()
        context = WorkflowContext(database, active, nothing, nothing, runbooks=usable, hooks=hooks)
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
        self,
        number: int,
        *,
        person: str,
        digest: str,
        reason: str = "",
        session: str = "",
        signature: str = "",
        start_at: int | None = None,
    ) -> Run:
        """Approve the plan with this digest.

        session: the web session; "" from other sources. signature: where the rules require it.
        start_at: the earliest start, in microseconds since 1970; None for as soon as possible.
        """
        require_view(self._context, number, person=person)
        return approvals.approve_run(
            self._context,
            number,
            person=person,
            digest=digest,
            terms=approvals.ApprovalTerms(reason, start_at),
            session=session,
            signature=signature,
        )

    def hold_run(self, number: int, *, person: str, reason: str = "") -> Run:
        """Hold an approved run that has not started: it needs its approvals again."""
        require_view(self._context, number, person=person)
        return holding.hold_run(self._context, number, person=person, reason=reason)

    def sign_request(self, number: int, *, person: str, digest: str, signature: str) -> Run:
        """Record the requester's signature over the plan, where the rules require it."""
        require_view(self._context, number, person=person)
        return approvals.sign_request(
            self._context, number, person=person, digest=digest, signature=signature
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

    @property
    def is_closing(self) -> bool:
        """Whether the process is about to end, so that nothing new starts."""
        return self._closing.is_set()

    def close(self) -> None:
        """Start nothing more, and make waiting writers give up: the process is about to end.

        A step that is under way is finished. The next start resumes, or ends, what is left.
        """
        self._closing.set()

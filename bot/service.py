"""The workflow's face: what doors may do, and what moves a run on."""

import logging
import threading
from collections.abc import Mapping, Sequence

from bot import observability
from bot.db import runs, stops
from bot.db.database import StoreUnavailable, Transaction
from bot.execution import fanout, follow_up, outdated_plans, recovery, stalled_runs, start_schedule
from bot.execution.executor import Executor
from bot.execution.read_hosts import HostReader
from bot.execution.reconcile import Reconciler
from bot.execution.recovery import RecoveryService
from bot.model.run import RequestOrigin, Run, State
from bot.policy import NoPolicyError
from bot.workflow import approvals, bans, counter_proposals, reminders, requests, stopping
from bot.workflow.break_glass import BreakGlassActions
from bot.workflow.context import WorkflowContext
from bot.workflow.delegations_and_grants import DelegationAndGrantActions
from bot.workflow.enrol_factor import FactorEnrolment
from bot.workflow.erasure import ErasureActions
from bot.workflow.finish import end_run
from bot.workflow.policy_changes import PolicyRecorder
from bot.workflow.schedules import ScheduleActions
from bot.workflow.step_up import StepUpActions
from bot.workflow.tokens import TokenActions
from bot.workflow.visibility import require_view
from runbooks import AnyRunbook

log = logging.getLogger(__name__)


class Workflow:
    """Every request takes this one path, whatever door it came through."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._closing = threading.Event()
        self._applying = Executor(parts, self._closing)
        self._survey = HostReader(parts, self._closing)
        self._reconciling = Reconciler(parts, self._applying)
        self.enrolling, self.stepping_up = FactorEnrolment(parts), StepUpActions(parts)
        self.breaking = BreakGlassActions(parts)
        self.erasing = ErasureActions(parts)
        self.mandates = DelegationAndGrantActions(parts)
        self.schedules = ScheduleActions(parts)
        self.tokens = TokenActions(parts)
        self._recovering = RecoveryService(parts)
        self._noting = PolicyRecorder(parts)
        self._under_way: list[int] = []
        self._left: set[int] = set()

    def ask(
        self, runbook: AnyRunbook, *, person: str, origin: RequestOrigin, reason: str = ""
    ) -> Run:
        """Record a request. Raises Unfit, NoPolicy and StoreUnavailable: then nothing happened."""
        return requests.create_request(
            self._parts, runbook, person=person, origin=origin, reason=reason
        )

    def ask_all(
        self,
        runbooks: Sequence[AnyRunbook],
        *,
        spelled: str,
        person: str,
        origin: RequestOrigin,
        reason: str = "",
    ) -> Run:
        """Record one request for several hosts, spelled as it was typed."""
        return requests.create_fanout_request(
            self._parts,
            runbooks,
            host_pattern=spelled,
            person=person,
            origin=origin,
            reason=reason,
        )

    def undo(self, number: int, *, person: str, origin: RequestOrigin, reason: str = "") -> Run:
        require_view(self._parts, number, person=person)
        return requests.request_undo(
            self._parts, number, person=person, origin=origin, reason=reason
        )

    def approve(
        self, number: int, *, person: str, digest: str, reason: str = "", session: str = ""
    ) -> Run:
        """Raises NotYours, TooLate, NoSuchRun. session: of the web, "" elsewhere."""
        require_view(self._parts, number, person=person)
        return approvals.approve_run(
            self._parts, number, person=person, digest=digest, reason=reason, session=session
        )

    def deny(self, number: int, *, person: str, reason: str = "") -> Run:
        require_view(self._parts, number, person=person)
        return approvals.deny_run(self._parts, number, person=person, reason=reason)

    def counter(
        self, number: int, *, person: str, changes: Mapping[str, str], reason: str = ""
    ) -> Run:
        """Propose other values; the run that has them goes to the asker. Raises as approve()."""
        require_view(self._parts, number, person=person)
        return counter_proposals.propose_values(
            self._parts, number, person=person, changed_values=changes, reason=reason
        )

    def accept(self, number: int, *, person: str, digest: str) -> Run:
        """Take over the values that an approver proposes. Raises NotYours and TooLate."""
        require_view(self._parts, number, person=person)
        return counter_proposals.accept_proposal(self._parts, number, person=person, digest=digest)

    def withdraw(self, number: int, *, person: str) -> Run:
        require_view(self._parts, number, person=person)
        return approvals.withdraw_run(self._parts, number, person=person)

    def settle(self, number: int, *, person: str, succeeded: bool, why: str) -> Run:
        require_view(self._parts, number, person=person)
        return approvals.settle_run(
            self._parts, number, person=person, succeeded=succeeded, reason=why
        )

    def stop(self, number: int, *, person: str, why: str = "") -> Run:
        """Send nothing more for a run. Raises NotYours, TooLate, NoSuchRun."""
        require_view(self._parts, number, person=person)
        return stopping.stop_run(self._parts, number, person=person, reason=why)

    def stop_all(self, *, person: str, why: str, session: str = "") -> int:
        """Send nothing more at all; return how many runs that concerns. session: as approve()."""
        return stopping.stop_everything(self._parts, person=person, reason=why, session=session)

    def resume(self, *, person: str, why: str, session: str = "") -> None:
        return stopping.resume_everything(self._parts, person=person, reason=why, session=session)

    def ban(
        self, person: str, *, by: str, why: str, session: str = "", factor: bool = True
    ) -> None:
        """Shut somebody out. Raises NotYours, TooLate and Unfit, as the next one does. session: as
        approve(). factor: False on the command line."""
        bans.ban_person(
            self._parts, person, banned_by=by, reason=why, session=session, requires_factor=factor
        )

    def unban(self, person: str, *, by: str, why: str, session: str = "") -> None:
        bans.unban_person(self._parts, person, unbanned_by=by, reason=why, session=session)

    def expire_due(self) -> list[Run]:
        expired = approvals.expire_runs(self._parts)
        return expired + counter_proposals.end_superseded_proposals(self._parts)

    def remind_due(self) -> list[Run]:
        """Call those whose approval is waited for."""
        return reminders.remind_approvers(self._parts)

    def note_policy(self) -> None:
        """Write a change of the policy down, or that it cannot be used."""
        self._noting.record_policy_change()

    def end_outdated(self) -> list[Run]:
        """End what waits with the plan of an earlier policy."""
        return outdated_plans.end_outdated_plans(self._parts)

    @observability.trace_run("run")
    def advance(self, number: int) -> None:
        """Bring a run as far as it can go now. The dispatcher calls it, in a thread of its own."""
        self._under_way.append(number)
        try:
            self._advance(number)
        except StoreUnavailable as trouble:
            log.critical("run %d rests until the database is back: %s", number, trouble)
            self._left.add(number)
        except Exception:
            log.exception("run %d", number)
            self._fault(number)
        finally:
            self._under_way.remove(number)

    def _advance(self, number: int) -> None:
        if self._closing.is_set():
            return
        try:
            with self._parts.database.reading() as tx:
                run = runs.get_run(tx, number)
                asked = self._asked_with(tx, run)
                held_up = stops.list_stopped_runs(tx, asked) if asked else set[int]()
            if run.hosts:
                fanout.advance_fanout(self._parts, number)
                return
            if asked:
                with observability.trace_span("plan", run=number, host=run.host):
                    ready = self._survey.read_hosts(asked, held_up)
                    run = ready[0] if ready else run
            self._carry_on(run)
        except NoPolicyError as trouble:
            self._without_policy(number, trouble)

    def _carry_on(self, run: Run) -> None:
        """Do what is next for a run that is planned."""
        if run.state is State.UNKNOWN:
            self._reconciling.reconcile_run(run.id)
        elif run.state is State.RUNNING:
            self._applying.resume_run(run.id)
        elif run.state is State.QUEUED and run.timing is not None:
            start_schedule.start_schedule_of_run(self._parts, run.id)
        elif run.state is State.QUEUED:
            self._applying.start_run(run.id)

    @property
    def closing(self) -> bool:
        """Whether the process is about to end, so that nothing begins any more."""
        return self._closing.is_set()

    def _asked_with(self, tx: Transaction, run: Run) -> Sequence[Run]:
        """Return what its host is to be read for: it, and of a request the parts at its site."""
        if run.state is not State.PLANNING or run.hosts:
            return ()
        if run.parent is None:
            return [run]
        return [
            run,
            *requests.list_sibling_runs_at_site(tx, self._parts.policies.get_policy(), run),
        ]

    def follow_up(self) -> None:
        """Look at what runs have started and goes on after them."""
        follow_up.run_due_follow_ups(self._parts)

    def nudge(self) -> None:
        """Put to work what nobody works on: a freeze has ended, or a wake-up was lost."""
        stopping.end_stopped_runs(self._parts)
        for number in list(self._left):
            self._left.discard(number)
            try:
                self._resume(number)
            except StoreUnavailable:
                self._left.add(number)
                raise
        self._wake_forgotten()

    def _wake_forgotten(self) -> None:
        database = self._parts.database
        taken = self._survey.list_runs_being_read().union(self._under_way)
        # On SQLite one thread writes: nobody is to wait while thousands of runs are looked at.
        with database.reading() if database.embedded else database.transaction() as tx:
            moving = runs.list_unfinished_briefly(tx)
            found = stalled_runs.list_stalled_runs(self._parts, tx, moving, taken)
            found += [
                run for run in self._reconciling.list_due_runs(tx) if run.id not in self._under_way
            ]
            if not database.embedded:
                stalled_runs.record_unattended_sites(self._parts, tx, moving)
        if found:
            with database.transaction() as tx:
                for run in found:
                    recovery.wake_run(self._parts, tx, run)

    def recover(self) -> None:
        """Take up what an earlier process left. Call before the first advance()."""
        self._recovering.recover_unfinished_runs()

    def take_over(self) -> None:
        """Take up what a worker left that is not heard of any more, or end it."""
        self._recovering.recover_expired_leases()

    def _resume(self, number: int) -> None:
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            # Looked for while the run is held: who is at work cannot have left it like this.
            if number not in self._under_way:
                self._recovering.recover_run(tx, run)

    def close(self) -> None:
        """Begin nothing more, and make waiting writers give up: the process is about to end.

        A step that is under way is finished. The next start takes up, or ends, what is left.
        """
        self._closing.set()

    def _fault(self, number: int) -> None:
        """A fault of our own: say so, and never leave a run hanging without a word."""
        try:
            with self._parts.database.transaction() as tx:
                run = runs.lock_run(tx, number)
                if self._parts.lease_keeper.is_leased_by_another(tx, number):
                    # Ours no more: whoever has it by now does not share our fault.
                    return
                if run.state is State.RUNNING:
                    end_run(
                        self._parts,
                        tx,
                        run,
                        State.UNKNOWN,
                        "A fault in Keyturn itself, while a step was under way; see its log. "
                        f"{run.host} stays locked until an owner settles this run.",
                    )
                elif run.state in {State.PLANNING, State.QUEUED, State.STARTING}:
                    end_run(
                        self._parts,
                        tx,
                        run,
                        State.REFUSED if run.state is State.QUEUED else State.FAILED,
                        "A fault in Keyturn itself, before anything was sent; see its log.",
                    )
        except StoreUnavailable as trouble:
            log.critical("run %d: %s", number, trouble)
            self._left.add(number)

    def _without_policy(self, number: int, trouble: NoPolicyError) -> None:
        """Nobody may do anything now: what is not sent yet is not sent."""
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in {State.PLANNING, State.QUEUED, State.STARTING}:
                why = f"There is no valid policy: {trouble}. Nothing was sent."
                end_run(self._parts, tx, run, State.REFUSED, why)
            elif run.state is State.RUNNING and run.hosts:
                why = f"No further host was started, since there is no valid policy: {trouble}"
                end_run(self._parts, tx, run, State.FAILED, why)

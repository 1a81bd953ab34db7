"""What the workflow works with: database, policy, hosts, dispatcher and limits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bot.audit.spool import Spool
from bot.auth.secret_box import SecretBox
from bot.db.database import Database, Transaction
from bot.db.lease_keeper import LeaseKeeper
from bot.integrations.witnesses import Witnesses
from bot.model.run import Run
from bot.model.times import DAY, HOUR, MINUTE, SECOND
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.workflow.hooks import NO_WORKFLOW_HOOKS, WorkflowHooks
from bot.workflow.rate_limit import RateLimits
from connectors.command import NO_HOOKS, Answer, Command, Query, RunHooks
from connectors.step_marker import StepMarker
from connectors.step_status import StepStatus
from runbooks import AnyRunbook, load_catalogue

T = TypeVar("T")


class HostFleet(Protocol):
    """Runs queries and commands on hosts; see connectors.fleet."""

    def run_query(self, host: str, query: Query[T], /) -> T: ...

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer: ...

    def query_step(
        self, host: str, marker: StepMarker, /, *, fingerprint: str = ""
    ) -> StepStatus: ...

    def query_with_changer(self, host: str, query: Query[T], /, *, fingerprint: str = "") -> T: ...

    def resolve_command(self, host: str, command: Command, /) -> Command: ...


class Dispatcher(Protocol):
    """Has a thread or a worker advance a run soon after the caller's transaction commits.

    Jobs are hints: the state of runs is in the database, and a job for a run that has moved on
    does nothing.
    """

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:
        """Enqueue a run for the workers of a site."""
        ...

    def enqueue_check(self, tx: Transaction, run_id: int, site: str) -> None:
        """Enqueue a run that only reads; slow checks do not delay changes."""
        ...

    def list_dispatched_runs(self, tx: Transaction) -> Collection[int]:
        """Return the runs that have a job waiting or in progress, and need no other."""
        ...


@dataclass(frozen=True)
class WorkflowContext:
    """Built once for each process."""

    database: Database
    policies: PolicySource
    fleet: HostFleet
    dispatcher: Dispatcher
    runbooks: Mapping[str, type[AnyRunbook]] = field(default_factory=load_catalogue)
    # Keeps the outcome of a step while the log cannot be written.
    spool: Spool | None = None
    # Decrypts second factors. The default is a new one, which can decrypt none.
    secret_box: SecretBox = field(default_factory=SecretBox.create)
    # Microseconds that a request may wait for its approvals, and then for its start.
    approval_timeout: int = 8 * HOUR
    start_timeout: int = 8 * HOUR
    # Microseconds for which a plan may wait at most for the end of a freeze.
    longest_hold: int = 14 * DAY
    # Microseconds for which a plan is kept that is not requested.
    plan_lifetime: int = 15 * MINUTE
    # Microseconds after which approvers are reminded, where no rule sets another time.
    reminder_delay: int = 30 * MINUTE
    # Microseconds for which the approval of a schedule is valid.
    schedule_lifetime: int = 90 * DAY
    # How many hosts are read at the same time for one request.
    max_parallel_hosts: int = 64
    # Keeps the leases of the runs that this process works on.
    lease_keeper: LeaseKeeper = field(default_factory=LeaseKeeper)
    # The sites whose hosts this process serves; None for all.
    sites: frozenset[str] | None = None
    # The rate limits of requests; None for no limit.
    rate_limits: RateLimits | None = None
    # The name of this installation in its plans.
    installation: str = "keyturn"
    # What cosigns the change log before a change is sent whose rules require that.
    witnesses: Witnesses | None = None
    # What features do on the way of a run.
    hooks: WorkflowHooks = NO_WORKFLOW_HOOKS


def compute_plan_expiry(context: WorkflowContext, policy: Policy, run: Run, *, now: int) -> int:
    """Return the last time at which a plan may start, in microseconds since 1970.

    A freeze that holds the run now does not make its approval expire, unless it is very long.
    """
    usual = now + context.approval_timeout + context.start_timeout
    latest = max(usual, _get_deadline_after_freeze(context, policy, run, now=now))
    # Plans hold whole seconds.
    return latest // SECOND * SECOND


def compute_start_deadline(context: WorkflowContext, policy: Policy, run: Run, *, now: int) -> int:
    """Return the last time at which an approved run may start, in microseconds since 1970."""
    deadline = max(
        now + context.start_timeout, _get_deadline_after_freeze(context, policy, run, now=now)
    )
    return min(deadline, run.plan.expires_at) if run.plan else now


def _get_deadline_after_freeze(
    context: WorkflowContext, policy: Policy, run: Run, *, now: int
) -> int:
    """Return by when a run has to start that a freeze holds now; 0 if none holds it."""
    end = policy.get_freeze_end(run.target_hosts, runbook=run.runbook, now=now)
    return min(end + context.start_timeout, now + context.longest_hold) if end else 0


def get_site(context: WorkflowContext, host: str) -> str:
    """Return the site whose workers reach the host; any site for an unknown host."""
    try:
        hosts = context.policies.get_policy().inventory.hosts
    except NoPolicyError:
        return "main"
    known = hosts.get(host)
    return known.site if known else min((each.site for each in hosts.values()), default="main")

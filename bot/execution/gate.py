"""The gate: the last look before the first packet, in one transaction with the intent.

Every door ends here. Nothing that a door has checked is believed: who may ask, whose approvals
count, how long they last, what was approved and who holds the host are looked up again now.
"""

import logging
from dataclasses import dataclass

from bot.audit import change_log, evidence
from bot.db import leases, locks, priority, runs, schedules, stops
from bot.db.database import Transaction
from bot.execution.intent import Intent, record_step_intent
from bot.execution.lease_keeper import HeldRun
from bot.execution.planner import Remaining, resolve_plan
from bot.execution.recovery import can_go_on
from bot.model.plan import ResolvedPlan
from bot.model.run import Run, State
from bot.model.run_states import ON_HOLD
from bot.policy import NoPolicy, Policy
from bot.workflow import break_glass_rules, grant_rules, schedule_approval, stop_reasons
from bot.workflow.approval_count import ApprovalCount, count_approvals
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_end, end_run, release_host_lock
from runbooks._catalogue import get_kind

log = logging.getLogger(__name__)


class GateShut(Exception):
    """The gate stays shut. state: how the run ends for it."""

    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state = state


class ApprovalsMissing(GateShut):
    """By now the rules want more approvals than when it was approved; what was given counts."""

    def __init__(self, counted: ApprovalCount, why: str) -> None:
        super().__init__(State.REFUSED, why)
        self.counted = counted


@dataclass(frozen=True)
class Claimed:
    """A run that has its host, in our hands."""

    run: Run
    hold: HeldRun
    # How many of its steps were done by whoever had it before.
    done: int = 0


def claim_run(parts: WorkflowContext, number: int) -> Claimed | None:
    """Take the host for this run, or return None: it is not its turn, or it has ended."""
    with parts.database.together() as tx:
        run = runs.lock_run(tx, number)
        if run.state is not State.READY:
            return None
        try:
            policy = _policy(parts)
            authorise_run(parts, tx, run, policy)
        except GateShut as shut:
            end_refused_run(parts, tx, run, shut)
            return None
        frozen = _frozen(tx, run, policy)
        if frozen:
            log_waiting(tx, run, f"{ON_HOLD.label}: {frozen}")
            return None
        first = priority.urgent_run_at(tx, run.host)
        if first not in {None, run.id} and priority.get_turn(tx, run.id).rank < priority.URGENT:
            log_waiting(tx, run, f"waits for run {first}, for which glass was broken")
            return None
        holder = locks.take_lock(tx, run.host, run.id)
        if holder is not None:
            log_waiting(tx, run, f"waits for run {holder.run}, which holds {run.host}")
            return None
        claimed = runs.move_run(tx, run, State.STARTING, summary="")
        hold = parts.worker.take(tx, run)
        change_log.append_entry(
            tx, "claimed", run=run.id, host=run.host, worker=parts.worker.name, fence=hold.fence
        )
        return Claimed(claimed, hold)


def resume_run(parts: WorkflowContext, number: int) -> Claimed | None:
    """Take a run that was taken from a worker between two steps; None if this is none."""
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        lease = leases.get_lease(tx, number)
        # Its first step is sent by whoever has passed the gate with it, and by nobody else; and
        # what was left too long ago is ended by whoever looks for what was left.
        if lease is None or lease.worker or not can_go_on(tx, run):
            return None
        records = runs.list_steps(tx, number)
        hold = parts.worker.take(tx, run)
        change_log.append_entry(
            tx, "resumed", run=run.id, host=run.host, worker=parts.worker.name, fence=hold.fence
        )
        return Claimed(run, hold, done=len(records))


def open_gate(parts: WorkflowContext, claimed: Claimed, left: Remaining) -> Intent | None:
    """Let the run through and write its first intent; None if it ended here instead."""
    with parts.database.together() as tx:
        run = runs.lock_run(tx, claimed.run.id)
        if run.state is not State.STARTING or not parts.worker.has(tx, claimed.hold):
            return None
        try:
            policy = _policy(parts)
            authorise_run(parts, tx, run, policy)
            _same_as_approved(parts, run, policy, left)
        except GateShut as shut:
            end_refused_run(parts, tx, run, shut)
            return None
        frozen = _frozen(tx, run, policy)
        if frozen:
            release_host_lock(parts, tx, run)
            log_waiting(tx, runs.move_run(tx, run, State.READY), f"{ON_HOLD.label}: {frozen}")
            return None
        if run.grant is not None:
            grant_rules.use_grant(tx, run)
        running = runs.move_run(tx, run, State.RUNNING, started=tx.now)
        change_log.append_entry(
            tx, "started", run=run.id, host=run.host, digest=run.digest, whole=run.parent
        )
        intent = record_step_intent(tx, running, claimed.hold, 1)
        announce_end(tx, run)
        return intent


def _frozen(tx: Transaction, run: Run, policy: Policy) -> str:
    """Say in words why the run waits now; only broken glass goes through a freeze."""
    frozen = policy.frozen(host=run.host, runbook=run.words, now=tx.now)
    return "" if frozen and break_glass_rules.is_break_glass_active(tx, policy, run) else frozen


def log_waiting(tx: Transaction, run: Run, why: str) -> None:
    """Say once what an approved run waits for."""
    if run.summary != why:
        runs.amend_run(tx, run, summary=why)
        change_log.append_entry(tx, "waiting", run=run.id, host=run.host, why=why)
        announce_end(tx, run)


def authorise_next_step(
    parts: WorkflowContext, running: Run, hold: HeldRun, n: int
) -> Intent | None:
    """Write the intent of a further step; None if the run may not go on."""
    with parts.database.together() as tx:
        run = runs.lock_run(tx, running.id)
        if run.state is not State.RUNNING or not parts.worker.has(tx, hold):
            return None
        try:
            policy = _policy(parts)
            authorise_run(parts, tx, run, policy)
            _same_host_as_approved(running, policy, n)
        except GateShut as shut:
            if shut.state is State.STOPPED:
                end_run(parts, tx, run, State.STOPPED, str(shut))
            else:
                end_run(parts, tx, run, State.FAILED, f"Stopped before step {n}: {shut}")
            return None
        intent = record_step_intent(tx, running, hold, n)
        announce_end(tx, run)
        return intent


def authorise_run(parts: WorkflowContext, tx: Transaction, run: Run, policy: Policy) -> None:
    """Raise Shut unless asker, approvers and time allow this run at this moment.

    What was approved for several hosts was approved as a whole: its keys open each of them.
    """
    _in_time(tx, run)
    stop = stop_reasons.describe_stop(tx, run, policy)
    if stop:
        raise GateShut(State.STOPPED, stop_reasons.describe_stopped_run(tx, run, stop))
    admitted = _admitted(tx, run, policy)
    whole = run
    if run.parent is not None:
        whole = runs.get_run(tx, run.parent)
        _is_part_of(run, whole)
        # Until it is about to be sent, it only takes the host.
        doubt = "" if run.state is State.READY else evidence.find_doubt_of_child(tx, run, whole)
        if doubt:
            raise _doubted(run, doubt)
    counted = _counted(parts, tx, whole, admitted)
    if not counted.met and not break_glass_rules.is_break_glass_active(tx, admitted, whole):
        _by_grant(tx, admitted, whole, counted)


def _admitted(tx: Transaction, run: Run, policy: Policy) -> Policy:
    """Return the policy without those who are shut out; raise Shut if everybody is."""
    shut_out = evidence.list_banned(tx)
    if evidence.EVERYBODY in shut_out:
        raise _doubted(run, "that everything may go on")
    return policy.without(stops.list_banned_people(tx) | shut_out)


def _counted(parts: WorkflowContext, tx: Transaction, run: Run, policy: Policy) -> ApprovalCount:
    """Count the approvals of a request; raise Shut if it may not be done, or is not borne out."""
    keyed = _keyed(parts, tx, run)
    _borne_out(parts, tx, run, keyed)
    counted = count_approvals(tx, policy, run, keyed)
    if not counted.ruling.allowed:
        why = "; ".join(counted.ruling.says) or "no rule allows it any more"
        raise GateShut(
            State.REFUSED,
            f"{_policy(parts).name_person(run.asked_by)} may no longer have this done: {why}",
        )
    if counted.no:
        raise GateShut(State.DENIED, f"Denied by {_policy(parts).name_person(counted.no)}")
    return counted


def _in_time(tx: Transaction, run: Run) -> None:
    """Raise Shut if an approval was not used in time: what has begun goes on."""
    begun = run.state is State.RUNNING
    # The plan says so too, and it is the plan that was approved.
    ends = [run.expires, run.proposal.expires if run.proposal else None]
    if any(end is not None and tx.now >= end for end in ends) and not begun:
        raise GateShut(
            State.EXPIRED, "Nobody started it in time. Ask again if it is still needed."
        )


def _borne_out(parts: WorkflowContext, tx: Transaction, run: Run, keyed: Run) -> None:
    """Raise Shut if tables say what the signed log does not: somebody wrote behind our back."""
    known = parts.runbooks.get(run.words)
    # What is asked of the rules depends on it, and no entry of the log says it.
    changed = known is not None and get_kind(known) != run.kind
    doubt = f"that {run.words} is a {run.kind}" if changed else evidence.find_doubt(tx, run)
    doubt = doubt or ("" if keyed is run else _of_schedule(tx, run, keyed))
    if doubt:
        raise _doubted(run, doubt)


def _doubted(run: Run, doubt: str) -> GateShut:
    log.critical("run %d: the change log does not bear out %s", run.id, doubt)
    return GateShut(
        State.REFUSED,
        f"The change log does not bear out {doubt}: somebody may have altered the database. "
        "Nothing more is sent for it. `keyturn changelog verify` tells whether that is so; if all "
        "is well, ask again.",
    )


def _of_schedule(tx: Transaction, run: Run, keyed: Run) -> str:
    schedule = schedules.get_schedule(tx, run.origin.schedule)
    return evidence.find_doubt(tx, keyed) or evidence.find_doubt_of_fire(tx, schedule, run)


def _by_grant(tx: Transaction, policy: Policy, run: Run, counted: ApprovalCount) -> None:
    """Raise Shut unless a standing grant stands in for the approvals."""
    if run.grant is None:
        raise _not_enough(policy, counted)
    lost = grant_rules.why_grant_lost(tx, policy, run, counted.request, counted.ruling)
    if lost:
        raise ApprovalsMissing(counted, lost)


def _not_enough(policy: Policy, counted: ApprovalCount) -> GateShut:
    """Say what is missing: a lost approval ends it, one that is wanted anew is asked for."""
    terms = counted.ruling.terms
    why = (
        f"It takes {terms.approvals} approval(s) by {policy.whose(terms)}, and "
        f"{len(counted.keys)} of those given still count(s)."
    )
    if counted.lost:
        return GateShut(State.REFUSED, f"{why} Ask again.")
    return ApprovalsMissing(counted, why)


def end_refused_run(parts: WorkflowContext, tx: Transaction, run: Run, shut: GateShut) -> Run:
    """End the run, or have it approved further where all that it lacks is an approval more."""
    if not isinstance(shut, ApprovalsMissing) or run.parent is not None or run.origin.schedule:
        return end_run(parts, tx, run, shut.state, str(shut))
    ruling = shut.counted.ruling
    waiting = runs.move_run(
        tx,
        run,
        State.WAITING,
        terms=ruling.terms,
        needed=ruling.approvals,
        groups=ruling.groups,
        says=ruling.says,
        grant=None,
        shown=tx.now,
        reminded=None,
        summary="",
        expires=min(tx.now + parts.patience, run.proposal.expires if run.proposal else tx.now),
    )
    # Also of a run that held nothing: whoever is next in line waits to be woken.
    release_host_lock(parts, tx, run)
    change_log.append_entry(tx, "wanting", run=run.id, host=run.host, why=str(shut))
    announce_end(tx, run)
    return waiting


def _keyed(parts: WorkflowContext, tx: Transaction, run: Run) -> Run:
    """Return the run whose approvals count: for what a schedule asks, that of the schedule."""
    if not run.origin.schedule:
        return run
    try:
        return schedule_approval.get_approved_request(parts, tx, run)
    except schedule_approval.NotApproved as shut:
        raise GateShut(State.REFUSED, str(shut)) from None


def _is_part_of(run: Run, whole: Run) -> None:
    """Raise Shut unless the steps of this host are among those of the plan that was approved."""
    if whole.state not in {State.STARTING, State.RUNNING}:
        raise GateShut(State.WITHDRAWN, f"The whole request is {whole.state}")
    mine = [step.work for step in run.proposal.steps] if run.proposal else []
    steps = whole.proposal.by_host.get(run.host, ()) if whole.proposal else ()
    approved = [step.work for step in steps]
    if not mine or mine != approved or not whole.proposal:
        raise GateShut(State.STALE, f"What {run.host} was to do is not what was approved")
    if whole.proposal.digest != whole.digest:
        raise GateShut(State.STALE, "The plan does not have the digest that was approved")


def _same_as_approved(parts: WorkflowContext, run: Run, policy: Policy, left: Remaining) -> None:
    if not left.steps:
        raise GateShut(State.UNCHANGED, f"Nothing left to do: {left.because}")
    if run.proposal is None:
        raise GateShut(State.REFUSED, "It has no plan")
    if run.proposal.digest != run.digest:
        raise GateShut(
            State.STALE, "The plan does not have the digest that was approved. Ask again."
        )
    fresh = resolve_plan(parts, run, policy, left, expires=run.proposal.expires)
    if fresh.digest == run.digest:
        return
    rekeyed = _rekeyed_hosts(run.proposal, policy)
    if rekeyed:
        what = f"the host key of {' and '.join(rekeyed)} in the inventory changed"
    elif fresh.policy_version != run.proposal.policy_version:
        what = "the policy was changed"
    elif fresh.runbook_version != run.proposal.runbook_version:
        what = "the runbook was changed"
    else:
        what = f"{run.host} is not as it was: {left.because}"
    raise GateShut(State.STALE, describe_stale_plan(what))


def _rekeyed_hosts(approved: ResolvedPlan, policy: Policy) -> list[str]:
    """Return the hosts whose key in the inventory is not the one of the approved plan.

    Steps are not compared one by one: a plan with fewer of them left says nothing about keys.
    """
    known = policy.inventory.hosts
    keys = {step.host: step.fingerprint for step in approved.steps}
    return [host for host, key in keys.items() if host in known and known[host].fingerprint != key]


def describe_stale_plan(what: str) -> str:
    """Say how a plan ends that is not, by now, what it was when it was shown."""
    return f"After this was shown, {what}. Nothing was sent: ask again to see it anew."


def _same_host_as_approved(running: Run, policy: Policy, n: int) -> None:
    """Raise Shut if the inventory points at another machine since the run began."""
    step = running.proposal.steps[n - 1] if running.proposal else None
    known = policy.inventory.hosts.get(step.host) if step else None
    if step is None or known is None or known.fingerprint != step.fingerprint:
        raise GateShut(State.STALE, f"{running.host} has another key in the inventory now")


def _policy(parts: WorkflowContext) -> Policy:
    try:
        return parts.policies.current()
    except NoPolicy as trouble:
        raise GateShut(State.REFUSED, f"There is no valid policy: {trouble}") from None

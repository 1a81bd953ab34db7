"""Records: one run with all that is known of it, read in one consistent state."""

from fastapi import Response

from bot.api import schemas
from bot.api.auth import Caller
from bot.api.deps import ApiParts
from bot.audit import change_log
from bot.db import locks, runs
from bot.db.database import Transaction
from bot.model.run import BEFORE_INTENT, Run, State
from bot.policy import Policy
from bot.workflow.approval_count import count_approvals
from bot.workflow.pending import why_frozen_after_approval
from bot.workflow.schedule_facts import get_schedule_facts


def in_full(parts: ApiParts, caller: Caller, number: int) -> schemas.RunInFull:
    """Raises NoSuchRun."""
    with parts.database.reading(caller.sight) as tx:
        return _in_full(tx, caller.policy, runs.get_run(tx, number), parts.base_url)


def respond_with_request(
    parts: ApiParts, caller: Caller, run: Run, answer: Response
) -> schemas.RunInFull:
    """Return a run that was just asked for, and have the answer say where it is."""
    answer.headers["Location"] = f"/api/v1/runs/{run.id}"
    return in_full(parts, caller, run.id)


def _in_full(tx: Transaction, policy: Policy, run: Run, base_url: str) -> schemas.RunInFull:
    votes = runs.list_votes(tx, run.id)
    told = runs.list_steps_of_children(tx, run.id) if run.hosts else runs.list_steps(tx, run.id)
    parts = runs.list_children(tx, run.id) if run.hosts else []
    counted = count_approvals(tx, policy, run)
    ruling = counted.ruling
    open_still = run.state in BEFORE_INTENT
    known = run.host in policy.inventory.hosts
    approvers = policy.approvers(counted.request, ruling) if open_still else []
    return schemas.RunInFull(
        **schemas.brief(run, votes, base_url),
        version=run.version,
        says=run.says,
        missing=counted.missing if open_still else 0,
        whose=policy.whose(ruling.terms) if known and ruling.groups else "",
        approvers=[person.id for person in approvers],
        wants_second_factor=ruling.step_up,
        locked_by=schemas.LockShape.of(locks.get_lock(tx, run.host)),
        plan=schemas.plan_of(run, {record.n: record for record in told}),
        report=schemas.ReportShape.of(run.report) if run.report else None,
        votes=[schemas.VoteShape.of(vote) for vote in votes],
        parts=[schemas.RunShape.of(part, (), base_url) for part in parts],
        schedule=schemas.ScheduleFactsShape.of(get_schedule_facts(tx, run)),
        proposals=runs.open_proposals(tx, run.id) if run.state is State.WAITING else (),
        frozen=why_frozen_after_approval(policy, run, now=tx.now),
        entries=[
            schemas.EntryShape.of(entry) for entry in change_log.list_entries_of_run(tx, run.id)
        ],
    )

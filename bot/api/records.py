"""Records: one run with all that is known of it, read in one consistent state."""

from fastapi import Response

from bot.api import shapes
from bot.api.caller import Caller
from bot.api.parts import ApiParts
from bot.policy import Policy
from bot.run import BEFORE_INTENT, Run, State
from bot.schedule_facts import get_schedule_facts
from bot.store import changelog, locks, runs
from bot.store.database import Transaction
from bot.workflow.awaited import frozen_then
from bot.workflow.counting import count


def in_full(parts: ApiParts, caller: Caller, number: int) -> shapes.RunInFull:
    """Raises NoSuchRun."""
    with parts.database.reading(caller.sight) as tx:
        return _in_full(tx, caller.policy, runs.get(tx, number), parts.base_url)


def asked(parts: ApiParts, caller: Caller, run: Run, answer: Response) -> shapes.RunInFull:
    """Return a run that was just asked for, and have the answer say where it is."""
    answer.headers["Location"] = f"/api/v1/runs/{run.id}"
    return in_full(parts, caller, run.id)


def _in_full(tx: Transaction, policy: Policy, run: Run, base_url: str) -> shapes.RunInFull:
    votes = runs.votes(tx, run.id)
    told = runs.steps_of_all(tx, run.id) if run.hosts else runs.steps(tx, run.id)
    parts = runs.children(tx, run.id) if run.hosts else []
    counted = count(tx, policy, run)
    ruling = counted.ruling
    open_still = run.state in BEFORE_INTENT
    known = run.host in policy.inventory.hosts
    approvers = policy.approvers(counted.request, ruling) if open_still else []
    return shapes.RunInFull(
        **shapes.brief(run, votes, base_url),
        version=run.version,
        says=run.says,
        missing=counted.missing if open_still else 0,
        whose=policy.whose(ruling.terms) if known and ruling.groups else "",
        approvers=[person.id for person in approvers],
        wants_second_factor=ruling.step_up,
        locked_by=shapes.LockShape.of(locks.held(tx, run.host)),
        plan=shapes.plan_of(run, {record.n: record for record in told}),
        report=shapes.ReportShape.of(run.report) if run.report else None,
        votes=[shapes.VoteShape.of(vote) for vote in votes],
        parts=[shapes.RunShape.of(part, (), base_url) for part in parts],
        schedule=shapes.ScheduleFactsShape.of(get_schedule_facts(tx, run)),
        proposals=runs.open_proposals(tx, run.id) if run.state is State.WAITING else (),
        frozen=frozen_then(policy, run, now=tx.now),
        entries=[shapes.EntryShape.of(entry) for entry in changelog.of_run(tx, run.id)],
    )

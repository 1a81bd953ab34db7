"""Showing: a plan goes to the people whose approval the rules want, or straight on."""

from dataclasses import replace

from bot.proposal import Proposal
from bot.run import Run, State
from bot.store import changelog, news, runs
from bot.store.database import Transaction
from bot.workflow.ending import end
from bot.workflow.parts import Parts, request_of


def show(parts: Parts, tx: Transaction, run: Run, proposal: Proposal) -> Run:
    """Record the plan with its digest; the run then waits, is ready, or is refused."""
    known = runs.amend(
        tx, run, proposal=proposal, digest=proposal.digest, expires=proposal.expires
    )
    ruling = parts.policies.current().may_ask(request_of(replace(run, proposal=proposal)))
    changelog.append(
        tx,
        "planned",
        run=run.id,
        host=run.host,
        digest=proposal.digest,
        plan=proposal.facts,
        approvals=ruling.approvals,
        groups=ruling.groups,
    )
    if not ruling.allowed:
        why = "; ".join(ruling.says) or "no rule of the policy allows it"
        return end(parts, tx, known, State.REFUSED, f"The policy refuses: {why}")
    news.announce(tx, run.id)
    # What a schedule asks for was approved with the schedule: the gate counts those keys.
    waits = ruling.approvals and not run.origin.schedule
    return runs.move(
        tx,
        known,
        State.WAITING if waits else State.READY,
        needed=ruling.approvals,
        groups=ruling.groups,
        says=ruling.says,
    )

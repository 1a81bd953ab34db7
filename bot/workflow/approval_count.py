"""Counting: what the approvals of a run must come to now, and which of those given count.

The rules are asked again each time, since they may look at the clock, at a freeze, or at what the
asker has done before. Whatever they say by now, nothing of what they said before is weakened: what
was shown to people stays in the run as its terms, and the stricter of then and now holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.db import runs
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import Policy, Request, Ruling
from bot.workflow import delegation_rules
from bot.workflow.context import build_policy_request
from bot.workflow.second_factor import is_vote_proven


@dataclass(frozen=True)
class ApprovalCount:
    """keys: whose approvals count. lost: who approved, and could not do so any more.

    met: whether the keys are enough. missing: how many more it takes at the least.
    no: by whom it was denied, "" if by nobody.
    """

    request: Request
    ruling: Ruling
    keys: Sequence[str]
    lost: Sequence[str]
    missing: int
    no: str = ""

    @property
    def met(self) -> bool:
        return self.ruling.allowed and not self.missing


def is_first_success(tx: Transaction, policy: Policy, *, person: str, words: str) -> bool:
    """Say whether this person has never had this runbook succeed; looked up where a rule asks."""
    return "novel" not in policy.mentioned or runs.is_first_time(tx, person=person, words=words)


def get_ruling(tx: Transaction, policy: Policy, run: Run) -> tuple[Request, Ruling]:
    """Return what the rules look at, and the stricter of what they say now and have said.

    Once a run is under way the clock stands still for it: no rule about hours stops it half-way.
    """
    at = run.started if run.state is State.RUNNING else None
    first = is_first_success(tx, policy, person=run.asked_by, words=run.words)
    request = replace(build_policy_request(run, now=at or tx.now), novel=first)
    ruling = policy.may_ask(request)
    if not ruling.allowed:
        return request, ruling
    terms = ruling.terms.escalated() if request.escalated else ruling.terms
    return request, replace(ruling, terms=terms.and_also(run.terms))


def count_approvals(
    tx: Transaction, policy: Policy, run: Run, keyed: Run | None = None
) -> ApprovalCount:
    """Count the approvals of a run. keyed: the run that was approved, if it is another."""
    request, ruling = get_ruling(tx, policy, run)
    approved = keyed or run
    votes = runs.list_votes(tx, approved.id)
    given = [
        vote
        for vote in votes
        if vote.yes
        and vote.digest == approved.digest
        and (not ruling.step_up or is_vote_proven(tx, policy, vote))
    ]
    in_force = delegation_rules.list_logged_delegations(tx, now=request.now)
    turned = {
        vote.person: delegation_rules.get_vote_owner(policy, in_force, vote, request, ruling)
        for vote in given
    }
    # A delegator and their delegate have one key between them.
    keys = list(dict.fromkeys(key for key in turned.values() if key))
    lost = [person for person, key in turned.items() if not key]
    no = next((vote.person for vote in votes if not vote.yes), "")
    return ApprovalCount(request, ruling, keys, lost, policy.missing(ruling.terms, keys), no)

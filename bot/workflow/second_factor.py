"""The second factor: whether it is its person's, was shown just now, and still counts later on."""

import logging

from bot.policy import Policy
from bot.run import Vote
from bot.store import factors, signins, testimony
from bot.store.database import Transaction
from bot.store.factors import Factor

log = logging.getLogger(__name__)


def counts(policy: Policy, factor: Factor) -> bool:
    """Say whether this factor is its person's: proven, and vouched for by more than a sign-in."""
    known = policy.person(factor.person)
    if known is None or factor.proven is None:
        return False
    return factor.digest in known.factors or bool(factor.confirmed_by)


def shown(tx: Transaction, policy: Policy, *, person: str, session: str) -> str:
    """Return the digest of the factor that this person has just shown in this session, or ""."""
    found = signins.find(tx, session) if session else None
    if found is None or found.person != person or not found.fresh(tx.now):
        return ""
    if not testimony.stepped_up(tx, found):
        log.critical("the change log does not bear out that %s showed a second factor", person)
        return ""
    return found.factor if still_counts(tx, policy, person=person, digest=found.factor) else ""


def still_counts(tx: Transaction, policy: Policy, *, person: str, digest: str) -> bool:
    """Say whether a factor that was shown earlier is still its person's."""
    return any(
        factor.digest == digest and counts(policy, factor) for factor in factors.of(tx, person)
    )


def proves(tx: Transaction, policy: Policy, vote: Vote) -> bool:
    """Say whether a vote counts where the rules want a second factor."""
    return bool(vote.factor) and still_counts(tx, policy, person=vote.person, digest=vote.factor)


def is_owner(policy: Policy, person: str) -> bool:
    return any(person in area.owners for area in policy.household.areas.values())

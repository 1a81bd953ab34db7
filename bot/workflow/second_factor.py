"""The second factor: whether it is its person's, was shown just now, and still counts later on."""

import logging

from bot.audit import change_log, evidence, followed_log
from bot.auth import second_factors, sessions
from bot.auth.second_factors import SecondFactor
from bot.db.database import Transaction
from bot.model.run import Decision
from bot.policy import Policy

# The kind of the entries that tell of it.
FACTOR_REMOVED = "factor removed"
log = logging.getLogger(__name__)


def is_factor_valid(policy: Policy, factor: SecondFactor) -> bool:
    """Say whether this factor is its person's: proven, and vouched for by more than a sign-in."""
    known = policy.find_person(factor.person)
    if known is None or factor.verified_at is None:
        return False
    return factor.digest in known.factors or bool(factor.confirmed_by)


def get_shown_factor(tx: Transaction, policy: Policy, *, person: str, session: str) -> str:
    """Return the digest of the factor that this person has just shown in this session, or ""."""
    found = sessions.find_session(tx, session) if session else None
    if found is None or found.person != person or not found.is_step_up_recent(tx.now):
        return ""
    if not evidence.is_stepped_up(tx, found):
        log.critical("the change log does not bear out that %s showed a second factor", person)
        return ""
    return (
        found.factor_digest
        if is_factor_still_valid(tx, policy, person=person, digest=found.factor_digest)
        else ""
    )


def is_factor_still_valid(tx: Transaction, policy: Policy, *, person: str, digest: str) -> bool:
    """Say whether a factor that was shown earlier is still its person's."""
    return any(
        factor.digest == digest and is_factor_valid(policy, factor)
        for factor in second_factors.list_factors(tx, person)
    ) and not is_factor_removed(tx, digest)


def is_factor_removed(tx: Transaction, digest: str) -> bool:
    """Say whether the log tells that a factor was removed: its row, put back, counts no more.

    Raises LogAltered where the entry that tells so was taken out.
    """
    known = followed_log.follow_log(tx)
    removed = change_log.list_entries_since(tx, FACTOR_REMOVED, 0)
    told = [entry for entry in removed if entry.facts.get("factor") == digest]
    followed_log.check_revocations(known, {FACTOR_REMOVED}, told, subject=digest)
    return bool(told)


def has_valid_factor(tx: Transaction, policy: Policy, decision: Decision) -> bool:
    """Say whether a vote counts where the rules want a second factor."""
    return bool(decision.factor) and is_factor_still_valid(
        tx, policy, person=decision.person, digest=decision.factor
    )


def is_area_owner(policy: Policy, person: str) -> bool:
    return any(person in area.owners for area in policy.organisation.areas.values())

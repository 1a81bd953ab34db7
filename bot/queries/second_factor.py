"""Check second factors: whether one is valid, and was entered recently in a session."""

import logging

from bot.audit import change_log, events, evidence, followed_log
from bot.auth import second_factors, sessions
from bot.auth.second_factors import SecondFactor
from bot.db.database import Transaction
from bot.model.run import Decision
from bot.policy import Policy

log = logging.getLogger(__name__)


def is_factor_valid(policy: Policy, factor: SecondFactor) -> bool:
    """Return whether a factor is verified, and confirmed by the policy or an owner."""
    known = policy.find_person(factor.person)
    if known is None or factor.verified_at is None:
        return False
    return factor.digest in known.factors or bool(factor.confirmed_by)


def get_shown_factor(tx: Transaction, policy: Policy, *, person: str, session: str) -> str:
    """Return the digest of the factor that was recently entered in this session, or ""."""
    current = sessions.find_session(tx, session) if session else None
    if current is None or current.person != person or not current.is_step_up_recent(tx.now):
        return ""
    if not evidence.is_stepped_up(tx, current):
        log.critical("the change log does not confirm that %s entered a second factor", person)
        return ""
    return (
        current.factor_digest
        if is_factor_still_valid(tx, policy, person=person, digest=current.factor_digest)
        else ""
    )


def is_factor_still_valid(tx: Transaction, policy: Policy, *, person: str, digest: str) -> bool:
    """Return whether a factor that was entered earlier is still valid."""
    return any(
        factor.digest == digest and is_factor_valid(policy, factor)
        for factor in second_factors.list_factors(tx, person)
    ) and not is_factor_removed(tx, digest)


def has_any_valid_factor(tx: Transaction, policy: Policy, person: str) -> bool:
    """Return whether a person has a second factor that counts."""
    return any(
        is_factor_valid(policy, one) and not is_factor_removed(tx, one.digest)
        for one in second_factors.list_factors(tx, person)
    )


def is_factor_removed(tx: Transaction, digest: str) -> bool:
    """Return whether the log records that a factor was removed, even if its row was restored.

    Raises LogAlteredError if the entry was deleted from the log.
    """
    known = followed_log.follow_log(tx)
    kind = events.FactorRemoved.kind
    removed = change_log.list_entries_since(tx, kind, 0)
    # The fact is read as it is: an entry that this version does not know removes as well.
    entries = [entry for entry in removed if entry.event.get_fact("factor") == digest]
    followed_log.check_revocations(known, {kind}, entries, subject=digest)
    return bool(entries)


def has_valid_factor(tx: Transaction, policy: Policy, decision: Decision) -> bool:
    """Return whether a decision was made with a second factor that is still valid."""
    return bool(decision.factor) and is_factor_still_valid(
        tx, policy, person=decision.person, digest=decision.factor
    )


def is_area_owner(policy: Policy, person: str) -> bool:
    """Return whether the person owns any area."""
    return any(person in area.owners for area in policy.organisation.areas.values())

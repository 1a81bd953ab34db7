"""Evidence checks of delegations and grants: compare their rows with the signed change log.

An attacker with write access to the database can add a row or remove a revocation, but cannot sign
the entry that belongs to it. A revocation counts with any signature.
"""

from collections.abc import Sequence

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.audit.event_type import Event
from bot.audit.followed_log import check_grant_uses, check_revocations, follow_log
from bot.audit.inclusion import list_vouched_entries
from bot.db import grants
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.db.grants import Grant
from bot.model.times import HOUR, format_deadline


def list_logged_delegations(
    tx: Transaction, delegations: Sequence[Delegation]
) -> list[Delegation]:
    """Return those that the log confirms as their rows describe them, and that are not revoked."""
    return [one for one in delegations if _is_delegation_logged(tx, one)]


def _is_delegation_logged(tx: Transaction, delegation: Delegation) -> bool:
    entry = _find_creation(
        tx, events.DelegationCreated, events.DelegationRevoked, "delegation", delegation.id
    )
    event = entry.event if entry else None
    if entry is None or not isinstance(event, events.DelegationCreated):
        return False
    logged = entry.person, event.delegate, event.area, event.until
    return logged == (
        delegation.delegator,
        delegation.delegate,
        delegation.where,
        format_deadline(delegation.ends_at),
    )


def is_grant_logged(tx: Transaction, grant: Grant) -> bool:
    """Return whether the log confirms the grant as its row describes it, and it is not revoked."""
    entry = _find_creation(tx, events.GrantCreated, events.GrantRevoked, "grant", grant.id)
    event = entry.event if entry else None
    if entry is None or not isinstance(event, events.GrantCreated):
        return False
    logged = entry.person, event.granted_to, event.what, event.per_hour, event.until
    return logged == (
        grant.granted_by,
        grant.person,
        grant.what,
        grant.per_hour,
        format_deadline(grant.ends_at),
    )


def _find_creation(
    tx: Transaction, created: type[Event], revoked: type[Event], fact: str, number: int
) -> Entry | None:
    """Return the entry that creates what has this number; None if there is none, or it is revoked.

    Raises LogAlteredError.
    """
    known = follow_log(tx)
    ends = change_log.list_entries_naming(tx, revoked.kind, fact, number)
    check_revocations(known, {revoked.kind}, ends, subject=str(number))
    named = [] if ends else change_log.list_entries_naming(tx, created.kind, fact, number)
    return next(iter(list_vouched_entries(tx, named)), None)


def has_all_uses_counted(tx: Transaction, grant: Grant, *, except_run: int) -> bool:
    """Return whether the rows count every use of the grant that the log has for the last hour.

    except_run: a run that is not counted. A forged entry only adds a use, so it does no harm.
    """
    known, since = follow_log(tx), tx.now - HOUR
    used = [*change_log.list_entries_since(tx, events.GrantUsed.kind, since)]
    check_grant_uses(known, since, used)
    logged = [
        entry
        for entry in used
        if entry.event.get_fact("grant") == grant.id and entry.run != except_run
    ]
    return len(logged) <= grants.count_used(tx, grant.id, except_run=except_run)

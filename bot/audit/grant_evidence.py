"""Attested: delegations and grants that the signed log bears out, whatever their rows say.

Whoever can write to the database can write a row, or take back that one was revoked. Without the
key of the log they cannot write the entry that belongs to it. What says that one was revoked does
so whoever wrote it.
"""

from collections.abc import Sequence

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.audit.followed_log import check_taking, check_used, follow_log
from bot.audit.key_history import list_vouched_entries
from bot.db import grants
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.db.grants import Grant
from bot.model.times import format_deadline


def list_logged_grants(tx: Transaction, found: Sequence[Delegation]) -> list[Delegation]:
    """Return those that were given as their rows say, and not revoked."""
    return [one for one in found if _as_logged(tx, one)]


def is_grant_logged(tx: Transaction, given: Grant) -> bool:
    """Say whether the grant was given as its row says, and not revoked."""
    if _taken_back(tx, "grant revoked", "grant", given.id):
        return False
    entries = list_vouched_entries(tx, _told(tx, "granted", "grant", given.id))
    if not entries:
        return False
    entry, facts = entries[0], entries[0].facts
    said = (entry.person, *(facts.get(name) for name in ("to", "what", "an_hour", "until")))
    return said == (
        given.giver,
        given.person,
        given.what,
        given.an_hour,
        format_deadline(given.ends),
    )


def are_uses_logged(tx: Transaction, given: Grant, *, but: int) -> bool:
    """Say whether every use of the grant within the last hour that the log tells of is counted.

    but: a run that is not counted. Whose entry was forged does not matter: it gives nothing back.
    """
    known, since = follow_log(tx), tx.now - grants.HOUR
    used = [*change_log.list_entries_since(tx, "grant used", since)]
    check_used(known, since, used)
    told = [entry for entry in used if entry.facts.get("grant") == given.id and entry.run != but]
    return len(told) <= grants.count_used(tx, given.id, but=but)


def _as_logged(tx: Transaction, one: Delegation) -> bool:
    if _taken_back(tx, "delegation revoked", "delegation", one.id):
        return False
    entries = list_vouched_entries(tx, _told(tx, "delegated", "delegation", one.id))
    if not entries:
        return False
    entry, facts = entries[0], entries[0].facts
    said = (entry.person, *(facts.get(name) for name in ("delegate", "area", "until")))
    return said == (one.delegator, one.delegate, one.where, format_deadline(one.ends))


def _taken_back(tx: Transaction, kind: str, name: str, number: int) -> bool:
    """Say whether the log tells that it was revoked. Raises LogAltered."""
    known = follow_log(tx)
    told = _told(tx, kind, name, number)
    check_taking(known, {kind}, told, about=str(number))
    return bool(told)


def _told(tx: Transaction, kind: str, name: str, number: int) -> list[Entry]:
    """Return the entries of this kind that speak of that number, whoever signed them."""
    found = change_log.list_entries_naming(tx, kind, name, number)
    return [entry for entry in found if entry.facts.get(name) == number]

"""Attested: delegations and grants that the signed log bears out, whatever their rows say.

Whoever can write to the database can write a row, or take back that one was revoked. Without the
key of the log they cannot write the entry that belongs to it.
"""

from collections.abc import Sequence

from bot.deadline import written
from bot.store import changelog, grants
from bot.store.changelog import Entry
from bot.store.database import StoreUnavailable, Transaction
from bot.store.delegations import Delegation
from bot.store.grants import Grant
from bot.store.testimony import is_ours


def borne_out(tx: Transaction, found: Sequence[Delegation]) -> list[Delegation]:
    """Return those that were given as their rows say, and not revoked."""
    return [one for one in found if _as_logged(tx, one)]


def granted_so(tx: Transaction, given: Grant) -> bool:
    """Say whether the grant was given as its row says, and not revoked."""
    if _entry(tx, "grant revoked", "grant", given.id) is not None:
        return False
    entry = _entry(tx, "granted", "grant", given.id)
    if entry is None:
        return False
    facts = entry.facts
    said = (entry.person, facts["to"], facts["what"], facts["an_hour"], facts["until"])
    return said == (given.giver, given.person, given.what, given.an_hour, written(given.ends))


def used_so(tx: Transaction, given: Grant, *, but: int) -> bool:
    """Say whether every use of the grant within the last hour that the log tells of is counted.

    but: a run that is not counted. Whose entry was forged does not matter: it gives nothing back.
    """
    told = [
        entry
        for entry in changelog.since(tx, "grant used", tx.now - grants.HOUR)
        if entry.facts.get("grant") == given.id and entry.run != but
    ]
    return len(told) <= grants.used(tx, given.id, but=but)


def _as_logged(tx: Transaction, one: Delegation) -> bool:
    if _entry(tx, "delegation revoked", "delegation", one.id) is not None:
        return False
    entry = _entry(tx, "delegated", "delegation", one.id)
    if entry is None:
        return False
    facts = entry.facts
    said = (entry.person, facts["delegate"], facts["area"], facts["until"])
    return said == (one.delegator, one.delegate, one.where, written(one.ends))


def _entry(tx: Transaction, kind: str, name: str, number: int) -> Entry | None:
    """Return the entry of this kind that speaks of that number, if it has our signature."""
    for entry in changelog.speaking_of(tx, kind, name, number):
        if entry.facts.get(name) == number and _ours(tx, entry):
            return entry
    return None


def _ours(tx: Transaction, entry: Entry) -> bool:
    try:
        return is_ours(tx, entry)
    except StoreUnavailable:
        # Without the key there is only reading here: nothing can be decided or let through.
        return True

"""Ancestry: which entries our key vouches for, also those that an older key of the log signed.

Each entry counts by its own signature, of the key of its time. A new key has signed, as it took
over, which key it follows and where the log ended. An entry of an older key also has to lead up to
there by the hashes: who has stolen that key can sign, and cannot change what led up to it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.database import StoreUnavailable, Transaction
from bot.model import signing

# What waits for an approval is some days old at the most: nobody follows the links for years.
_MAX_ENTRIES = 100_000


# Whether a signature fits a hash never changes, and the same few are looked at before each packet.
_is_signature_valid_cached = lru_cache(4096)(signing.is_signature_valid)


@lru_cache(64, typed=True)
def _is_hash_valid_cached(*row: Any) -> bool:
    """Say whether an entry has the hash that it must have.

    It is known again by all that it says, and not by its hash: what was altered is looked at anew.
    What was asked for hundreds of hosts and shown of them is long.
    """
    return change_log.is_hash_valid(row)


def list_vouched_entries(tx: Transaction, entries: Iterable[Entry]) -> list[Entry]:
    """Return those of the entries that have their hash, and for which our key vouches.

    Where there is no key, there is only reading: nothing is decided, and all are returned.
    """
    try:
        ours = tx.seal
    except StoreUnavailable:
        return list(entries)
    whole = [entry for entry in entries if _is_hash_valid_cached(*vars(entry).values())]
    foreign = {
        e.hash
        for e in whole
        if not _is_signature_valid_cached(ours.public_key, e.hash, e.signature)
    }
    older = [e for e in whole if e.hash in foreign and e.hash not in ours.inherited_hashes]
    if older:
        ours.inherited_hashes |= _list_inherited_hashes(tx, ours.public_key, older)
    return [e for e in whole if e.hash not in foreign or e.hash in ours.inherited_hashes]


def _list_inherited_hashes(tx: Transaction, public_key: str, entries: Sequence[Entry]) -> set[str]:
    """Return the hashes of those that the key of their time signed, and that are in the log that
    our key took over: who has stolen an older key cannot write into that."""
    keys = change_log.list_keys(tx)
    if not keys or keys[-1][1] != public_key:
        return set()
    signed = [
        entry
        for entry in entries
        if _is_signature_valid_cached(
            change_log.find_key_of_entry(keys, entry.seq), entry.hash, entry.signature
        )
    ]
    return _list_linked_hashes(tx, public_key, signed)


def _list_linked_hashes(tx: Transaction, public_key: str, entries: Sequence[Entry]) -> set[str]:
    """Return the hashes of those that lead up to what the key signed when it became ours."""
    if not entries:
        return set()
    named = change_log.get_last_entry_of_kind(tx, change_log.KEY_KIND)
    first = min(entry.seq for entry in entries)
    if named is None or not 0 < named.seq - first <= _MAX_ENTRIES:
        return set()
    if named.facts.get("public") != public_key:
        return set()
    wanted, found = {entry.hash for entry in entries}, set[str]()
    seq, prev = first, ""
    for row in change_log.read_rows_between(tx, first, named.seq):
        if row.seq != seq or (prev and row.prev != prev) or not change_log.is_hash_valid(row):
            return set()
        seq, prev = seq + 1, row.hash
        if prev in wanted:
            found.add(prev)
    return found if prev == named.prev else set()

"""Key history: which entries our signing key vouches for, including those of earlier keys.

Every entry has the signature of the key that was in use then. When a new key replaced another, it
signed which key it follows and where the log ended. So an entry of an earlier key also has to lead
to that point by its hashes: a thief of the earlier key can sign, but cannot change that history.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db.database import StoreUnavailable, Transaction
from bot.model import signing

# Requests wait for approval for days, so their entries are never further back than this.
_MAX_ENTRIES = 100_000


# A signature stays valid, and the same few are checked before each send.
_is_signature_valid_cached = lru_cache(4096)(signing.is_signature_valid)


@lru_cache(64, typed=True)
def _is_hash_valid_cached(*row: Any) -> bool:
    """Return whether the content of an entry has its hash.

    The cache key is the whole entry, not its hash, so an altered entry is checked again. Cached
    because the entries of a request for hundreds of hosts are long.
    """
    return change_log.is_hash_valid(row)


def list_vouched_entries(tx: Transaction, entries: Iterable[Entry]) -> list[Entry]:
    """Return those of the entries that have their hash and that our key vouches for.

    Without a signing key this process only reads and decides nothing: all are returned.
    """
    try:
        ours = tx.signing_key
    except StoreUnavailable:
        return list(entries)
    intact = [entry for entry in entries if _is_hash_valid_cached(*vars(entry).values())]
    foreign = {
        e.hash
        for e in intact
        if not _is_signature_valid_cached(ours.public_key, e.hash, e.signature)
    }
    older = [e for e in intact if e.hash in foreign and e.hash not in ours.inherited_hashes]
    if older:
        ours.inherited_hashes |= _list_inherited_hashes(tx, ours.public_key, older)
    return [e for e in intact if e.hash not in foreign or e.hash in ours.inherited_hashes]


def _list_inherited_hashes(tx: Transaction, public_key: str, entries: Sequence[Entry]) -> set[str]:
    """Return the hashes of those that an earlier key signed before our key replaced it.

    A thief of the earlier key cannot add entries to that part of the log.
    """
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
    """Return the hashes of those that lead to the entry where our key came into use."""
    if not entries:
        return set()
    key_entry = change_log.get_last_entry_of_kind(tx, events.KeyAdded.kind)
    first = min(entry.seq for entry in entries)
    if key_entry is None or not 0 < key_entry.seq - first <= _MAX_ENTRIES:
        return set()
    if change_log.get_added_key(key_entry) != public_key:
        return set()
    wanted, found = {entry.hash for entry in entries}, set[str]()
    seq, prev = first, ""
    for row in change_log.read_rows_between(tx, first, key_entry.seq):
        if row.seq != seq or (prev and row.prev != prev) or not change_log.is_hash_valid(row):
            return set()
        seq, prev = seq + 1, row.hash
        if prev in wanted:
            found.add(prev)
    return found if prev == key_entry.prev else set()

"""Proof of one entry: a file that other tools verify, without the log.

The format is https://c2sp.org/tlog-proof: the entry, its audit path, and a signed checkpoint. The
extra data are the entry's canonical JSON, whose hash is the leaf. So the file says itself what it
proves, in about 2 KB.
"""

from base64 import b64encode

from bot.audit import change_log, inclusion, query
from bot.audit.change_log import Entry, LogAlteredError
from bot.db.database import Transaction
from connectors.errors import DomainError

# The ending that the specification asks for.
FILE_ENDING = "tlog-proof"


class NoSuchEntry(DomainError):
    """No entry of the change log has this number, or it may not be viewed."""

    code, status = "entry-not-found", 404


def build_proof(tx: Transaction, seq: int) -> str:
    """Return the proof of an entry. Raises NoSuchEntry and LogAlteredError."""
    entry = _get_entry(tx, seq)
    point = change_log.get_checkpoint_to_prove(tx, seq)
    if point is None:
        raise LogAlteredError(f"no checkpoint signs entry {seq}")
    tree = change_log.build_tree_of(tx, point)
    content = change_log.encode_entry([*vars(entry).values()])
    if not change_log.is_hash_valid(
        [*vars(entry).values()]
    ) or not inclusion.list_included_entries(tx, tree, [entry]):
        raise LogAlteredError(f"entry {seq} does not lead to the signed root")
    path = change_log.prove_inclusion(tx, seq, point.size)
    lines = [
        "c2sp.org/tlog-proof@v1",
        f"extra {b64encode(content).decode()}",
        f"index {seq - 1}",
        *(b64encode(one).decode() for one in path),
        "",
        point.note,
    ]
    return "\n".join(lines)


def _get_entry(tx: Transaction, seq: int) -> Entry:
    found = query.find_newest_entries(tx, query.EntryFilter(before=seq + 1), limit=1)
    if not found or found[0].seq != seq:
        raise NoSuchEntry(f"there is no entry {seq} that you may view")
    return found[0]

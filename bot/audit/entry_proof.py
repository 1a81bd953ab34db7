"""Proof of one entry: a file that other tools verify, without the log.

The format is https://c2sp.org/tlog-proof: the entry, its audit path, and a signed checkpoint. The
extra data are the entry's canonical JSON, whose hash is the leaf. So the file says itself what it
proves, in about 2 KB. The proofs of a run are several such files, under one checkpoint.
"""

import io
import re
import zipfile
from base64 import b64encode
from collections.abc import Container, Sequence
from dataclasses import dataclass

from bot.audit import change_log, events, inclusion
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.checkpoints import Checkpoint
from bot.db import runs
from bot.db.database import Transaction
from bot.model.times import to_datetime
from connectors.errors import DomainError

# The ending that the specification asks for.
FILE_ENDING = "tlog-proof"
# Who wanted what, who approved it, and what became of it.
_PROVEN_KINDS = frozenset(
    {
        *(events.Requested.kind, events.Planned.kind, events.Approved.kind, events.Started.kind),
        *(events.BreakGlassActivated.kind, events.NotWitnessed.kind),
        *events.FINAL_KINDS,
    }
)


class NoSuchEntry(DomainError):
    """No entry of the change log has this number, or it may not be viewed."""

    code, status = "entry-not-found", 404


@dataclass(frozen=True)
class RunProof:
    """The proof of one entry of a run."""

    entry: Entry
    proof: str

    @property
    def file_name(self) -> str:
        kind = re.sub(r"[^a-z]+", "-", self.entry.kind)
        return f"{self.entry.seq}-{kind}.{FILE_ENDING}"


def build_proof(tx: Transaction, seq: int) -> str:
    """Return the proof of an entry. Raises NoSuchEntry and LogAlteredError."""
    entry = change_log.get_entry(tx, seq)
    if entry is None:
        raise NoSuchEntry(f"there is no entry {seq} that you may view")
    return _build_proofs(tx, [entry])[0]


def build_run_proofs(tx: Transaction, run: int) -> list[RunProof]:
    """Return proofs of who requested, planned, approved and started a run, and how it ended.

    Of a part of a request for many hosts, also those of the whole. All have the same checkpoint.
    Raises NoSuchRun and LogAlteredError.
    """
    parent = runs.get_run(tx, run).parent
    entries = [
        entry
        for number in (parent, run)
        if number is not None
        for entry in change_log.list_entries_of_run(tx, number, _PROVEN_KINDS)
    ]
    proofs = _build_proofs(tx, entries)
    return [RunProof(*pair) for pair in zip(entries, proofs, strict=True)]


def pack_run_proofs(proofs: Sequence[RunProof]) -> bytes:
    """Return a ZIP archive with a file for each proof, which is the same each time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in proofs:
            at = to_datetime(one.entry.at).timetuple()[:6]
            archive.writestr(zipfile.ZipInfo(one.file_name, at), one.proof)
    return packed.getvalue()


def _build_proofs(tx: Transaction, entries: Sequence[Entry]) -> list[str]:
    newest = max((entry.seq for entry in entries), default=0)
    point = change_log.get_checkpoint_to_prove(tx, newest)
    if point is None:
        raise LogAlteredError(f"no checkpoint signs entry {newest}")
    tree = change_log.build_tree_of(tx, point)
    included = {one.seq for one in inclusion.list_included_entries(tx, tree, entries)}
    return [_format_proof(tx, entry, point, included) for entry in entries]


def _format_proof(
    tx: Transaction, entry: Entry, point: Checkpoint, included: Container[int]
) -> str:
    row = [*vars(entry).values()]
    if entry.seq not in included or not change_log.is_hash_valid(row):
        raise LogAlteredError(f"entry {entry.seq} does not lead to the signed root")
    path = change_log.prove_inclusion(tx, entry.seq, point.size)
    lines = [
        "c2sp.org/tlog-proof@v1",
        f"extra {b64encode(change_log.encode_entry(row)).decode()}",
        f"index {entry.seq - 1}",
        *(b64encode(one).decode() for one in path),
        "",
        point.note,
    ]
    return "\n".join(lines)

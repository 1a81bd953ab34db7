"""Verification of the change log: every hash, every link, the seal, and what witnesses saw."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from bot.digest import sha256
from bot.store import changelog, seal
from bot.store.changelog import GENESIS, Entry
from bot.store.database import Transaction
from bot.store.witness import Checkpoint

KEY = "key"
_UNSIGNED = "is not signed by the key of the log"


@dataclass(frozen=True)
class Verdict:
    """The outcome. broken: the first sequence number that does not fit; None if all is well.

    entries, head: how far the log is whole, and the hash there. key: who sealed it last.
    """

    entries: int
    head: str
    key: str = ""
    broken: int | None = None
    why: str = ""


def open_log(tx: Transaction) -> None:
    """Begin a new log with its key, or see that an old one was sealed by ours.

    Raises BadKey if it was another's: what we would add could not be verified.
    """
    last = changelog.last_of_kind(tx, KEY)
    if last is None:
        changelog.append(tx, KEY, public=tx.seal.public)
    elif last.facts["public"] != tx.seal.public:
        raise seal.BadKey(
            f"the change log is sealed by the key {last.facts['public'][:16]}…, and ours is "
            f"{tx.seal.public[:16]}…: put the right changelog.key back, from the backup of its day"
        )


def checkpoint(tx: Transaction) -> Checkpoint:
    seq, head = changelog.head(tx)
    return Checkpoint(seq, head, tx.now, tx.seal.public, tx.seal.sign(head))


def last_checkpoint(tx: Transaction, run: int) -> Checkpoint:
    """Return how far the log was at the newest entry of a run. Needs no key of ours."""
    entry = changelog.last_of_run(tx, run)
    sealed = changelog.last_of_kind(tx, KEY)
    if entry is None:
        raise ValueError(f"there is nothing about run {run} in the change log")
    key = str(sealed.facts["public"]) if sealed else ""
    return Checkpoint(entry.seq, entry.hash, entry.at, key, entry.signature)


def verify(
    tx: Transaction, *, key: str = "", witnesses: Sequence[Checkpoint] = (), thorough: bool = False
) -> Verdict:
    """Recompute the whole chain. key: the public key that must have sealed the end.

    The signature of the last entry binds all before it, since each holds the hash of the one
    before; thorough: check every signature all the same.
    """
    wanted = {point.seq for point in witnesses}
    with closing(changelog.everything(tx)) as entries:
        verdict, seen = _walk(entries, thorough=thorough, wanted=wanted)
    if verdict.broken is not None and verdict.why.endswith(_UNSIGNED) and not thorough:
        # The hashes were made to fit again by somebody without the key: find where that began.
        return verify(tx, key=key, witnesses=witnesses, thorough=True)
    if verdict.broken is None and key and verdict.key != key and verdict.entries:
        why = f"sealed by the key {verdict.key[:16]}…, and not by {key[:16]}…"
        return Verdict(verdict.entries, verdict.head, verdict.key, verdict.entries, why)
    return _compared(verdict, seen, witnesses)


def _walk(
    entries: Iterable[Entry], *, thorough: bool, wanted: set[int]
) -> tuple[Verdict, dict[int, str]]:
    seq, prev, key, last = 0, GENESIS, "", None
    seen: dict[int, str] = {}
    for entry in entries:
        why = _fault(entry, seq + 1, prev)
        is_key = entry.kind == KEY
        if not why and seq == 0 and is_key:
            key = str(entry.facts.get("public", ""))
        if not why and (is_key or thorough or not key) and not _signed(key, entry):
            why = f"entry {entry.seq} {_UNSIGNED}"
        if why:
            return Verdict(seq, prev, key, seq + 1, why), seen
        if is_key:
            key = str(entry.facts.get("public", ""))
        seq, prev, last = entry.seq, entry.hash, entry
        if seq in wanted:
            seen[seq] = prev
    if last is not None and not _signed(key, last) and last.kind != KEY:
        return Verdict(seq, prev, key, seq, f"entry {seq} {_UNSIGNED}"), seen
    return Verdict(seq, prev, key), seen


def _compared(verdict: Verdict, seen: dict[int, str], witnesses: Sequence[Checkpoint]) -> Verdict:
    """Hold the log against what witnesses kept: it may have been cut, restored or forked."""
    if verdict.broken is not None:
        return verdict
    for point in sorted(witnesses, key=lambda point: point.seq):
        if not seal.fits(point.key, point.hash, point.signature):
            why = f"the witness's checkpoint of entry {point.seq} is not signed by its key"
        elif point.seq > verdict.entries:
            why = (
                f"cut off: a witness saw entry {point.seq}, and the log ends at {verdict.entries} "
                "(was a backup restored?)"
            )
        elif seen.get(point.seq) != point.hash:
            why = f"another history: a witness saw another entry {point.seq}"
        else:
            continue
        broken = min(point.seq, verdict.entries + 1)
        return Verdict(verdict.entries, verdict.head, verdict.key, broken, why)
    return verdict


def _signed(key: str, entry: Entry) -> bool:
    return seal.fits(key, entry.hash, entry.signature)


def _fault(entry: Entry, seq: int, prev: str) -> str:
    if entry.seq != seq:
        return f"entry {seq} is missing"
    if entry.prev != prev:
        return f"entry {seq} does not follow the one before it"
    content = {
        name: value for name, value in vars(entry).items() if name not in {"hash", "signature"}
    }
    if sha256(content) != entry.hash:
        return f"entry {seq} was altered: its content does not have its hash"
    return ""

#!/usr/bin/env python3
"""Verify an export of Keyturn's change log, without Keyturn.

    keyturn changelog export > export.jsonl
    python3 verify_changelog.py export.jsonl [--key HEX] [--witness FILE]... [--quick]

It shares no code with the service: only Python's standard library and the Ed25519 of the package
`cryptography`. Read it before you trust it; that is why it is short.

The format. Each line of the export is a JSON object with
    seq        dense, from 1
    at         microseconds since 1970, UTC
    kind, run, person, host
    body       canonical JSON, as text
    prev       the hash of the entry before; 64 zeros for the first
    hash       SHA-256, 64 hex digits, of the canonical JSON of all members above:
               keys sorted, no spaces, characters as they are, UTF-8
    signature  Ed25519 over the 32 bytes of the hash, 128 hex digits
Entry 1 has the kind "key" and names the public key in its body. A further entry of this kind is
signed by the key before it, holds a proof that the owner of the new key signed too (the SHA-256 of
the canonical JSON of after: its prev, key: the key before it, seq: its own), and what follows is
signed by the one that it names.
An entry whose body has output_sha256 binds what a host answered, which is beside it as output:
salt and text, and the hash is that of the canonical JSON of both. It is null once it was erased,
which an entry of the kind "output erased" about the same run must tell.
Every signature is checked, on all cores. --quick checks only the last one and those of entries
that name a key: enough to find what was altered after it was written, since each entry holds the
hash of the one before, and Keyturn checks an entry before it adds the next.
A witness's file has one checkpoint a line: seq, hash, at, key, signature, as JSON; or it is a log
of a host or of a log server, with lines that say "keyturn checkpoint seq=… hash=… …".
An entry of the kind "restored" says that a backup was put back: what witnesses saw from its number
on, and before its time, was lost then. That counts as broken until an entry of the kind "loss
acknowledged" names, as first and lost, from which entry on how many were lost before its time.
"""

import argparse
import hashlib
import json
import re
import sys
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from json.encoder import encode_basestring as quoted
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
# Logs put the time, the host and more before it, or the whole into JSON.
SAID = re.compile(
    r"keyturn checkpoint seq=(\d+) hash=([0-9a-f]{64}) at=(\d+) "
    r"key=([0-9a-f]{64}) signature=([0-9a-f]{128})"
)


class Broken(Exception):
    """The log does not fit. args: the first entry that does not, and why."""

    def __str__(self):
        return f"BROKEN at entry {self.args[0]}: {self.args[1]}"


def sha256(thing):
    """Return the hash of its canonical JSON."""
    return hashlib.sha256(CANONICAL(thing).encode()).hexdigest()


def hash_of(entry):
    """Return the same of its members, written down at once: of millions that takes the time."""
    seq, at, run = entry["seq"], entry["at"], entry["run"]
    if not type(seq) is type(at) is int or type(run) not in (int, type(None)):
        raise TypeError("these are numbers")
    content = (
        f'{{"at":{at},"body":{quoted(entry["body"])},"host":{quoted(entry["host"])},'
        f'"kind":{quoted(entry["kind"])},"person":{quoted(entry["person"])},'
        f'"prev":{quoted(entry["prev"])},"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    return hashlib.sha256(content.encode()).hexdigest()


def signed(key, digest, signature):
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), bytes.fromhex(digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_in(entry, seq):
    try:
        return json.loads(entry["body"])["public"]
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "it names no public key") from None


def chained(line, seq, prev):
    """Return the entry on this line if it stands where it should, and its hash."""
    try:
        entry = json.loads(line)
        digest = hash_of(entry)
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "this line is no entry") from None
    if entry["seq"] != seq:
        raise Broken(seq, "it is missing")
    if entry["prev"] != prev:
        raise Broken(seq, "it does not follow the one before it")
    if digest != entry.get("hash"):
        raise Broken(seq, "it was altered: its content does not have its hash")
    return entry, digest


def check_output(entry, seq, unasked):
    """Hold the output beside an entry against its hash; note those erased until that is told."""
    if entry["kind"] == "output erased":
        unasked.pop(entry["run"], None)
    if "output_sha256" not in entry["body"]:
        return
    body = json.loads(entry["body"])
    bound = body.get("output_sha256") if isinstance(body, dict) else None
    if bound is None or "output" not in entry:
        if bound is not None:
            raise Broken(seq, "the output that it binds is missing")
        return
    if entry["output"] is None:
        unasked.setdefault(entry["run"], seq)
    elif sha256({name: entry["output"].get(name) for name in ("salt", "text")}) != bound:
        raise Broken(seq, "the output that it binds was altered")


def check_key(entry, seq, key):
    """Return the key that an entry names, if its owner signed too; the first names its own."""
    named = public_key_in(entry, seq)
    proof = json.loads(entry["body"]).get("proof", "")
    succession = sha256({"after": entry["prev"], "key": key, "seq": seq})
    if key and not signed(named, succession, str(proof)):
        raise Broken(seq, "it names a key whose owner did not sign")
    return named


def check_signed(batch):
    """Raise Broken at the first entry whose key did not sign it."""
    for seq, key, digest, signature in batch:
        if not signed(key, digest, signature):
            raise Broken(seq, "it is not signed by the key of the log")


def loss_in(entry):
    """Return the first and the last number that were lost; the last is only known to a person."""
    if entry["kind"] == "restored":
        return entry["seq"], None
    body = json.loads(entry["body"])
    return body["first"], body["first"] + body["lost"] - 1


class Signatures:
    """Has signatures checked by other processes, a batch at a time, in the order of the log."""

    BATCH, AT_ONCE = 2000, 32

    def __init__(self):
        self.pool, self.batch, self.running = None, [], deque()

    def add(self, *one):
        self.batch.append(one)
        if len(self.batch) == self.BATCH:
            self.pool = self.pool or ProcessPoolExecutor()
            self.running.append(self.pool.submit(check_signed, self.batch))
            self.batch = []
        if len(self.running) > self.AT_ONCE:
            self.running.popleft().result()

    def finish(self):
        """Wait for all of them. Raises Broken."""
        while self.running:
            self.running.popleft().result()
        check_signed(self.batch)

    def close(self):
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


def walk(lines, signatures, quick):
    """Check every entry; return each one's hash, every key that sealed the log, and its losses."""
    keys, prev, hashes, unasked, losses, entry = [], "0" * 64, [], {}, [], None
    for seq, line in enumerate(lines, start=1):
        entry, digest = chained(line, seq, prev)
        if seq == 1 and entry["kind"] != "key":
            raise Broken(seq, "the log does not begin with its key")
        key = keys[-1] if keys else public_key_in(entry, seq)
        one = seq, key, digest, str(entry.get("signature"))
        if entry["kind"] == "key":
            check_signed([one])
            keys.append(check_key(entry, seq, keys and keys[-1]))
        elif not quick:
            signatures.add(*one)
        if entry["kind"] in ("restored", "loss acknowledged"):
            losses.append((loss_in(entry), entry["at"]))
        check_output(entry, seq, unasked)
        prev = digest
        hashes.append(digest)
    if entry:
        last = keys[-2] if entry["kind"] == "key" and len(keys) > 1 else keys[-1]
        signatures.add(len(hashes), last, prev, str(entry.get("signature")))
    for seq in sorted(unasked.values()):
        raise Broken(seq, "the output that it binds was erased unasked")
    return hashes, keys, losses


def walked(export, quick):
    """Walk the export and wait for the signatures: the first entry that does not fit counts."""
    signatures = Signatures()
    try:
        with Path(export).open(encoding="utf-8") as lines:
            try:
                return walk(lines, signatures, quick)
            finally:
                signatures.finish()
    except Broken:
        if quick:
            walked(export, quick=False)
        raise
    finally:
        signatures.close()


def checkpoint_in(line):
    """Return what a line witnesses: seq, hash, time, key and signature; None if it is no whole
    checkpoint."""
    if said := SAID.search(line):
        return int(said[1]), said[2], int(said[3]), said[4], said[5]
    try:
        point = json.loads(line)
        seq, at = int(point["seq"]), int(point["at"])
        return seq, point["hash"], at, point["key"], point["signature"]
    except (ValueError, KeyError, TypeError):
        return None


def is_lost(seq, digest, at, hashes, losses, witness):
    """Say whether a checkpoint is of a loss that is acknowledged. Raises Broken."""
    if seq == 0 or (seq <= len(hashes) and hashes[seq - 1] == digest):
        return False
    here = [last for (first, last), until in losses if first <= seq and at <= until]
    if any(last is not None and seq <= last for last in here):
        return True
    if None in here:
        raise Broken(seq, f"{witness} saw it, and it was lost when a backup was put back")
    if seq > len(hashes):
        raise Broken(len(hashes) + 1, f"cut off: {witness} saw entry {seq}")
    raise Broken(seq, f"another history: {witness} saw another entry {seq}")


def compare(hashes, losses, witness):
    """Compare with what a witness saw; return how many checkpoints agree, and are lost."""
    found = []
    with Path(witness).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            point = checkpoint_in(line)
            if point is None:
                continue
            seq, digest, at, key, signature = point
            if not signed(key, digest, signature):
                raise Broken(seq, f"{witness}, line {number} is not signed by its key")
            found.append(is_lost(seq, digest, at, hashes, losses, witness))
    if not found:
        sys.exit(f"{witness} holds no checkpoint of a change log")
    return found.count(False), found.count(True)


def main():
    parser = argparse.ArgumentParser(description="Verify an export of Keyturn's change log.")
    parser.add_argument("export", help="what `keyturn changelog export` printed")
    parser.add_argument("--key", help="a public key that must have sealed it")
    parser.add_argument("--witness", action="append", default=[], help="a witness's file")
    parser.add_argument("--quick", action="store_true", help="check few of the signatures")
    asked = parser.parse_args()
    try:
        hashes, keys, losses = walked(asked.export, asked.quick)
        seen = [compare(hashes, losses, witness) for witness in asked.witness]
        if asked.key and asked.key not in keys:
            raise Broken(len(hashes) or 1, f"sealed by {keys[-1:]}, and not by the key given")
    except Broken as broken:
        sys.exit(str(broken))
    except OSError as error:
        sys.exit(f"{error.filename} cannot be read: {error.strerror}")
    head = hashes[-1] if hashes else "none"
    print(f"{len(hashes)} entries, unbroken; head {head}")
    agreed, lost = (sum(column) for column in zip((0, 0), *seen, strict=True))
    print(f"sealed by {keys[-1] if keys else 'no key'}; {agreed} checkpoints of witnesses agree")
    if lost:
        print(f"{lost} are of entries that were lost, as a person has acknowledged in the log")


if __name__ == "__main__":
    main()

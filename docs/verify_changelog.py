#!/usr/bin/env python3
"""Verify an export of Keyturn's change log, without Keyturn.

    keyturn changelog export > export.jsonl
    python3 verify_changelog.py export.jsonl [--key HEX] [--witness FILE]... [--quick]

This script shares no code with the service. It needs only Python's standard library and the
Ed25519 of the package `cryptography`. It is short so that you can read it before you trust it.

The format. Each line of the export is a JSON object with
    seq        1, 2, 3, … without gaps
    at         microseconds since 1970, UTC
    kind, run, person, host
    body       canonical JSON, as text
    prev       the hash of the entry before; 64 zeros for the first
    hash       SHA-256, 64 hex digits, of the canonical JSON of all members above:
               keys sorted, no spaces, characters as they are, UTF-8
    signature  Ed25519 over the 32 bytes of the hash, 128 hex digits
Entry 1 has the kind "key" and holds the public key in its body. A later entry of this kind adds a
new key. The key before signs it, and it holds a proof that the owner of the new key signed as
well: a signature of the SHA-256 of the canonical JSON of after (its prev), key (the key before)
and seq (its own). The new key signs the entries after it.
An entry whose body has output_sha256 binds the output of a host. The export holds this output
beside the entry as salt and text; the hash is that of the canonical JSON of both. Erased output is
null, and an entry of the kind "output erased" about the same run has to record that.
The script checks every signature, on all cores. --quick checks only the last one and those of
entries that add a key. That is enough to find entries that were altered later, because each entry
holds the hash of the one before, and Keyturn checks an entry before it adds the next.
A witness's file has one checkpoint per line: seq, hash, at, key and signature as JSON; or it is a
log of a host or of a log server, with lines that contain "keyturn checkpoint seq=… hash=… …".
An entry of the kind "restored" records that a backup was restored: entries from its number on that
witnesses saw before its time were lost. The log counts as broken until an entry of the kind
"loss acknowledged" records which entries were lost before its time: the first, and how many.
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
# Logs prefix the time, the host and more, or put the line into JSON.
CHECKPOINT = re.compile(
    r"keyturn checkpoint seq=(\d+) hash=([0-9a-f]{64}) at=(\d+) "
    r"key=([0-9a-f]{64}) signature=([0-9a-f]{128})"
)


class Broken(Exception):
    """The log is broken. args: the first entry that is wrong, and why."""

    def __str__(self):
        return f"BROKEN at entry {self.args[0]}: {self.args[1]}"


def sha256(value):
    """Return the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(CANONICAL(value).encode()).hexdigest()


def hash_entry(entry):
    """Return the hash that an entry has to have. Faster than sha256() for millions of entries."""
    seq, at, run = entry["seq"], entry["at"], entry["run"]
    if not type(seq) is type(at) is int or type(run) not in (int, type(None)):
        raise TypeError("seq, at and run have to be numbers")
    content = (
        f'{{"at":{at},"body":{quoted(entry["body"])},"host":{quoted(entry["host"])},'
        f'"kind":{quoted(entry["kind"])},"person":{quoted(entry["person"])},'
        f'"prev":{quoted(entry["prev"])},"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    return hashlib.sha256(content.encode()).hexdigest()


def is_signed(key, digest, signature):
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), bytes.fromhex(digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def get_public_key(entry, seq):
    try:
        return json.loads(entry["body"])["public"]
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "it names no public key") from None


def parse_entry(line, seq, prev):
    """Return the entry on this line and its hash. Raises Broken unless it follows *prev*."""
    try:
        entry = json.loads(line)
        digest = hash_entry(entry)
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "this line is not an entry") from None
    if entry["seq"] != seq:
        raise Broken(seq, "it is missing")
    if entry["prev"] != prev:
        raise Broken(seq, "it does not follow the one before it")
    if digest != entry.get("hash"):
        raise Broken(seq, "it was altered: its content does not have its hash")
    return entry, digest


def check_output(entry, seq, erased):
    """Compare the output of an entry with its hash.

    erased: the first entry with erased output by run, until an entry records the erasure.
    """
    if entry["kind"] == "output erased":
        erased.pop(entry["run"], None)
    if "output_sha256" not in entry["body"]:
        return
    body = json.loads(entry["body"])
    bound = body.get("output_sha256") if isinstance(body, dict) else None
    if bound is None or "output" not in entry:
        if bound is not None:
            raise Broken(seq, "the output that it binds is missing")
        return
    if entry["output"] is None:
        erased.setdefault(entry["run"], seq)
    elif sha256({name: entry["output"].get(name) for name in ("salt", "text")}) != bound:
        raise Broken(seq, "the output that it binds was altered")


def check_key(entry, seq, key):
    """Return the key that an entry adds, if its owner signed as well; entry 1 adds its own key."""
    new_key = get_public_key(entry, seq)
    proof = json.loads(entry["body"]).get("proof", "")
    succession = sha256({"after": entry["prev"], "key": key, "seq": seq})
    if key and not is_signed(new_key, succession, str(proof)):
        raise Broken(seq, "it names a key whose owner did not sign")
    return new_key


def check_signed(batch):
    """Raise Broken at the first entry that its key did not sign."""
    for seq, key, digest, signature in batch:
        if not is_signed(key, digest, signature):
            raise Broken(seq, "it is not signed by the key of the log")


def parse_loss(entry):
    """Return the first and last lost number; the last is None in a "restored" entry."""
    if entry["kind"] == "restored":
        return entry["seq"], None
    body = json.loads(entry["body"])
    return body["first"], body["first"] + body["lost"] - 1


class Signatures:
    """Checks signatures in other processes, in batches, in the order of the log."""

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
        """Wait for all checks. Raises Broken."""
        while self.running:
            self.running.popleft().result()
        check_signed(self.batch)

    def close(self):
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


def check_entries(lines, signatures, quick):
    """Check every entry; return the hashes, the keys that signed the log, and its losses."""
    keys, prev, hashes, erased, losses, entry = [], "0" * 64, [], {}, [], None
    for seq, line in enumerate(lines, start=1):
        entry, digest = parse_entry(line, seq, prev)
        if seq == 1 and entry["kind"] != "key":
            raise Broken(seq, "the log does not begin with its key")
        key = keys[-1] if keys else get_public_key(entry, seq)
        one = seq, key, digest, str(entry.get("signature"))
        if entry["kind"] == "key":
            check_signed([one])
            keys.append(check_key(entry, seq, keys and keys[-1]))
        elif not quick:
            signatures.add(*one)
        if entry["kind"] in ("restored", "loss acknowledged"):
            losses.append((parse_loss(entry), entry["at"]))
        check_output(entry, seq, erased)
        prev = digest
        hashes.append(digest)
    if entry:
        last = keys[-2] if entry["kind"] == "key" and len(keys) > 1 else keys[-1]
        signatures.add(len(hashes), last, prev, str(entry.get("signature")))
    for seq in sorted(erased.values()):
        raise Broken(seq, "the output that it binds was erased without a request")
    return hashes, keys, losses


def check_export(export, quick):
    """Check the export and all signatures. Raises Broken at the first entry that is wrong."""
    signatures = Signatures()
    try:
        with Path(export).open(encoding="utf-8") as lines:
            try:
                return check_entries(lines, signatures, quick)
            finally:
                signatures.finish()
    except Broken:
        if quick:
            check_export(export, quick=False)
        raise
    finally:
        signatures.close()


def parse_checkpoint(line):
    """Return seq, hash, time, key and signature of a checkpoint; None for any other line."""
    if match := CHECKPOINT.search(line):
        return int(match[1]), match[2], int(match[3]), match[4], match[5]
    try:
        point = json.loads(line)
        seq, at = int(point["seq"]), int(point["at"])
        return seq, point["hash"], at, point["key"], point["signature"]
    except (ValueError, KeyError, TypeError):
        return None


def is_lost(seq, digest, at, hashes, losses, witness):
    """Return whether a checkpoint is of an entry that is acknowledged as lost. Raises Broken."""
    if seq == 0 or (seq <= len(hashes) and hashes[seq - 1] == digest):
        return False
    lasts = [last for (first, last), until in losses if first <= seq and at <= until]
    if any(last is not None and seq <= last for last in lasts):
        return True
    if None in lasts:
        raise Broken(seq, f"{witness} saw it, and it was lost when a backup was restored")
    if seq > len(hashes):
        raise Broken(len(hashes) + 1, f"cut off: {witness} saw entry {seq}")
    raise Broken(seq, f"another history: {witness} saw another entry {seq}")


def compare_with_witness(hashes, losses, witness):
    """Compare with a witness; return how many checkpoints agree, and how many are lost."""
    found = []
    with Path(witness).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            point = parse_checkpoint(line)
            if point is None:
                continue
            seq, digest, at, key, signature = point
            if not is_signed(key, digest, signature):
                raise Broken(seq, f"{witness}, line {number} is not signed by its key")
            found.append(is_lost(seq, digest, at, hashes, losses, witness))
    if not found:
        sys.exit(f"{witness} holds no checkpoint of a change log")
    return found.count(False), found.count(True)


def main():
    parser = argparse.ArgumentParser(description="Verify an export of Keyturn's change log.")
    parser.add_argument("export", help="the file with the output of `keyturn changelog export`")
    parser.add_argument("--key", help="a public key that has to be one of the keys of the log")
    parser.add_argument("--witness", action="append", default=[], help="a witness's file")
    parser.add_argument("--quick", action="store_true", help="check only a few signatures")
    args = parser.parse_args()
    try:
        hashes, keys, losses = check_export(args.export, args.quick)
        results = [compare_with_witness(hashes, losses, witness) for witness in args.witness]
        if args.key and args.key not in keys:
            raise Broken(len(hashes) or 1, f"signed by {keys[-1:]}, and not by the key given")
    except Broken as broken:
        sys.exit(str(broken))
    except OSError as error:
        sys.exit(f"{error.filename} cannot be read: {error.strerror}")
    head = hashes[-1] if hashes else "none"
    print(f"{len(hashes)} entries, unbroken; head {head}")
    agreed, lost = (sum(column) for column in zip((0, 0), *results, strict=True))
    print(f"signed by {keys[-1] if keys else 'no key'}; {agreed} checkpoints of witnesses agree")
    if lost:
        print(f"{lost} are of entries that were lost, as a person has acknowledged in the log")


if __name__ == "__main__":
    main()

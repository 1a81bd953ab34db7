#!/usr/bin/env python3
"""Verify an export of Keyturn's change log, without Keyturn.

    keyturn changelog export > export.jsonl
    python3 verify_changelog.py export.jsonl [--key HEX] [--witness FILE]...

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
signed by the key before it, and what follows is signed by the one that it names.
A witness's file has one checkpoint a line: seq, hash, at, key, signature.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CONTENT = ("seq", "at", "kind", "run", "person", "host", "body", "prev")


class Broken(Exception):
    """The log does not fit. seq: the first entry that does not."""

    def __init__(self, seq, why):
        super().__init__(f"BROKEN at entry {seq}: {why}")


def hash_of(entry):
    content = {name: entry[name] for name in CONTENT}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


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


def walk(lines):
    """Check every entry; return each one's hash, and the last key."""
    key, prev, hashes = "", "0" * 64, []
    for seq, line in enumerate(lines, start=1):
        entry, digest = chained(line, seq, prev)
        if seq == 1:
            if entry["kind"] != "key":
                raise Broken(seq, "the log does not begin with its key")
            key = public_key_in(entry, seq)
        if not signed(key, digest, str(entry.get("signature"))):
            raise Broken(seq, "it is not signed by the key of the log")
        if entry["kind"] == "key":
            key = public_key_in(entry, seq)
        prev = digest
        hashes.append(digest)
    return hashes, key


def compare(hashes, witness):
    """Hold the log against what a witness saw; return how many checkpoints agree."""
    count = 0
    with Path(witness).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                point = json.loads(line)
                seq, digest = int(point["seq"]), point["hash"]
                fits = signed(point["key"], digest, point["signature"])
            except (ValueError, KeyError, TypeError):
                sys.exit(f"{witness}, line {number}: this is no checkpoint")
            if not fits:
                raise Broken(seq, f"{witness}, line {number} is not signed by its key")
            if seq > len(hashes):
                raise Broken(len(hashes) + 1, f"cut off: {witness} saw entry {seq}")
            if seq and hashes[seq - 1] != digest:
                raise Broken(seq, f"another history: {witness} saw another entry {seq}")
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description="Verify an export of Keyturn's change log.")
    parser.add_argument("export", help="what `keyturn changelog export` printed")
    parser.add_argument("--key", help="the public key that must have sealed the end")
    parser.add_argument("--witness", action="append", default=[], help="a witness's file")
    asked = parser.parse_args()
    try:
        with Path(asked.export).open(encoding="utf-8") as lines:
            hashes, key = walk(lines)
        if asked.key and asked.key != key:
            raise Broken(len(hashes), f"sealed by {key}, and not by the key given")
        agreed = sum(compare(hashes, witness) for witness in asked.witness)
    except Broken as broken:
        sys.exit(str(broken))
    except OSError as trouble:
        sys.exit(f"{trouble.filename} cannot be read: {trouble.strerror}")
    head = hashes[-1] if hashes else "none"
    print(f"{len(hashes)} entries, unbroken; head {head}")
    print(f"sealed by {key or 'nobody'}; {agreed} checkpoints of witnesses agree")


if __name__ == "__main__":
    main()

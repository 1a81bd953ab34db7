#!/usr/bin/env python3
"""Verify an export of Keyturn's change log, without Keyturn.

    keyturn changelog export > export.jsonl
    python3 verify_changelog.py export.jsonl [--key KEY] [--witness FILE]...
    python3 verify_changelog.py entry-31.tlog-proof --key KEY

KEY is what `keyturn changelog key` prints, or the 64 hex digits of a public key.

This script shares no code with the service. It needs only Python's standard library and the
Ed25519 of the package `cryptography`. It is short so that you can read it before you trust it.

The format. Each line of the export is a JSON object with
    seq        1, 2, 3, … without gaps
    at         microseconds since 1970, UTC
    kind, run, person, host
    body       canonical JSON, as text
    hash       of a leaf (RFC 6962): SHA-256, 64 hex digits, of a zero byte and the canonical JSON
               of all members above: keys sorted, no spaces, characters as they are, UTF-8. If
               that is longer than 65,535 bytes, body_sha256 is there in place of body
    checkpoint a signed note, if a checkpoint was signed after this entry
The hashes are the leaves of the Merkle tree of RFC 6962, section 2.1. A checkpoint is a signed
note (https://c2sp.org/signed-note): the name of the log, the number of entries, the root in
base64, an empty line, and a line for each signature.
Entry 1 has the kind "key" and holds the public key in its body. The name of the log holds its
first 16 digits. A later entry of this kind adds a new key, and has a checkpoint that both keys
signed: the one before and the new one. The new key signs from then on.
An entry whose body has output_sha256 binds the output of a host. The export holds this output
beside the entry as salt and text; the hash is that of the canonical JSON of both. Erased output is
null, and an entry of the kind "output erased" about the same run has to record that, or one of the
kind "output expired" with a higher number as until.
The last checkpoint covers every entry, so its signature is enough. The script compares the roots
of all others too, to name the first entry that is wrong.
A proof (https://c2sp.org/tlog-proof) holds the canonical JSON of one entry as extra data, its
index, from 0 on, its audit path, and a checkpoint. It needs the key that signed the checkpoint.
A witness's file has one checkpoint per line, behind "keyturn checkpoint at=…"; or it is a log of a
host or of a log server with such lines.
An entry of the kind "restored" records that a backup was restored: entries from its number on that
witnesses saw before its time were lost. The log counts as broken until an entry of the kind
"loss acknowledged" records which entries were lost before its time: the first, and how many.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
from json.encoder import encode_basestring as quoted
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
NOTE = re.compile(r"(([^\n]+)\n(\d+)\n([^\n]+)\n)\n((?:— [^\n ]+ [^\n ]+\n)+)")
# Logs prefix the time, the host and more, or put the line into JSON.
CHECKPOINT = re.compile(
    r"keyturn checkpoint at=(\d+) origin=(\S+) size=(\d+) root=([\w+/=]+)"
    r"((?: signature=[\w+/=]+)+)"
)


# A public key as `keyturn changelog key` prints it: name, id and key (signed-note). Base64 can
# contain "+" too.
VERIFIER_KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})")

# A longer content has the hash of the body in place of the body.
MAX_CONTENT = 0xFFFF


class Broken(Exception):
    """The log is broken. args: the first entry that is wrong, and why."""

    def __str__(self):
        return f"BROKEN at entry {self.args[0]}: {self.args[1]}"


def hash_entry(entry):
    """Return the hash that an entry has to have."""
    seq, at, run = entry["seq"], entry["at"], entry["run"]
    if not type(seq) is type(at) is int or type(run) not in (int, type(None)):
        raise TypeError("seq, at and run have to be numbers")
    rest = (
        f'"host":{quoted(entry["host"])},"kind":{quoted(entry["kind"])},'
        f'"person":{quoted(entry["person"])},"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    content = f'{{"at":{at},"body":{quoted(entry["body"])},{rest}'.encode()
    if len(content) > MAX_CONTENT:
        digest = hashlib.sha256(entry["body"].encode()).hexdigest()
        content = f'{{"at":{at},"body_sha256":"{digest}",{rest}'.encode()
    return hashlib.sha256(b"\0" + content).digest()


class Tree:
    """A Merkle tree, by the roots of its perfect subtrees, the largest first."""

    def __init__(self):
        self.size, self.edge = 0, []

    def add(self, node):
        self.size += 1
        rest = self.size
        while not rest & 1:
            node = hashlib.sha256(b"\1" + self.edge.pop() + node).digest()
            rest >>= 1
        self.edge.append(node)

    def root(self):
        """Return the root in base64."""
        if not self.edge:
            return base64.b64encode(hashlib.sha256(b"").digest()).decode()
        node = self.edge[-1]
        for left in self.edge[-2::-1]:
            node = hashlib.sha256(b"\1" + left + node).digest()
        return base64.b64encode(node).decode()


def is_signed(text, signatures, key):
    """Return whether the owner of a key, in hex digits, signed the text of a checkpoint."""
    try:
        origin, public = text.split("\n")[0], bytes.fromhex(key)
        named = hashlib.sha256(origin.encode() + b"\n\1" + public).digest()[:4]
        for one in map(base64.b64decode, signatures):
            if one[:4] == named:
                Ed25519PublicKey.from_public_bytes(public).verify(one[4:], text.encode())
                return True
    except (InvalidSignature, ValueError):
        pass
    return False


def parse_key(typed):
    """Return the 64 hex digits of a public key. Raises ArgumentTypeError."""
    match = VERIFIER_KEY.fullmatch(typed)
    if match:
        name, number, material = match[1], match[2], base64.b64decode(match[3])
        if hashlib.sha256(f"{name}\n".encode() + material).digest()[:4].hex() != number:
            raise argparse.ArgumentTypeError("it has the id of another key: copy it again")
        typed = material[1:].hex() if material[0] == 1 else ""
    if not re.fullmatch("[0-9a-f]{64}", typed.lower()):
        raise argparse.ArgumentTypeError(
            "give what `keyturn changelog key` prints, or 64 hex digits"
        )
    return typed.lower()


def parse_note(note):
    """Return text, origin, size, root and signatures of a signed note; None if it is none."""
    match = NOTE.fullmatch(str(note))
    if match is None:
        return None
    lines = [line.split(" ") for line in match[5].splitlines()]
    signatures = [signature for _, name, signature in lines if name == match[2]]
    return match[1], match[2], int(match[3]), match[4], signatures


def get_public_key(entry, seq):
    try:
        return str(json.loads(entry["body"])["public"])
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "it names no public key") from None


def parse_entry(line, seq):
    """Return the entry on this line and its hash. Raises Broken."""
    try:
        entry = json.loads(line)
        digest = hash_entry(entry)
    except (ValueError, KeyError, TypeError):
        raise Broken(seq, "this line is not an entry") from None
    if entry["seq"] != seq:
        raise Broken(seq, "it is missing")
    if digest.hex() != entry.get("hash"):
        raise Broken(seq, "it was altered: its content does not have its hash")
    return entry, digest


def record_erasure(entry, erased):
    """Forget the entries with erased output whose erasure this entry records."""
    if entry["kind"] == "output erased":
        erased.pop(entry["run"], None)
    if entry["kind"] == "output expired":
        until = json.loads(entry["body"])["until"]
        for run, numbers in erased.items():
            erased[run] = [number for number in numbers if number > until]


def check_output(entry, seq, erased):
    """Compare the output of an entry with its hash.

    erased: the entries with erased output by run, until an entry records the erasure.
    """
    record_erasure(entry, erased)
    if "output_sha256" not in entry["body"]:
        return
    body = json.loads(entry["body"])
    bound = body.get("output_sha256") if isinstance(body, dict) else None
    if bound is None or "output" not in entry:
        if bound is not None:
            raise Broken(seq, "the output that it binds is missing")
        return
    if entry["output"] is None:
        erased.setdefault(entry["run"], []).append(seq)
        return
    content = CANONICAL({name: entry["output"].get(name) for name in ("salt", "text")})
    if hashlib.sha256(content.encode()).hexdigest() != bound:
        raise Broken(seq, "the output that it binds was altered")


def parse_loss(entry):
    """Return the first and last lost number; the last is None in a "restored" entry."""
    if entry["kind"] == "restored":
        return entry["seq"], None
    body = json.loads(entry["body"])
    return body["first"], body["first"] + body["lost"] - 1


class Log:
    """What is known of the log so far. sizes: those whose roots are kept, for the witnesses."""

    def __init__(self, sizes, *, every=False):
        self.sizes, self.every = sizes, every
        self.tree, self.keys, self.roots, self.losses = Tree(), [], {}, []
        self.signed, self.last, self.erased = 0, None, {}

    def check(self, lines):
        """Check every entry. Raises Broken at the first one that is wrong."""
        for seq, line in enumerate(lines, start=1):
            entry, digest = parse_entry(line, seq)
            adds_key = self.add_key(entry, seq)
            self.tree.add(digest)
            if entry["kind"] in ("restored", "loss acknowledged"):
                self.losses.append((parse_loss(entry), entry["at"]))
            check_output(entry, seq, self.erased)
            if seq in self.sizes:
                self.roots[seq] = self.tree.root()
            if "checkpoint" in entry:
                self.check_checkpoint(entry["checkpoint"], seq, adds_key)
            elif adds_key:
                raise Broken(seq, "it is not signed by the key of the log")
        for seq in sorted(seq for numbers in self.erased.values() for seq in numbers):
            raise Broken(seq, "the output that it binds was erased without a request")

    def add_key(self, entry, seq):
        """Return whether the entry adds a key after the first."""
        if entry["kind"] == "key":
            self.keys.append(get_public_key(entry, seq))
        elif seq == 1:
            raise Broken(seq, "the log does not begin with its key")
        return entry["kind"] == "key" and seq > 1

    def check_checkpoint(self, note, seq, adds_key):
        point = parse_note(note)
        if point is None or point[1:3] != (f"keyturn/{self.keys[0][:16]}", seq):
            raise Broken(seq, "its checkpoint was altered")
        text, _, _, root, signatures = point
        if root != self.tree.root():
            raise Broken(self.signed + 1, f"entries up to {seq} do not have the root of {seq}")
        if adds_key and not is_signed(text, signatures, self.keys[-2]):
            raise Broken(seq, "it is not signed by the key of the log")
        if adds_key and not is_signed(text, signatures, self.keys[-1]):
            raise Broken(seq, "it names a key whose owner did not sign")
        if self.every and not is_signed(text, signatures, self.keys[-1]):
            raise Broken(self.signed + 1, "it is not signed by the key of the log")
        self.signed, self.last = seq, (text, signatures)

    def is_end_signed(self):
        """Return whether the last checkpoint covers every entry, and is signed."""
        if not self.tree.size:
            return True
        return self.signed == self.tree.size and is_signed(*self.last, self.keys[-1])


def check_export(export, sizes):
    """Check the export; return what is known of the log. Raises Broken."""
    for every in (False, True):
        # A line that is not UTF-8 is no entry.
        with Path(export).open(encoding="utf-8", errors="replace") as lines:
            log = Log(sizes, every=every)
            log.check(lines)
        if not log.tree.size:
            sys.exit(f"{export} is empty: it holds no entry of a change log")
        if log.is_end_signed():
            return log
    raise Broken(log.signed + 1, "it is not signed by the key of the log")


PROOF = re.compile(
    r"c2sp\.org/tlog-proof@v1\nextra ([^\n]+)\nindex (\d+)\n((?:[^\n]+\n)*)\n(.+)", re.DOTALL
)


def climb(node, index, size, path):
    """Return the root to which an audit path leads (RFC 9162, section 2.1.3.2)."""
    last = size - 1
    for sibling in path:
        if index & 1 or index == last:
            node = hashlib.sha256(b"\1" + sibling + node).digest()
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = hashlib.sha256(b"\1" + node + sibling).digest()
        index, last = index >> 1, last >> 1
    return None if last else base64.b64encode(node).decode()


def is_proof(file):
    with Path(file).open("rb") as lines:
        beginning = lines.read(20)
    if beginning.startswith(b"PK"):
        sys.exit(f"{file} is a zip archive: unpack it, and verify each file in it")
    return beginning == b"c2sp.org/tlog-proof@"


def check_proof(text, key):
    """Print what a proof proves. Raises Broken."""
    match = PROOF.fullmatch(text)
    point = parse_note(match[4]) if match else None
    if point is None:
        sys.exit("this is no proof of an entry")
    try:
        content, index = base64.b64decode(match[1]), int(match[2])
        path = [base64.b64decode(line) for line in match[3].splitlines()]
        entry = json.loads(content)
        number = entry["seq"]
    except (ValueError, KeyError, TypeError):
        sys.exit("this is no proof of an entry")
    signed, _, size, root, signatures = point
    if index >= size or number != index + 1:
        raise Broken(index + 1, "the proof is for another entry")
    if climb(hashlib.sha256(b"\0" + content).digest(), index, size, path) != root:
        raise Broken(index + 1, "it does not lead to the root of the checkpoint")
    if not is_signed(signed, signatures, key):
        raise Broken(index + 1, "the checkpoint is not signed by the key given")
    print(f"entry {index + 1} is in the log of {size} entries with the root {root}")
    print(CANONICAL(entry))


def parse_checkpoint(line):
    """Return size, root, time, text and signatures of a checkpoint; None for any other line."""
    if match := CHECKPOINT.search(line):
        at, origin, size, root, signatures = match.groups()
        text = f"{origin}\n{size}\n{root}\n"
        return int(size), root, int(at), text, signatures.replace("signature=", "").split()
    return None


def read_witness(witness):
    with Path(witness).open(encoding="utf-8", errors="replace") as lines:
        found = [point for line in lines if (point := parse_checkpoint(line))]
    if not found:
        sys.exit(f"{witness} holds no checkpoint of a change log")
    return found


def is_lost(log, point, witness):
    """Return whether a checkpoint is of entries that are acknowledged as lost. Raises Broken."""
    size, root, at, text, signatures = point
    if size == 0 or log.roots.get(size) == root:
        return False
    lasts = [last for (first, last), until in log.losses if first <= size and at <= until]
    if any(last is not None and size <= last for last in lasts):
        return True
    if None in lasts:
        raise Broken(size, f"{witness} saw it, and it was lost when a backup was restored")
    if not any(is_signed(text, signatures, key) for key in log.keys):
        raise Broken(size, f"another history: no key of this log signed what {witness} saw")
    if size > log.tree.size:
        raise Broken(log.tree.size + 1, f"cut off: {witness} saw entry {size}")
    raise Broken(size, f"another history: {witness} saw other entries up to {size}")


def main():
    parser = argparse.ArgumentParser(description="Verify an export of Keyturn's change log.")
    parser.add_argument("export", help="an export of the log, or the proof of an entry")
    parser.add_argument("--key", type=parse_key, help="a key that has to be one of the log's")
    parser.add_argument("--witness", action="append", default=[], help="a witness's file")
    args = parser.parse_args()
    try:
        if is_proof(args.export):
            if not args.key:
                sys.exit("a proof needs --key: `keyturn changelog key` prints the key of the log")
            check_proof(Path(args.export).read_text(encoding="utf-8", errors="replace"), args.key)
            return
        seen = {witness: read_witness(witness) for witness in args.witness}
        log = check_export(args.export, {point[0] for points in seen.values() for point in points})
        lost = [is_lost(log, point, name) for name, points in seen.items() for point in points]
        if args.key and args.key not in log.keys:
            raise Broken(
                log.tree.size or 1, f"signed by {log.keys[-1:]}, and not by the key given"
            )
    except Broken as broken:
        sys.exit(str(broken))
    except OSError as error:
        sys.exit(f"{error.filename} cannot be read: {error.strerror}")
    print(f"{log.tree.size} entries, log intact; root {log.tree.root()}")
    key = log.keys[-1] if log.keys else "no key"
    print(f"signed by {key}; {lost.count(False)} witness checkpoints match")
    if any(lost):
        print(f"witness checkpoints of entries acknowledged as lost: {lost.count(True)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Verify the signatures of people in an export of Keyturn's change log, without Keyturn.

    keyturn changelog export > export.jsonl
    keyturn policy signers > signers        # better: the file that you keep yourself
    python3 verify_signatures.py export.jsonl signers

First verify the log itself with verify_changelog.py. This script shares no code with the service.
It needs Python's standard library and ssh-keygen of OpenSSH 8.9 or newer.

For each plan it takes the lines of document and sections from the entry "planned", and checks that
the SHA-256 of the document is the digest, and that the document names the SHA-256 of each section.
For each entry "approved" and "request signed" with a signature it has ssh-keygen verify that the
person of the entry signed exactly this document. The entry "changed offline" holds a plan and the
signatures of several people. `signers` is an allowed signers file, in which
each line begins with the id of a person. ssh-keygen accepts signatures of security keys that no
one touched, so the script reads that flag itself. With --verify-user before the files, it counts
only signatures of devices that asked for a fingerprint or a PIN.

It prints a line for each signature, and exits with 1 if one is not valid.
"""

import base64
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

NAMESPACE = "keyturn-plan"
TOUCHED, VERIFIED = 1, 4


def join_lines(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def check_plan(body):
    """Return the document of a plan, or None if it does not have the hashes that it must have."""
    document = join_lines(body["plan"]["document"])
    named = [line.split(" ")[2] for line in document.decode().split("\n") if line[:5] == "host "]
    found = [sha256(join_lines(section)) for section in body["plan"]["sections"]]
    return document if sha256(document) == body["digest"] and named == found else None


def read_strings(blob, count):
    """Return so many strings of the SSH protocol, and the rest."""
    strings = []
    for _ in range(count):
        (length,) = struct.unpack(">I", blob[:4])
        strings.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return strings, blob


def read_flags(signature):
    """Return what a security key says of its person; for other keys that they are there."""
    blob = base64.b64decode("".join(signature.split("-----")[2].split()))
    strings, _ = read_strings(blob[10:], 5)  # after SSHSIG and the version
    (kind, _), rest = read_strings(strings[4], 2)
    return rest[0] if b"sk-" in kind else TOUCHED


def is_signed(signers, person, document, signature, flags):
    """Return whether the person signed this document, with at least these flags."""
    with tempfile.NamedTemporaryFile("w", suffix=".sig") as file:
        file.write(signature)
        file.flush()
        command = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-f", signers, "-I", person]
        done = subprocess.run(
            [*command, "-s", file.name], input=document, capture_output=True, check=False
        )
    try:
        return done.returncode == 0 and read_flags(signature) & flags == flags
    except (ValueError, IndexError, struct.error):
        return False


def list_signatures(entry, body):
    """Return each signature in an entry, with the person who made it."""
    if entry["kind"] == "changed offline":
        people, signatures = body["signers"], body["signatures"]
        return [*zip(people, signatures, strict=True)]
    if entry["kind"] in ("approved", "request signed") and body.get("signature"):
        return [(entry["person"], body["signature"])]
    return []


def main():
    given = [one for one in sys.argv[1:] if one != "--verify-user"]
    if len(given) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    export, signers = given
    flags = TOUCHED | VERIFIED if "--verify-user" in sys.argv else TOUCHED
    documents, wrong, count = {}, 0, 0
    with Path(export).open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            body = json.loads(entry["body"])
            if entry["kind"] == "planned":
                documents[entry["run"], body["digest"]] = check_plan(body)
            document, where = documents.get((entry["run"], body.get("digest"))), "no run"
            if entry["kind"] == "changed offline":
                document = check_plan(body)
            elif entry["run"] is not None:
                where = f"run {entry['run']}"
            for person, signature in list_signatures(entry, body):
                valid = document and is_signed(signers, person, document, signature, flags)
                count, wrong = count + 1, wrong + (not valid)
                print(
                    f"{'valid' if valid else 'NOT VALID'}: entry {entry['seq']}, {where}, "
                    f"{entry['kind']} by {person}, plan {body['digest']}"
                )
    print(f"{count} signatures, {wrong} not valid")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

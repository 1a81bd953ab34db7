"""Checkpoints are signed notes that other tools read."""

import base64
from pathlib import Path

from bot.audit.checkpoints import identify_key, is_signed_by, parse_note, sign_checkpoint
from bot.integrations import witness_file
from bot.model.merkle import Tree
from bot.model.signing import SigningKey, is_signature_valid

# The example of golang.org/x/mod/sumdb/note.
_NAME = "PeterNeumann"
_PUBLIC = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")[1:].hex()
_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
_SIGNED = (
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)

_TREE = Tree().add_leaves([b"leaf"] * 3)


def test_key_is_identified_and_signs_as_in_the_signed_notes_of_go():
    signed = base64.b64decode(_SIGNED)
    assert identify_key(_NAME, _PUBLIC) == bytes.fromhex("c74f20a3") == signed[:4]
    assert is_signature_valid(_PUBLIC, _TEXT.encode(), signed[4:])
    assert not is_signature_valid(_PUBLIC, _TEXT.encode() + b" ", signed[4:])


def test_note_is_read_back_with_the_signatures_of_witnesses_beside_ours():
    ours, other = SigningKey.create(), SigningKey.create()
    point = sign_checkpoint("keyturn/a", _TREE, 7, [ours])
    note = f"{point.note}— witness.example {point.signatures[0]}\n"
    read = parse_note(note, 7)
    assert read is not None
    assert read == point
    assert is_signed_by(read, ours.public_key)
    assert not is_signed_by(read, other.public_key)


def test_file_with_the_note_of_a_witness_is_read(tmp_path: Path):
    point = sign_checkpoint("keyturn/a", _TREE, 7, [SigningKey.create()])
    (tmp_path / "note").write_text(point.note)
    [read] = witness_file.read_checkpoints(tmp_path / "note")
    assert (read.note, read.at) == (point.note, 0)

"""The protocol of a witness, by answers of another one, and by what it may never do."""

import hashlib
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from bot.audit.checkpoints import sign_checkpoint
from bot.features.witness.state import StateError, WitnessAnswer, WitnessState
from bot.model.merkle import Tree, hash_leaf
from bot.model.signing import SigningKey
from bot.model.verifier_keys import (
    ED25519,
    VerifierKey,
    list_cosignatures,
    parse_signed_note,
    parse_verifier_key,
    parse_witnesses,
)

# A log and its requests, with the answers of litewitness of filippo.io/torchwood v0.6.1:
# cmd/litewitness/testdata/litewitness.txt. It answers an unknown log with 403, as an older version
# of the protocol did.
ORIGIN = "sigsum.org/v1/tree/4d6d8825a6bb689d459628312889dfbb0bcd41b5211d9e1ce768b0ff0309e562"
RECORDED_KEY = VerifierKey(
    ORIGIN, ED25519, "ffdc2d4d98e4124d3feaf788c0c2f9abfd796083d1f0495437f302ec79cf100f"
)
_FIRST_ROOT = f"KgA{'A' * 40}="
_FIRST = "7fPZTqpxWWhyjWduBvTvGVqsokMbqTArsQilegKoFBJQjUFAmQ0+YeSPM3wfUQMFSzVnnNuWRTYrajXpNUbIQY="
_1, _2 = f"KgE{'A' * 40}=", f"KgI{'A' * 40}="
_THIRD_ROOT = "RcCI1Nk56ZcSmIEfIn0SleqtV7uvrlXNccFx595Iwl0="
_THIRD = "2VbtIcdFbwFAy1n7s6IkAxIY6J/GQOTuZF2ORV39d75cbAj2aQYwyJre36kezNobZs4SUUdrcawfAB8WVrx6g"
_FIFTH_ROOT = "QrtXrQZCCvpIgsSmOsah7HdICzMLLyDfxToMql9WTjY="
_FIFTH = "w/EOJmWi0i1FQsOj+etB7F8IccFam/jgd6wzRns4QPVmyEZtdvl1U2KEmLOZ/ASRcWJi0tW90dJWAShei7sDww="


def _build_request(old: int, proof: list[str], size: int, root: str, signature: str) -> bytes:
    lines = "".join(f"{one}\n" for one in proof)
    note = f"{ORIGIN}\n{size}\n{root}\n\n— {ORIGIN} UgIom{signature}\n"
    return f"old {old}\n{lines}\n{note}".encode()


RECORDED = [
    (_build_request(0, [], 1, _FIRST_ROOT, _FIRST), 200, ""),
    (_build_request(1, [_1, _2], 3, _THIRD_ROOT, f"{_THIRD}x="), 403, "invalid signature"),
    (_build_request(1, [], 3, _THIRD_ROOT, f"{_THIRD}o="), 422, "consistency proof"),
    (_build_request(1, [_1, f"KgI{'A' * 37}ABA="], 3, _THIRD_ROOT, f"{_THIRD}o="), 422, ""),
    (_build_request(1, [_1, _2], 3, _THIRD_ROOT, f"{_THIRD}o="), 200, ""),
    (_build_request(1, [_1], 5, _FIFTH_ROOT, _FIFTH), 409, "3\n"),
    (
        _build_request(
            3,
            [
                _2,
                f"KgM{'A' * 40}=",
                "wgiIFdZfYNv6WU1OllBKsWnLYIS/DBMqt8Uh/S4OukE=",
                f"KgQ{'A' * 40}=",
            ],
            5,
            _FIFTH_ROOT,
            _FIFTH,
        ),
        200,
        "",
    ),
    (_build_request(0, [], 5, _FIFTH_ROOT, _FIFTH), 409, "5\n"),
]


@pytest.fixture
def state(tmp_path: Path) -> Generator[WitnessState]:
    opened = WitnessState(tmp_path / "w1.db", name="w1.example")
    yield opened
    opened.close()


def test_it_answers_as_litewitness_does(state: WitnessState) -> None:
    state.add_log(RECORDED_KEY)
    for body, status, said in RECORDED:
        answer = state.add_checkpoint(body)
        assert answer.status == status, answer
        assert said in answer.body
        if status == 200:
            text = body.decode().partition("\n\n")[2].partition("\n\n")[0] + "\n"
            note = parse_signed_note(f"{text}\n{answer.body}")
            assert note is not None
            [signed] = list_cosignatures(text, note.signatures, [state.verifier_key])
            assert signed.at > 1_700_000_000


class Log:
    """A log of another program."""

    def __init__(self, state: WitnessState, name: str = "keyturn/0011223344556677") -> None:
        self.state, self.name, self.key = state, name, SigningKey.create()
        self.leaves = [hash_leaf(bytes([n])) for n in range(16)]
        state.add_log(VerifierKey(name, ED25519, self.key.public_key))

    def add(
        self, old: int, size: int, proof: str = "", *, leaves: list[bytes] | None = None
    ) -> WitnessAnswer:
        tree = Tree().add_leaves((leaves or self.leaves)[:size])
        note = sign_checkpoint(self.name, tree, 0, [self.key]).note
        return self.state.add_checkpoint(f"old {old}\n{proof}\n{note}".encode())


@pytest.fixture
def log(state: WitnessState) -> Log:
    return Log(state)


def test_it_remembers_after_a_restart_and_refuses_a_rollback(tmp_path: Path) -> None:
    state = WitnessState(tmp_path / "w.db", name="w1.example")
    log = Log(state)
    assert log.add(0, 8).status == 200
    key = state.verifier_key
    state.close()
    log.state = WitnessState(tmp_path / "w.db", name="")
    assert log.state.verifier_key == key
    assert (log.add(0, 4).status, log.add(0, 4).body) == (409, "8\n")
    assert log.add(8, 4).status == 400
    assert log.add(8, 8).status == 200
    log.state.close()


def test_it_refuses_a_fork(log: Log) -> None:
    assert log.add(0, 8).status == 200
    forked = [hash_leaf(b"another"), *log.leaves[1:]]
    assert log.add(8, 8, leaves=forked).status == 422
    proof = "".join(f"{line}\n" for line in ["A" * 43 + "="])
    assert log.add(8, 9, proof, leaves=forked).status == 422
    assert log.add(8, 8).status == 200


_UNSIGNED = f"{'A' * 43}=\n\n— x AAAA\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"old 0", 400),
        (b"old 00\n\nx\n1\nAA==\n\n", 400),
        (b"old -1\n\n", 400),
        (b"\xff", 400),
        ("old 0\n\nx\n\n— x AAAAAAAA\n".encode(), 400),
        (b"old 0\n" + (b"A" * 43 + b"=\n") * 64 + b"\nx", 400),
        (f"old 0\nAA==\n\nx\n1\n{_UNSIGNED}".encode(), 400),
        (f"old 0\n\nx\n1\n{_UNSIGNED}".encode(), 404),
        (f"old 0\n\nkeyturn/0011223344556677\n1\n{_UNSIGNED}".encode(), 403),
        (f"old 0\n\nkeyturn/0011223344556677\n01\n{_UNSIGNED}".encode(), 400),
    ],
)
def test_malformed_requests_change_nothing(log: Log, body: bytes, status: int) -> None:
    assert log.state.add_checkpoint(body).status == status
    assert log.state.list_logs() == [(log.name, 0)]


def test_one_of_two_requests_at_the_same_time_is_cosigned(log: Log) -> None:
    """Of two histories that are equally long, it signs one."""
    forked = [hash_leaf(b"another"), *log.leaves[1:]]
    answers = list[WitnessAnswer]()

    def add(leaves: list[bytes]) -> None:
        answers.append(log.add(0, 8, leaves=leaves))

    threads = [threading.Thread(target=add, args=(one,)) for one in (log.leaves, forked) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.status for one in answers) == [200] + [409] * 7


def test_monitors_read_the_newest_checkpoint_with_its_cosignature(log: Log) -> None:
    digest = hashlib.sha256(log.name.encode()).hexdigest()
    assert log.state.get_checkpoint(digest) is None
    log.add(0, 8)
    note = parse_signed_note(log.state.get_checkpoint(digest) or "")
    assert note is not None
    assert [name for name, _ in note.signatures] == [log.name, "w1.example"]


def test_forgotten_log_begins_again(log: Log) -> None:
    log.add(0, 8)
    assert log.state.forget_log(log.name)
    assert not log.state.forget_log(log.name)
    assert log.add(0, 4).status == 200


def test_name_is_given_once_and_kept(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="give it a name with --name"):
        WitnessState(tmp_path / "w.db", name="")
    WitnessState(tmp_path / "w.db", name="w1.example").close()
    with pytest.raises(StateError, match="its name cannot be changed"):
        WitnessState(tmp_path / "w.db", name="other.example")
    assert (tmp_path / "w.db").stat().st_mode & 0o077 == 0


# The example of https://c2sp.org/signed-note.
EXAMPLE = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"


def test_verifier_key_of_the_specification_is_parsed() -> None:
    assert parse_verifier_key(EXAMPLE).text == EXAMPLE


def test_note_of_the_specification_is_parsed() -> None:
    key = parse_verifier_key(EXAMPLE)
    note = parse_signed_note(
        "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi"
        "2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
    )
    assert note is not None
    [(name, content)] = note.signatures
    assert (name, content[:4]) == (key.name, key.id)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("w1", "is not a verifier key"),
        (f"{EXAMPLE.replace('903a', '903b')} http://x", "another key"),
        (f"{EXAMPLE} http://x", "not one of a witness"),
    ],
)
def test_wrong_setting_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_witnesses(text)


def test_setting_needs_addresses_and_names_that_differ(state: WitnessState) -> None:
    key = state.verifier_key.text
    for text in (key, f"{key} ftp://x", f"{key} https://"):
        with pytest.raises(ValueError, match="needs an address"):
            parse_witnesses(text)
    with pytest.raises(ValueError, match="the same name"):
        parse_witnesses(f"{key} http://a,{key} http://b")
    [one] = parse_witnesses(f" {key}  https://w.example/ ,")
    assert (one.url, one.key.text) == ("https://w.example", key)

"""Alterations of the log are found by the service's verifier and by the independent one."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, insert, update

from bot.audit import change_log, events, verification
from bot.audit.change_log import Entry
from bot.audit.checkpoints import name_log, sign_checkpoint
from bot.audit.event_type import UnknownEvent
from bot.audit.verification import Verification
from bot.db import outputs, tables
from bot.db.database import Database, StoreUnavailable
from bot.integrations import witness_file
from bot.model import signing
from bot.model.canonical import encode_canonical
from bot.model.errors import InvalidRequestError
from bot.model.merkle import Tree, hash_leaf
from bot.model.signing import KeyFileError, SigningKey
from bot.queries.log_formats import iterate_export
from tests.bot.databases import create_sqlite_database
from tests.bot.rewritten_log import drop_triggers, entries_of, rehash, rewrite

VERIFIER = Path(__file__).parents[3] / "docs" / "verify_changelog.py"


@pytest.fixture
def ours() -> SigningKey:
    return SigningKey.create()


@pytest.fixture
def log(tmp_path: Path, ours: SigningKey):
    database = create_sqlite_database(tmp_path / "keyturn.db", ours)
    _write(database, 12)
    yield database
    database.close()


def _write(database: Database, most: int) -> None:
    """Begin the log, and write its entries, each with its own checkpoint."""
    with database.transaction() as tx:
        verification.open_log(tx)
    for n in range(most - 1):
        with database.transaction() as tx:
            change_log.append_entry(
                tx,
                UnknownEvent(kind="noted", facts={"n": n, "words": "☃"}),
                run=n % 3,
                person="olga",
                host="lb1",
            )


def _verify(database: Database, **how: object) -> Verification:
    with database.reading() as tx:
        return verification.verify_log(tx, **how)  # pyright: ignore[reportArgumentType]


def _verify_alone(
    database: Database, tmp_path: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    export = tmp_path / "export.jsonl"
    with database.reading() as tx:
        lines = [json.dumps(line, ensure_ascii=False) for line in iterate_export(tx)]
    export.write_text("".join(f"{line}\n" for line in lines))
    return subprocess.run(
        [sys.executable, str(VERIFIER), str(export), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_unaltered_log_verifies_with_both_verifiers(
    log: Database, tmp_path: Path, ours: SigningKey
):
    verdict = _verify(log, required_key=ours.public_key)
    assert (verdict.entries, verdict.broken, verdict.key) == (12, None, ours.public_key)
    alone = _verify_alone(log, tmp_path, "--key", ours.public_key)
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout.startswith(f"12 entries, log intact; root {verdict.root}")


def test_key_is_taken_as_it_is_printed_and_a_misspelt_one_breaks_no_log(
    log: Database, tmp_path: Path, ours: SigningKey
):
    with log.reading() as tx:
        printed = verification.get_verifier_key(tx)
    assert printed is not None
    for typed in (printed.text, ours.public_key.upper()):
        assert _verify_alone(log, tmp_path, "--key", typed).returncode == 0
    name, _, rest = printed.text.partition("+")
    for misspelt in ("HEX", ours.public_key[1:], f"{name}+{'0' * 8}{rest[8:]}"):
        refused = _verify_alone(log, tmp_path, "--key", misspelt)
        assert refused.returncode == 2
        assert "argument --key: " in refused.stderr
        assert "BROKEN" not in refused.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "export is empty: it holds no entry of a change log"),
        (b"PK\x03\x04\x14\x00\x8a", "is a zip archive: unpack it"),
        (b"\x8a\x00\n", "BROKEN at entry 1: this line is not an entry"),
        (b"c2sp.org/tlog-proof@v1\n", "a proof needs --key: `keyturn changelog key` prints"),
    ],
)
def test_file_that_is_no_export_is_refused_with_what_it_is(
    tmp_path: Path, content: bytes, says: str
):
    export = tmp_path / "export"
    export.write_bytes(content)
    done = subprocess.run(
        [sys.executable, str(VERIFIER), str(export)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


Tampering = Callable[[list[Entry]], list[Entry]]


def _alter_entry(n: int, **changes: object) -> Tampering:
    def tamper(entries: list[Entry]) -> list[Entry]:
        return [*entries[: n - 1], replace(entries[n - 1], **changes), *entries[n:]]  # pyright: ignore[reportArgumentType]

    return tamper


def _delete_entry(n: int) -> Tampering:
    return lambda entries: entries[: n - 1] + entries[n:]


@pytest.mark.parametrize(
    ("tamper", "broken"),
    [
        (_alter_entry(5, person="adam"), 5),
        (_alter_entry(1, at=1), 1),
        (_alter_entry(12, body="{}"), 12),
        (_alter_entry(7, hash="00" * 32), 7),
        (_delete_entry(4), 4),
        (_delete_entry(1), 1),
    ],
)
def test_altered_entry_is_named_by_both_verifiers(
    log: Database, tmp_path: Path, tamper: Tampering, broken: int
):
    rewrite(log, tamper(entries_of(log)))
    assert _verify(log).broken == broken
    alone = _verify_alone(log, tmp_path)
    assert alone.stderr.startswith(f"BROKEN at entry {broken}:")
    assert alone.returncode == 1


def test_rewritten_hashes_under_old_checkpoints_are_found_by_both_verifiers(
    log: Database, tmp_path: Path
):
    rewrite(log, rehash(_alter_entry(6, person="adam")(entries_of(log))))
    assert _verify(log).broken == 6
    assert "BROKEN at entry 6:" in _verify_alone(log, tmp_path).stderr


def test_rewritten_roots_with_old_signatures_are_found_by_both_verifiers(
    log: Database, tmp_path: Path
):
    """Whoever has no key can make every root fit, and no signature."""
    old = SigningKey.create()
    rewrite(log, rehash(_alter_entry(6, person="adam")(entries_of(log))), old)
    assert _verify(log).broken == 1
    assert "BROKEN at entry 1:" in _verify_alone(log, tmp_path).stderr


def test_altered_checkpoint_is_found_by_both_verifiers(log: Database, tmp_path: Path):
    drop_triggers(log)
    with log.engine.connect() as connection:
        connection.execute(
            update(tables.entry)
            .where(tables.entry.c.seq == 5)
            .values(note=func.replace(tables.entry.c.note, "\n5\n", "\n4\n"))
        )
    assert (_verify(log).broken, _verify(log).why) == (5, "the checkpoint of entry 5 was altered")
    assert "BROKEN at entry 5:" in _verify_alone(log, tmp_path).stderr


def test_log_signed_with_another_key_is_found_when_the_key_is_known(
    log: Database, tmp_path: Path, ours: SigningKey
):
    thief = SigningKey.create()
    entries = _alter_entry(6, person="adam")(entries_of(log))
    entries[0] = replace(entries[0], body=f'{{"public":"{thief.public_key}"}}')
    rewrite(log, rehash(entries), thief)
    # The twin: without knowing the key there is nothing to see.
    assert _verify(log).broken is None
    assert _verify(log, required_key=ours.public_key).broken == 12
    assert "signed by" in _verify_alone(log, tmp_path, "--key", ours.public_key).stderr


@pytest.mark.parametrize("cut", [1, 2, 11])
def test_truncated_log_is_found_by_a_witness(
    log: Database, tmp_path: Path, cut: int, ours: SigningKey
):
    with log.transaction() as tx:
        point = verification.create_checkpoint(tx)
    file = tmp_path / "witness"
    witness_file.write_checkpoint(file, point)
    rewrite(log, entries_of(log)[:-cut])
    # The twin: what is left is a good log, and nothing in it tells of what is gone.
    assert _verify(log, required_key=ours.public_key).broken is None
    verdict = _verify(log, witnesses=witness_file.read_checkpoints(file))
    assert (verdict.broken, verdict.why[:7]) == (12 - cut + 1, "cut off")
    assert "cut off" in _verify_alone(log, tmp_path, "--witness", str(file)).stderr


def test_forked_log_is_found_by_a_witness(log: Database, tmp_path: Path, ours: SigningKey):
    with log.transaction() as tx:
        point = verification.create_checkpoint(tx)
    file = tmp_path / "witness"
    witness_file.write_checkpoint(file, point)
    rewrite(log, rehash(_alter_entry(12, person="adam")(entries_of(log))), ours)
    assert _verify(log, required_key=ours.public_key).broken is None
    assert "another history" in _verify(log, witnesses=witness_file.read_checkpoints(file)).why
    assert "another history" in _verify_alone(log, tmp_path, "--witness", str(file)).stderr


def test_checkpoint_signed_by_another_key_is_rejected(log: Database):
    origin = name_log(SigningKey.create().public_key)
    forged = sign_checkpoint(origin, Tree().add_leaves([b""] * 3), 0, [SigningKey.create()])
    assert "no key of this log signed" in _verify(log, witnesses=[forged]).why


def test_matching_witness_checkpoint_verifies(log: Database):
    with log.transaction() as tx:
        point = verification.create_checkpoint(tx)
    assert _verify(log, witnesses=[point]).broken is None


def test_witness_file_gains_a_checkpoint_only_when_the_log_has_grown(
    log: Database, tmp_path: Path
):
    file = tmp_path / "witness"
    for _ in range(3):
        with log.transaction() as tx:
            witness_file.write_checkpoint(file, verification.create_checkpoint(tx))
    assert len(witness_file.read_checkpoints(file)) == 1
    with log.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        point = verification.create_checkpoint(tx)
    witness_file.write_checkpoint(file, point)
    assert [point.size for point in witness_file.read_checkpoints(file)] == [12, 13]


def test_witness_file_without_a_checkpoint_is_rejected(tmp_path: Path):
    file = tmp_path / "witness"
    file.write_text("nonsense\n")
    with pytest.raises(InvalidRequestError, match="holds no checkpoint"):
        witness_file.read_checkpoints(file)


def test_log_is_not_opened_with_another_signing_key(log: Database):
    other = Database(log.url, SigningKey.create())
    with (
        other.transaction() as tx,
        pytest.raises(KeyFileError, match=r"restore the right changelog\.key"),
    ):
        verification.open_log(tx)
    other.close()
    assert len(entries_of(log)) == 12


def test_log_without_a_signing_key_can_only_be_read(log: Database):
    reader = Database(log.url)
    with pytest.raises(StoreUnavailable, match="can only be read"), reader.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
    reader.close()


def test_signing_key_is_created_once_and_readable_by_its_owner_only(tmp_path: Path):
    file = tmp_path / "changelog.key"
    first = signing.load_signing_key(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert signing.load_signing_key(file).public_key == first.public_key


def test_signing_key_that_others_can_read_is_rejected(tmp_path: Path):
    file = tmp_path / "changelog.key"
    signing.load_signing_key(file)
    file.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        signing.load_signing_key(file)


def test_empty_signing_key_file_is_rejected(tmp_path: Path):
    file = tmp_path / "changelog.key"
    file.touch(0o600)
    with pytest.raises(KeyFileError, match="backup"):
        signing.load_signing_key(file)


_FIELDS = st.sampled_from(["at", "kind", "run", "person", "host", "body", "hash"])


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    n=st.integers(1, 12), field=_FIELDS, text=st.text(max_size=12), number=st.integers(0, 2**40)
)
def test_verification_finds_any_alteration_of_any_entry(
    log: Database, n: int, field: str, text: str, number: int
):
    whole = entries_of(log)
    value = number if field in {"at", "run"} else text.replace("\x00", "")
    if getattr(whole[n - 1], field) == value:
        return
    try:
        value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        return
    rewrite(log, _alter_entry(n, **{field: value})(whole))
    try:
        assert _verify(log).broken == n
    finally:
        rewrite(log, whole)


def test_checkpoint_after_a_line_cut_short_by_a_crash_is_on_its_own_line(
    log: Database, tmp_path: Path
):
    file = tmp_path / "witness"
    file.write_text('{"seq":1,"ha')
    with log.transaction() as tx:
        point = verification.create_checkpoint(tx)
    witness_file.write_checkpoint(file, point)
    torn, whole = file.read_text().splitlines()
    assert torn == '{"seq":1,"ha'
    assert f" size={point.size} " in whole


@given(
    st.text(),
    st.text(),
    st.text(),
    st.one_of(st.none(), st.integers(-5, 2**40)),
    st.integers(0, 2**60),
)
def test_fast_entry_encoding_is_the_canonical_json(
    body: str, person: str, host: str, run: int | None, at: int
):
    content = {
        "seq": 7,
        "at": at,
        "kind": "noted ☃",
        "run": run,
        "person": person,
        "host": host,
        "body": body,
    }
    entry = Entry(**content, hash="")  # pyright: ignore[reportArgumentType] - hypothesis' types are the members'
    try:
        expected = hash_leaf(encode_canonical(content).encode()).hex()
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            change_log.hash_entry(list(vars(entry).values()))
    else:
        assert change_log.hash_entry(list(vars(entry).values())) == expected


def test_verification_finds_a_missing_output_beside_an_unbound_one(log: Database, tmp_path: Path):
    """As many outputs as are bound are not yet the ones that are."""
    with log.transaction() as tx:
        for number in (1, 2):
            stored = outputs.prepare_output(tx, "pool is fine")
            entry = change_log.append_entry(
                tx,
                UnknownEvent(kind="step succeeded", facts={"output_sha256": stored.sha256}),
                run=1,
            )
            if number == 1:
                outputs.store_outputs(tx, number, [(entry.seq, 1, stored)])
        change_log.append_entry(tx, UnknownEvent(kind=events.OutputErased.kind), run=1)
        idle = change_log.append_entry(tx, UnknownEvent(kind="noted"), run=1)
        tx.sql.execute(insert(tables.output).values(entry=idle.seq, run=1, step_number=9))
    assert _verify(log).broken is not None

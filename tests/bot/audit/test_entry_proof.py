"""Proofs of entries: complete, and refused by who verifies them once anything is altered."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log, entry_proof, verification
from bot.audit.change_log import EntryDraft, LogAlteredError
from bot.audit.entry_proof import NoSuchEntry
from bot.audit.event_type import UnknownEvent
from bot.db import runs, tables
from bot.db.database import Database
from bot.model.run import RequestTerms
from bot.model.signing import SigningKey
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, Harness
from tests.bot.rewritten_log import drop_triggers
from tests.toy import SetSwitch

_ENTRIES = 600


@pytest.fixture(scope="module")
def ours() -> SigningKey:
    return SigningKey.create()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, ours: SigningKey):
    database = create_sqlite_database(tmp_path_factory.mktemp("log") / "keyturn.db", ours)
    with database.transaction() as tx:
        verification.open_log(tx)
        drafts = [EntryDraft(UnknownEvent(kind="noted", facts={"n": n})) for n in range(_ENTRIES)]
        change_log.append_entries(tx, drafts[1:])
    yield database
    database.close()


def _prove(database: Database, seq: int) -> str:
    with database.reading() as tx:
        return entry_proof.build_proof(tx, seq)


def _verify(directory: Path, proof: str, key: str) -> subprocess.CompletedProcess[str]:
    (directory / "proof").write_text(proof)
    return subprocess.run(
        [sys.executable, str(VERIFIER), str(directory / "proof"), "--key", key],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("seq", [1, 2, 256, 257, 512, 513, 599, 600])
def test_proof_of_an_entry_is_verified_without_the_log(
    log: Database, tmp_path: Path, ours: SigningKey, seq: int
):
    done = _verify(tmp_path, _prove(log, seq), ours.public_key)
    assert done.stdout.startswith(f"entry {seq} is in the log of {_ENTRIES} entries"), done.stderr
    assert f'"seq":{seq}}}' in done.stdout


def test_altered_proof_is_refused(log: Database, tmp_path: Path, ours: SigningKey):
    proof, other = _prove(log, 300), _prove(log, 301)
    lines = proof.splitlines(keepends=True)
    entry_of_other = other.splitlines(keepends=True)[1]
    for altered, says in (
        ("".join([lines[0], entry_of_other, *lines[2:]]), "for another entry"),
        ("".join([*lines[:3], *lines[4:]]), "does not lead to the root"),
        (proof.replace(f"\n{_ENTRIES}\n", "\n601\n"), "is not signed by the key given"),
        (proof.replace("index 299", "index 298"), "for another entry"),
        (proof.replace("extra ", "extra eA"), "this is no proof"),
        ("".join(lines[:5]), "this is no proof"),
    ):
        assert says in _verify(tmp_path, altered, ours.public_key).stderr
    stranger = SigningKey.create().public_key
    assert "is not signed by the key given" in _verify(tmp_path, proof, stranger).stderr


def test_there_is_no_proof_of_an_entry_that_does_not_exist(log: Database):
    with pytest.raises(NoSuchEntry):
        _prove(log, _ENTRIES + 1)


def test_altered_entry_is_not_proved(database: Database):
    with database.transaction() as tx:
        verification.open_log(tx)
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
    drop_triggers(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE entry SET person = 'adam' WHERE seq = 2")
        connection.commit()
    with pytest.raises(LogAlteredError):
        _prove(database, 2)


def test_every_ended_run_has_proofs_of_who_wanted_and_approved_what(
    harness: Harness, tmp_path: Path
) -> None:
    with harness.database.transaction() as tx:
        verification.open_log(tx)
    run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    denied = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    harness.service.deny_run(denied.id, person="olga", reason="not today")
    with harness.database.reading() as tx:
        proofs = entry_proof.build_run_proofs(tx, run.id)
        others = entry_proof.build_run_proofs(tx, denied.id)
        key = verification.get_verifier_key(tx)
    assert [one.entry.kind for one in proofs] == [
        *("requested", "planned", "approved", "started", "succeeded")
    ]
    assert [one.entry.kind for one in others] == ["requested", "planned", "denied"]
    # One checkpoint for all of them.
    assert len({one.proof.rpartition("\n\n")[0].rpartition("\n\n")[2] for one in proofs}) == 1
    assert key is not None
    for one in proofs:
        done = _verify(tmp_path, one.proof, key.public_key)
        assert done.stdout.startswith(f"entry {one.entry.seq} is in the log"), done.stderr


def test_part_of_a_request_for_many_hosts_has_the_approval_of_the_whole(harness: Harness) -> None:
    both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    parent = harness.service.request_on_hosts(both, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    harness.approve(harness.get_run(parent.id))
    with harness.database.reading() as tx:
        [first, _] = runs.list_children(tx, parent.id)
        proofs = entry_proof.build_run_proofs(tx, first.id)
    assert {(one.entry.run, one.entry.kind) for one in proofs} >= {
        *((parent.id, "approved"), (parent.id, "planned"), (first.id, "succeeded"))
    }


def test_archive_of_proofs_has_a_file_for_each(harness: Harness) -> None:
    run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    with harness.database.reading() as tx:
        proofs = entry_proof.build_run_proofs(tx, run.id)
    packed = entry_proof.pack_run_proofs(proofs)
    assert packed == entry_proof.pack_run_proofs(proofs)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist()[-1].endswith("-succeeded.tlog-proof")
        assert [archive.read(name).decode() for name in archive.namelist()] == [
            one.proof for one in proofs
        ]


def test_altered_entry_of_a_run_is_not_proven(harness: Harness) -> None:
    run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    drop_triggers(harness.database)
    with harness.database.engine.connect() as connection:
        approved = (tables.entry.c.run == run.id) & (tables.entry.c.kind == "approved")
        connection.execute(update(tables.entry).where(approved).values(person="adam"))
        connection.commit()
    with harness.database.reading() as tx, pytest.raises(LogAlteredError):
        entry_proof.build_run_proofs(tx, run.id)

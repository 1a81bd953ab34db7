"""The entries of one run are verified alone, whatever the rest of the log is like."""

import pytest
from sqlalchemy import text

from bot.audit import change_log, events, run_proof, verification
from bot.audit.event_type import UnknownEvent
from bot.db import outputs
from bot.db.database import Database
from bot.model.run import Run
from bot.model.signing import SigningKey
from tests.bot.harness import Harness
from tests.bot.rewritten_log import drop_triggers
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
LAMP_OFF = SetSwitch(host="lb2", name="lamp", value="on")


@pytest.fixture
def done(harness: Harness) -> Run:
    with harness.database.transaction() as tx:
        verification.open_log(tx)
    run = harness.approve(harness.request(LAMP_ON))
    harness.request(LAMP_OFF)
    return run


def verify_run_proof(harness: Harness, run: Run) -> run_proof.RunVerification:
    with harness.database.reading() as tx:
        return run_proof.verify_run(tx, run.id)


def run_without_triggers(database: Database, statement: str) -> None:
    """Do what somebody with the database's password could do."""
    drop_triggers(database)
    with database.engine.connect() as connection:
        connection.execute(text(statement))
        connection.commit()


def test_run_proof_verifies_all_entries_and_outputs_of_a_run(harness: Harness, done: Run) -> None:
    proof = verify_run_proof(harness, done)
    assert proof.faults == []
    assert (proof.entries, proof.first_entry, proof.last_entry, proof.valid_outputs) == (
        9,
        2,
        10,
        1,
    )
    assert proof.checkpoint is not None
    assert proof.checkpoint.size >= 10


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE entry SET person = 'dora' WHERE seq = 4", "entry 4 was altered"),
        ("UPDATE entry SET hash = hex(zeroblob(32)) WHERE seq = 5", "entry 5 was altered"),
        (
            "UPDATE entry SET note = replace(note, '— ', '— x')",
            "the newest checkpoint is not",
        ),
        ("UPDATE entry SET hash = hex(zeroblob(32)) WHERE seq = 1", "the entries do not lead to"),
        ("DELETE FROM entry WHERE seq = 1", "an entry is missing"),
        ("UPDATE output SET text = 'all is well'", "the output that entry 8 binds"),
        ("UPDATE output SET text = NULL, salt = NULL", "the output that entry 8 binds"),
        ("DELETE FROM output", "the output that entry 8 binds"),
    ],
)
def test_run_proof_finds_altered_entries_and_outputs(
    harness: Harness, done: Run, statement: str, says: str
) -> None:
    run_without_triggers(harness.database, statement)
    assert any(fault.startswith(says) for fault in verify_run_proof(harness, done).faults)


def test_output_of_another_run_does_not_stand_for_what_is_missing(
    harness: Harness, done: Run
) -> None:
    other = harness.approve(harness.request(SetSwitch(host="lb1", name="fan", value="on")))
    assert (done.id, other.id) == (1, 3)
    run_without_triggers(harness.database, "DELETE FROM output WHERE run = 1")
    run_without_triggers(harness.database, "UPDATE output SET run = 1 WHERE run = 3")
    faults = verify_run_proof(harness, done).faults
    assert "the output that entry 8 binds is missing" in faults
    assert any(fault.endswith("is kept for another run") for fault in faults)
    assert verify_run_proof(harness, other).faults
    with harness.database.reading() as tx:
        assert verification.verify_log(tx).broken


def test_run_proof_accepts_output_that_was_erased_with_a_log_entry(
    harness: Harness, done: Run
) -> None:
    with harness.database.transaction() as tx:
        outputs.erase_output(tx, done.id)
        change_log.append_entry(tx, UnknownEvent(kind=events.OutputErased.kind), run=done.id)
    proof = verify_run_proof(harness, done)
    assert (proof.faults, proof.valid_outputs, proof.erased_outputs) == ([], 0, 1)


def test_run_proof_follows_a_rotation_of_the_signing_key(harness: Harness, done: Run) -> None:
    new = SigningKey.create()
    with harness.database.transaction() as tx:
        verification.append_key_change(tx, new)
    harness.database._signing_key = new  # pyright: ignore[reportPrivateUsage] - as after a start
    later = harness.approve(harness.request(SetSwitch(host="lb1", name="fan", value="on")))
    assert verify_run_proof(harness, done).faults == []
    assert verify_run_proof(harness, later).faults == []


def test_run_proof_ignores_altered_entries_of_other_runs(harness: Harness, done: Run) -> None:
    """As long as their hashes are as they were."""
    run_without_triggers(harness.database, "UPDATE entry SET person = 'x' WHERE seq = 12")
    assert verify_run_proof(harness, done).faults == []

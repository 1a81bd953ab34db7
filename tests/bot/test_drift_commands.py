"""`keyturn drift` beside `keyturn rebuild`, which are different features."""

from sqlalchemy import update

from bot.db import tables
from bot.features.drift import rows as drift
from tests.bot.features.rebuild.test_commands import service, type_command
from tests.bot.web import sample_runs
from tests.playground.service import Service

__all__ = ["service"]


def test_drift_alone_lists_the_values_that_are_watched(service: Service):
    alone, listed = (type_command(service, "drift", *words) for words in ((), ("list",)))
    assert (alone.exit_code, alone.output) == (0, listed.output)
    assert "Keyturn watches no value here." in alone.output


def test_rebuild_drift_restore_and_again_take_a_change_ticket(service: Service):
    with service.keyturn.database.transaction() as tx:
        values = {"host": "web1", "maximum": "262144"}
        asked = sample_runs.add_requested_run(
            tx, words="conntrack set", fields=values, host="web1"
        )
        run = sample_runs.add_succeeded_run(tx, asked)
        drift.set_key(tx, "web1", "conntrack limit", run=run.id, set_value="", next_at=tx.now)
        key = drift.find_key(tx, "web1", "conntrack limit")
        assert key is not None
    for words in (
        ("rebuild", "web1", "--request", "web1"),
        ("drift", "restore", str(key.id)),
        ("again", str(run.id)),
        ("again", str(run.id), "--plan"),
    ):
        refused = type_command(service, *words, "--ticket", "CHG1")
        assert "No ticket system is configured (tickets.yaml): remove the ticket" in refused.stderr
    alone = type_command(service, "rebuild", "web1", "--ticket", "CHG1")
    assert "--ticket and --plan need --request NEW_HOST" in alone.stderr


def test_drift_read_waits_for_the_readings_and_lists_them(service: Service):
    with service.keyturn.database.transaction() as tx:
        fields = {"host": "web1", "value": "2"}
        asked = sample_runs.add_requested_run(tx, words="hidepid set", fields=fields, host="web1")
        run = sample_runs.add_succeeded_run(tx, asked)
        later = tx.now + 3600 * 1_000_000
        drift.set_key(tx, "web1", "hidepid", run=run.id, set_value="hidepid=2", next_at=later)
        tx.sql.execute(update(tables.drift_key).values(read_at=0))
    read = type_command(service, "drift", "read", "web1")
    assert read.exit_code == 0, read.output
    assert read.stderr.startswith("web1: reading ")
    # Nothing listens at its address.
    (row,) = [line for line in read.stdout.splitlines() if " hidepid " in line]
    assert " cannot be read " in row

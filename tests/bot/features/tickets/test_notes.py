"""Notes in change tickets, which are sent again until the ticket system takes them."""

from pathlib import Path

from sqlalchemy import update

from bot.db.tables import delivery
from bot.feature import ServerContext
from bot.features.tickets import FEATURE
from bot.features.tickets.notes import TicketNotes
from bot.model.redaction import Redactor
from bot.model.run import State
from bot.settings import Settings
from tests.bot.features.tickets.test_guard import request, server, ticketed
from tests.bot.harness import Harness
from tests.ticket_system import TicketServer

__all__ = ["server", "ticketed"]


def test_start_and_end_of_a_change_are_noted_in_its_ticket(
    ticketed: Harness, server: TicketServer
):
    notes = TicketNotes(ticketed.database, ticketed.policies, "https://keyturn.test")
    notes.send_due()
    run = request(ticketed)
    assert ticketed.approve(run).state is State.SUCCEEDED
    server.status = 503
    notes.send_due()
    server.status = 200
    with ticketed.database.transaction() as tx:
        tx.sql.execute(update(delivery).values(next_attempt_at=0))
    while notes.send_due():
        pass
    first, started, ended = server.notes
    assert first == started
    assert started.startswith(
        "Keyturn run 1, toy set lb1 lamp on: started, requested by Dora Developer, approved by "
        f"Olga Owner, plan {run.short_digest}. https://keyturn.test/runs/1"
    )
    assert ended.startswith("Keyturn run 1, toy set lb1 lamp on: succeeded. ")


def test_readiness_names_failed_notes_where_there_is_a_ticket_system(
    ticketed: Harness, tmp_path: Path
):
    def list_checks() -> list[str]:
        settings = Settings(policy=tmp_path / "policy", base_url="https://keyturn.test")
        parts = (settings, ticketed.database, ticketed.policies, ticketed.service)
        part = FEATURE.build_server_part(ServerContext(*parts, Redactor(()), (), ()))
        assert len(part.tasks) == 1
        return [*part.health_checks]

    assert list_checks() == ["subscriptions"]
    (tmp_path / "policy" / "tickets.yaml").unlink()
    assert list_checks() == []

"""A restarted single process sends the deliveries that were claimed before the crash."""

import time
from pathlib import Path

from bot.db import home_queue, outbox
from bot.db.tables import delivery
from bot.model.run import RequestOrigin, RequestTerms
from tests.playground import sample_company
from tests.playground.service import Service
from tests.policies import INVENTORY
from tests.runbooks.declared import load_check

UptimeCheck = load_check("uptime check")


def test_deliveries_claimed_before_a_crash_are_sent_after_the_restart(tmp_path: Path) -> None:
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    with Service(tmp_path, slack="") as before:
        run = before.keyturn.service.request_run(
            UptimeCheck.model_validate({"host": "lb1"}),
            RequestTerms("dora", RequestOrigin("web"), ""),
        )
        with before.keyturn.database.transaction() as tx:
            home_queue.open_home(tx, "U0OLGA", "olga")
            [home] = home_queue.list_due_homes(tx)
            assert home_queue.claim_home(tx, home, seconds=60)
            [item] = outbox.list_pending_updates(tx)
            assert outbox.claim_update(tx, item, sender="dead", seconds=60)
            late = {
                "subscription": "wiki",
                "seq": 1,
                "run": run.id,
                "kind": "requested",
                "occurred_at": 0,
            }
            claimed = {"attempts": 0, "next_attempt_at": tx.now + 60_000_000, "error": ""}
            tx.sql.execute(delivery.insert().values(late | claimed))
    with Service(tmp_path) as service:
        deadline = time.monotonic() + 10
        while _list_undelivered(service, run.id) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _list_undelivered(service, run.id) == []


def _list_undelivered(service: Service, run: int) -> list[str]:
    """Return what still waits for who is dead."""
    with service.keyturn.database.reading() as tx:
        drawn = tx.sql.exec_driver_sql("SELECT digest FROM slack_home").scalar_one()
        held = tx.sql.exec_driver_sql(
            "SELECT count(*) FROM delivery WHERE next_attempt_at"
        ).scalar_one()
        waits = {
            "card": outbox.has_pending_update(tx, run),
            "Home": not drawn,
            "subscription": held,
        }
    return [name for name, waiting in waits.items() if waiting]

"""Hosts and host locks over the API."""

from bot.db import locks
from tests.bot.api.conftest import ApiHarness
from tests.bot.host_contacts import store_contact
from tests.bot.web.sample_runs import add_pending_run, add_requested_run, approve, start_run


def test_api_shows_host_status_queue_and_locks(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        store_contact(
            tx, "lb1", tried_at=tx.now, answered_at=None, kind="login", error="not our key"
        )
        holder = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb1"))))
        locks.take_lock(tx, "lb1", holder.id)
        second = approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb1")))
    program = api_harness.program("dora")
    host = program.get("/hosts/lb1").json()
    assert (host["status"], host["error"]) == ("login refused", "not our key")
    assert (host["key"], host["last_contact_at"]) == ("pinned key", None)
    assert host["logins"] == [
        {"user": "keyturn", "purpose": "reads and changes", "authentication": "a key"}
    ]
    assert [one["run"] for one in host["queue"]] == [second.id]
    held = program.get("/locks").json()["locks"]
    assert [(one["host"], one["run"], one["requested_by"]) for one in held] == [
        ("lb1", holder.id, "dora")
    ]


def test_api_filters_hosts_by_status(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        store_contact(tx, "lb2", tried_at=tx.now, answered_at=tx.now)
    program = api_harness.program("dora")
    hosts = program.get("/hosts", params={"status": "reachable"}).json()["hosts"]
    assert [one["name"] for one in hosts] == ["lb2"]
    assert program.get("/hosts", params={"status": "perhaps"}).status_code == 422

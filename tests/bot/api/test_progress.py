"""Progress and live output of a run over the API, and verification of its entries."""

from bot.audit import verification
from bot.db import live_output
from bot.db.live_output import NewestLines
from tests.bot.api.conftest import Desk
from tests.bot.harness import WEB
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    start_run,
)
from tests.toy import SetAll, ShowSwitches


def test_progress_returns_live_output_after_a_position(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        number = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx)))).id
        live_output.store_lines(tx, [NewestLines(number, 1, 7, "<b>\n\x1b[2J")])
    program = desk.program("olga")
    seen = program.get(f"/runs/{number}/progress").json()
    assert (seen["state"], seen["counted_in"], seen["total"], seen["running"]) == (
        "running",
        "steps",
        1,
        1,
    )
    assert seen["live_output"] == [
        {"run": number, "host": "lb1", "step": 1, "total": 7, "newest": ["<b>", "\x1b[2J"]}
    ]
    later = {"after": 2**60}
    assert program.get(f"/runs/{number}/progress", params=later).json()["live_output"] == []
    assert program.get(f"/runs/{number}/progress", params={"after": -1}).status_code == 422


def test_progress_counts_the_steps_of_a_run(desk: Desk) -> None:
    run = desk.harness.approve(desk.harness.request(SetAll(host="lb1", value="on")))
    seen = desk.program("olga").get(f"/runs/{run.id}/progress").json()
    assert (seen["ended"], seen["done"], seen["total"], seen["upcoming"]) == (True, 2, 2, 0)


def test_progress_is_available_for_every_run_state(desk: Desk) -> None:
    program = desk.program("olga")
    for number in add_sample_runs(desk.database).values():
        seen = program.get(f"/runs/{number}/progress").json()
        assert seen["total"] == sum(
            seen[name] for name in ("done", "failed", "running", "upcoming")
        )


def test_api_verifies_the_change_log_entries_of_a_run(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        verification.open_log(tx)
    run = desk.harness.approve(desk.harness.request(SetAll(host="lb1", value="on")))
    result = desk.program("olga").post(f"/runs/{run.id}/verify").json()
    assert (result["errors"], result["outputs"]) == ([], 2)
    assert result["entries"] == result["last"] - result["first"] + 1


def test_progress_counts_hosts_that_need_attention(desk: Desk) -> None:
    desk.harness.fleet.hosts["lb2"]["lamp"] = "broken"
    looks = [ShowSwitches(host=name) for name in ("lb1", "lb2")]
    run = desk.harness.service.request_on_hosts(
        looks, host_pattern="lb*", person="dora", origin=WEB
    )
    desk.harness.run_queued_work()
    seen = desk.program("olga").get(f"/runs/{run.id}/progress").json()
    assert (seen["state"], seen["needs_attention"]) == ("succeeded", True)
    assert (seen["total"], seen["done"], seen["needing_attention"]) == (2, 2, 1)

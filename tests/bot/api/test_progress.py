"""Progress and live output of a run over the API, and verification of its entries."""

from bot.audit import verification
from bot.db import live_output
from bot.db.live_output import NewestLines
from bot.model.run import RequestTerms
from tests.bot.api.conftest import ApiHarness
from tests.bot.harness import WEB
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    start_run,
)
from tests.toy import SetAll, ShowSwitches


def test_progress_returns_live_output_after_a_position(api_harness: ApiHarness) -> None:
    with api_harness.database.transaction() as tx:
        number = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx)))).id
        live_output.store_lines(tx, [NewestLines(number, 1, 7, "<b>\n\x1b[2J")])
    program = api_harness.program("olga")
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


def test_progress_counts_the_steps_of_a_run(api_harness: ApiHarness) -> None:
    run = api_harness.harness.approve(api_harness.harness.request(SetAll(host="lb1", value="on")))
    seen = api_harness.program("olga").get(f"/runs/{run.id}/progress").json()
    assert (seen["ended"], seen["done"], seen["total"], seen["upcoming"]) == (True, 2, 2, 0)


def test_progress_is_available_for_every_run_state(api_harness: ApiHarness) -> None:
    program = api_harness.program("olga")
    for number in add_sample_runs(api_harness.database).values():
        seen = program.get(f"/runs/{number}/progress").json()
        assert seen["total"] == sum(
            seen[name] for name in ("done", "failed", "not_run", "running", "upcoming")
        )


def test_api_verifies_the_change_log_entries_of_a_run(api_harness: ApiHarness) -> None:
    with api_harness.database.transaction() as tx:
        verification.open_log(tx)
    run = api_harness.harness.approve(api_harness.harness.request(SetAll(host="lb1", value="on")))
    result = api_harness.program("olga").post(f"/runs/{run.id}/verify").json()
    assert (result["errors"], result["outputs"]) == ([], 2)
    assert result["entries"] == result["last"] - result["first"] + 1


def test_progress_counts_hosts_that_need_attention(api_harness: ApiHarness) -> None:
    api_harness.harness.fleet.hosts["lb2"]["lamp"] = "broken"
    looks = [ShowSwitches(host=name) for name in ("lb1", "lb2")]
    run = api_harness.harness.service.request_on_hosts(
        looks, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    api_harness.harness.run_queued_work()
    seen = api_harness.program("olga").get(f"/runs/{run.id}/progress").json()
    assert (seen["state"], seen["needs_attention"]) == ("succeeded", True)
    assert (seen["total"], seen["done"], seen["needing_attention"]) == (2, 2, 1)

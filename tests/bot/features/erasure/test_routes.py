"""Erasure is requested over the API, and never confirmed."""

from bot.model.run import State, StepState
from tests.bot.api.conftest import HERE, ApiHarness
from tests.bot.web.sample_runs import (
    add_ended_run,
    add_pending_run,
    add_requested_run,
    approve,
    end_run,
    start_run,
)


def test_api_requests_erasure_of_output_but_does_not_erase(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        run = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx)), reason="go"))
        end_run(tx, run, StepState.SUCCEEDED, output="password=canary-4711")
        number = add_ended_run(tx, run, State.SUCCEEDED, "Verified").id
    program = api_harness.program("dora", "request")
    before = program.get(f"/runs/{number}/erasure").json()
    assert [(one["step"], one["characters"]) for one in before["outputs"]] == [(1, 20)]
    assert (before["request"], before["page"]) == (None, f"{HERE}/runs/{number}/erase")
    at = f"/runs/{number}/erasure"
    assert program.post(at, json={"reason": "no"}).status_code == 422
    answer = program.post(at, json={"reason": "it holds a password"})
    assert answer.status_code == 202
    assert answer.json()["request"]["person"] == "dora"
    assert answer.json()["outputs"] == before["outputs"]
    assert "canary" not in answer.text

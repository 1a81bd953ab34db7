"""Changes around a time, saved views and the filtered change log over the API."""

import pytest

from bot.audit import verification
from bot.db.database import Transaction
from tests.bot.api.conftest import ApiHarness
from tests.bot.web.sample_runs import add_sample_runs


def test_api_lists_changes_around_a_time_with_their_approvers(api_harness: ApiHarness):
    numbers = add_sample_runs(api_harness.database)
    timeline = (
        api_harness.program("dora").get("/changes", params={"host": "lb1", "within": "1 h"}).json()
    )
    ranks = [one["rank"] for one in timeline["events"]]
    assert ranks == sorted(ranks)
    assert numbers["succeeded"] in [one["run"] for one in timeline["events"]]
    allowed = {one["run"]: one["approved_by"] for one in timeline["events"]}
    assert (allowed[numbers["succeeded"]], allowed[numbers["pending"]]) == (["olga"], [])
    assert timeline["since"] < timeline["until"]
    assert timeline["omitted"] == 0
    assert (timeline["searched_since"], timeline["searched_until"]) == (
        timeline["since"],
        timeline["until"],
    )
    one = api_harness.program("dora").get("/changes", params={"limit": 1}).json()
    assert len(one["events"]) == 1
    assert one["omitted"] > 0


def test_invalid_time_span_of_changes_is_refused(api_harness: ApiHarness):
    answer = api_harness.program("dora").get("/changes", params={"within": "ages"})
    assert answer.status_code == 422


def test_saved_view_of_a_token_belongs_to_its_person(api_harness: ApiHarness):
    program = api_harness.program("dora", "request")
    kept = program.post("/views", json={"name": "edge", "filters": {"area": "edge"}}).json()
    assert kept["filters"] == {"area": "edge"}
    assert api_harness.program("olga").get(f"/views/{kept['id']}").json() == kept
    assert api_harness.program("olga").get("/views").json() == {"views": []}
    assert program.post(f"/views/{kept['id']}/delete").json() == {"views": []}


def test_saved_view_with_an_unknown_filter_is_refused(api_harness: ApiHarness):
    answer = api_harness.program("dora", "request").post(
        "/views", json={"name": "edge", "filters": {"colour": "red"}}
    )
    assert answer.status_code == 422
    assert "Unknown filter colour" in answer.json()["detail"]


def test_api_change_log_pages_keep_their_filters(api_harness: ApiHarness):
    add_sample_runs(api_harness.database)
    program = api_harness.program("dora")
    page = program.get("/log", params={"kind": "approved", "limit": 2}).json()
    assert {entry["kind"] for entry in page["entries"]} == {"approved"}
    assert "kind=approved" in page["next"]
    further = program.get(page["next"].removeprefix("/api/v1")).json()
    assert {entry["kind"] for entry in further["entries"]} == {"approved"}
    assert further["entries"][0]["seq"] < page["entries"][-1]["seq"]
    denied = program.get("/log", params={"state": "denied"}).json()["entries"]
    assert len({entry["run"] for entry in denied}) == 1


def test_second_api_change_log_verification_at_a_time_gets_409(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    genuine, second = verification.verify_log, list[tuple[int, str]]()
    with api_harness.database.transaction() as tx:
        verification.open_log(tx)

    def meanwhile(tx: Transaction) -> verification.Verification:
        answer = olga.post("/log/verify")
        second.append((answer.status_code, answer.json()["type"]))
        return genuine(tx)

    dora, olga = api_harness.program("dora"), api_harness.program("olga")
    with monkeypatch.context() as both:
        both.setattr(verification, "verify_log", meanwhile)
        assert dora.post("/log/verify").status_code == 200
    assert second == [(409, "urn:keyturn:problem:verification-in-progress")]
    assert dora.post("/log/verify").status_code == 200

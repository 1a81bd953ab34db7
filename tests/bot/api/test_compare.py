"""Comparison of two runs over the API."""

import pytest

from tests.bot.api.conftest import ApiHarness
from tests.bot.web.sample_runs import add_requested_run, add_sample_runs


def test_api_compares_two_runs_by_section(api_harness: ApiHarness):
    numbers = add_sample_runs(api_harness.database)
    wanted = {"a": numbers["denied"], "b": numbers["succeeded"]}
    comparison = api_harness.program("dora").get("/runs/compare", params=wanted).json()
    assert (comparison["left"]["id"], comparison["right"]["id"]) == (wanted["a"], wanted["b"])
    ends = next(one for one in comparison["sections"] if one["title"] == "Result")
    assert ends["differing"] > 0
    assert {"left": "Denied", "right": "Succeeded", "kind": "changed", "folded": 0} in ends[
        "lines"
    ]
    assert comparison["differing"] == sum(one["differing"] for one in comparison["sections"])


def test_api_compares_a_run_with_the_previous_similar_run(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        same = add_requested_run(tx).id
        add_requested_run(tx, host="lb2")
        last = add_requested_run(tx).id
    program = api_harness.program("dora")
    assert program.get("/runs/compare", params={"b": last}).json()["left"]["id"] == same
    alone = program.get("/runs/compare", params={"b": same}).json()
    assert (alone["left"], alone["sections"], alone["differing"]) == (None, [], 0)


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 422), ("a=1", 422), ("b=999", 404), ("a=999&b=1", 404), ("b=0", 422), ("b=x", 422)],
)
def test_api_comparison_with_a_missing_run_is_refused(
    api_harness: ApiHarness, query: str, status: int
):
    add_sample_runs(api_harness.database)
    answer = api_harness.program("dora").get(f"/runs/compare?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"

"""Schedules and the calendar in the API, and what of them may be viewed."""

import pytest

from tests.bot.api.conftest import ApiHarness
from tests.bot.features.schedules.due import record_missed_moments
from tests.bot.restricted_view import HIDDEN, SHOWN


def test_api_schedule_is_requested_suspended_resumed_and_ended(api_harness: ApiHarness):
    dora = api_harness.program("dora", "request")
    body = {"request": "toy show lb1", "name": "a look", "cron": "0 3 1 * *", "reason": "habit"}
    add_requested_run = dora.post("/schedules", json=body)
    assert add_requested_run.status_code == 202
    assert "first day of every month" in add_requested_run.json()["schedule"]["when"]
    api_harness.harness.run_queued_work()
    [schedule] = dora.get("/schedules").json()["schedules"]
    assert dora.get("/schedules?ended=all").json() == {"schedules": [schedule], "ended_before": 0}
    assert dora.get("/schedules?ended=often").status_code == 422
    assert (schedule["name"], schedule["state"], len(schedule["next"])) == ("a look", "active", 5)
    at = f"/schedules/{schedule['id']}"
    record_missed_moments(api_harness.database, schedule["id"], times=2)
    [listed] = dora.get("/schedules").json()["schedules"]
    assert (schedule["missed"], listed["missed"], dora.get(at).json()["missed"]) == (0, 2, 2)
    assert dora.post(f"{at}/suspend", json={}).json()["state"] == "suspended"
    assert dora.post(f"{at}/resume").json()["state"] == "active"
    assert api_harness.program("stan", "request").post(f"{at}/end", json={}).status_code == 403
    assert dora.post(f"{at}/end", json={}).json()["state"] == "ended"
    kinds = api_harness.harness.list_entry_kinds()
    for kind in ("schedule suspended", "schedule resumed", "schedule ended"):
        assert kinds[kinds.index(kind) - 1] == "token used"
    assert dora.post("/schedules", json=body | {"cron": "often"}).status_code == 422


def test_api_describes_a_cron_expression_and_its_next_times(api_harness: ApiHarness):
    program = api_harness.program("dora")
    cron = program.get("/calendar/cron", params={"cron": "0 3 1 * *", "count": 3}).json()
    assert cron["description"].startswith("At 03:00 on the first day of every month")
    assert len(cron["next"]) == 3
    assert cron["next"] == sorted(cron["next"])
    for wrong in ({"cron": "often"}, {"cron": "0 3 1 * *", "zone": "Mars"}, {}):
        assert program.get("/calendar/cron", params=wrong).status_code == 422
    wrong_zone = program.get("/calendar", params={"zone": "Paris"})
    assert (wrong_zone.status_code, "Europe/Paris" in wrong_zone.text) == (422, True)


@pytest.mark.parametrize("path", ["/schedules", "/calendar"])
def test_api_lists_show_schedules_with_the_right_to_view(restricted_desk: ApiHarness, path: str):
    text = restricted_desk.program("dora", "read").get(path).text
    assert (SHOWN in text, HIDDEN in text) == (True, False)
    whole = restricted_desk.program("adam", "read").get(path).text
    assert (SHOWN in whole, HIDDEN in whole) == (True, True)

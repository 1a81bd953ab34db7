"""Its rows in the tables of routes; see the tables for what they mean."""

from bot.features.schedules import rows
from bot.model.run import RequestTerms, Run
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.features.schedules.chat_walk import use_schedules
from tests.bot.harness import WEB, Harness
from tests.toy import ShowSwitches

READERS = ("read", "request", "approve")
SERVICE = "service"
READ_ONLY = "looks"

PAGES = {
    ("GET", "/schedules"): (401, 200),
    ("GET", "/schedules/new"): (401, 200),
    ("GET", "/schedules/timing"): (401, 200),
    ("POST", "/schedules"): (401, 422),
    ("GET", "/schedules/{number}"): (401, 404),
    ("POST", "/schedules/{number}/suspend"): (401, 404),
    ("POST", "/schedules/{number}/resume"): (401, 404),
    ("POST", "/schedules/{number}/end"): (401, 404),
    ("POST", "/schedules/{number}/take-over"): (401, 404),
}
PAGES_VIEWING = {
    ("GET", "/schedules"): "leaves out",
    ("GET", "/schedules/new"): "tells of none",
    ("GET", "/schedules/timing"): "tells of none",
    ("POST", "/schedules"): "tells of none",
    ("GET", "/schedules/{number}"): "schedule",
    ("POST", "/schedules/{number}/suspend"): "schedule",
    ("POST", "/schedules/{number}/resume"): "schedule",
    ("POST", "/schedules/{number}/end"): "schedule",
    ("POST", "/schedules/{number}/take-over"): "schedule",
}
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, str] | None]] = {
    ("GET", "/calendar"): (READERS, 200, None),
    ("GET", "/calendar/cron"): (READERS, 200, None),
    ("GET", "/schedules"): (READERS, 200, None),
    ("GET", "/schedules/{number}"): (READERS, 404, None),
    ("POST", "/schedules"): (
        ("request",),
        202,
        {"request": "toy show lb1", "name": "a look", "cron": "@daily"},
    ),
    ("POST", "/schedules/{number}/suspend"): (("request",), 404, {}),
    ("POST", "/schedules/{number}/resume"): (("request",), 404, None),
    ("POST", "/schedules/{number}/end"): (("request",), 404, {}),
    ("POST", "/schedules/{number}/take"): (("request",), 404, {}),
}
QUERY = {
    "/calendar/cron": {"cron": "0 3 * * *"},
}
ROUTES_VIEWING = {
    ("GET", "/calendar"): "leaves out",
    ("GET", "/calendar/cron"): "tells of none",
    ("GET", "/schedules"): "leaves out",
    ("GET", "/schedules/{number}"): "schedule",
    ("POST", "/schedules"): "tells of none",
    ("POST", "/schedules/{number}/suspend"): "schedule",
    ("POST", "/schedules/{number}/resume"): "schedule",
    ("POST", "/schedules/{number}/end"): "schedule",
    ("POST", "/schedules/{number}/take"): "schedule",
}
WRONG_INPUT = {"schedule show 99": (3, "there is no schedule 99")}
COMMANDS = {
    "calendar": SERVICE,
    "schedule add": "requested",
    "schedule end": "schedule ended",
    "schedule list": READ_ONLY,
    "schedule next": READ_ONLY,
    "schedule resume": "schedule resumed",
    "schedule show": READ_ONLY,
    "schedule suspend": "schedule suspended",
    "schedule take": "requested",
}
CHAT_VIEWING = {
    "schedule {number}": "schedule",
    "schedule suspend {number}": "schedule",
    "schedule resume {number}": "schedule",
    "schedule end {number}": "schedule",
    "schedule take {number}": "schedule",
    "schedules": "leaves out",
    "schedule": "tells of none",
}


def _add_schedule(harness: Harness, run: Run, word: str) -> int:
    """Start a schedule of the requester of a run, on its host, with the word as its name."""
    timing = ScheduleTiming(word, parse_cron("0 3 * * *", "UTC"))
    asked = harness.service.request_on_hosts(
        [ShowSwitches(host=run.host)],
        RequestTerms(run.requested_by, WEB, reason=f"a {word} reason", timing=timing),
        host_pattern="",
    )
    harness.run_queued_work()
    with harness.database.reading() as tx:
        return next(one.id for one in rows.list_schedules(tx) if one.run == asked.id)


RECORDS = {"schedule": _add_schedule}
CHAT_WALKS = {"schedules": use_schedules}

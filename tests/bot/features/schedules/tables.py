"""Its rows in the tables of routes; see the tables for what they mean."""

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
WORDS = {"schedule": "requests one", "schedules": "lists them"}
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

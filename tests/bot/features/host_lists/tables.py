"""Its rows in the tables of routes; see the tables for what they mean."""

from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostListFile
from tests.bot.slack.hostile_walk import Walk

READERS = ("read", "request", "approve")
SERVICE = "service"

PAGES = {
    ("GET", "/host-lists"): (401, 200),
    ("GET", "/host-lists/{number}"): (401, 404),
    ("POST", "/host-lists/{number}/confirm"): (401, 404),
    ("POST", "/host-lists/{number}/withdraw"): (401, 404),
}
PAGES_VIEWING = {
    ("GET", "/host-lists"): "tells of none",
    ("GET", "/host-lists/{number}"): "tells of none",
    ("POST", "/host-lists/{number}/confirm"): "tells of none",
    ("POST", "/host-lists/{number}/withdraw"): "tells of none",
}
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, object] | None]] = {
    ("GET", "/host-lists"): (READERS, 200, None),
    ("POST", "/host-lists"): (("request",), 422, {"hosts": {"lb1": {"area": "edge"}}}),
    ("GET", "/host-lists/{number}"): (READERS, 404, None),
    ("POST", "/host-lists/{number}/confirm"): (("approve",), 404, {"digest": "0123456789"}),
    ("POST", "/host-lists/{number}/withdraw"): (("request",), 404, {"reason": "a mistake"}),
}
ROUTES_VIEWING = {
    ("GET", "/host-lists"): "tells of none",
    ("POST", "/host-lists"): "tells of none",
    ("GET", "/host-lists/{number}"): "tells of none",
    ("POST", "/host-lists/{number}/confirm"): "tells of none",
    ("POST", "/host-lists/{number}/withdraw"): "tells of none",
}
COMMANDS = {
    "host-list confirm": SERVICE,
    "host-list list": SERVICE,
    "host-list propose": SERVICE,
    "host-list programs": "files",
    "host-list read": "looks",
    "host-list show": SERVICE,
    "host-list withdraw": SERVICE,
    "host-list write": "host list written",
}


async def send_notices(walk: Walk) -> None:
    """Send owners the notice of a list."""
    listed = HostListFile.model_validate({"hosts": {"lb1": {"address": "192.0.2.80"}}})
    walk.chat.harness.service.bind(HostListActions).propose(listed, person="dora")
    await walk.chat.door.direct_notices.send_due()


CHAT_WALKS = {"host lists": send_notices}
PROGRAM_STARTERS = {"host_lists/sources.py": "a source that is a command, as its file says it"}

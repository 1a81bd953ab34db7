"""Its rows in the tables of routes; see the tables for what they mean."""

from tests.bot.slack.hostile_walk import Walk

READERS = ("read", "request", "approve")
SERVICE = "service"

PAGES = {
    ("GET", "/freezes"): (401, 200),
    ("POST", "/freezes"): (401, 422),
    ("POST", "/freezes/{number}/end"): (401, 404),
}
PAGES_VIEWING = {
    ("GET", "/freezes"): "tells of none",
    ("POST", "/freezes"): "tells of none",
    ("POST", "/freezes/{number}/end"): "tells of none",
}
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, str] | None]] = {
    ("GET", "/freezes"): (READERS, 200, None),
    ("POST", "/freezes"): (
        ("approve",),
        422,
        {"hosts": "lb1", "until": "2100-01-01T00:00:00Z", "reason": "a test"},
    ),
    ("POST", "/freezes/{number}/end"): (("approve",), 404, {"reason": "it is over"}),
}
ROUTES_VIEWING = {
    ("GET", "/freezes"): "tells of none",
    ("POST", "/freezes"): "tells of none",
    ("POST", "/freezes/{number}/end"): "tells of none",
}
COMMANDS = {
    "freeze end": SERVICE,
    "freeze list": SERVICE,
    "freeze order": SERVICE,
}
CHAT_VIEWING = {"freeze": "tells of none", "freezes": "tells of none"}


async def use_freezes(walk: Walk) -> None:
    """Order a freeze with every reason, list it, and end it."""
    await walk.each("freeze", "freeze SAID", "freeze SAID until 2 hours because SAID")
    await walk.say("freeze lb1 until 2 hours because SAID", "U0OLGA")
    await walk.each("freeze", "can-i toy echo lb1", "freeze end SAID")
    await walk.say("freeze end 1 because SAID", "U0OLGA")


CHAT_WALKS = {"freezes": use_freezes}
CHAT_TRUSTED_TEXTS = {
    "freezes/chat: f'You froze {row.what}'": "hosts and areas of the policy",
    "freezes/chat: text": "hosts and areas of the policy",
}

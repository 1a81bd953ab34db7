"""Its rows in the tables of routes; see the tables for what they mean."""

from tests.bot.features.erasure.chat_walk import decline_erasure

READERS = ("read", "request", "approve")

PAGES = {
    ("GET", "/runs/{number}/erase"): (401, 200),
    ("POST", "/runs/{number}/erase"): (401, 422),
    ("POST", "/runs/{number}/erase/confirm"): (401, 409),
    ("POST", "/runs/{number}/erase/decline"): (401, 422),
}
PAGES_VIEWING = dict.fromkeys(PAGES, "run")
ROUTES = {
    ("GET", "/runs/{number}/erasure"): (READERS, 200, None),
    ("POST", "/runs/{number}/erasure"): (("request",), 409, {"reason": "it holds a password"}),
}
ROUTES_VIEWING = dict.fromkeys(ROUTES, "run")
COMMANDS = {"changelog erase": "erasure requested"}
WRONG_INPUT = {
    "changelog erase x --as olga --reason gone": (2, "not a valid integer"),
    "changelog erase 99 --as olga --reason gone": (3, "there is no run 99"),
}
CHAT_WALKS = {"erasure": decline_erasure}

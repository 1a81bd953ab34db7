"""Its rows in the tables of routes; see the tables for what they mean."""

from bot.features.drift import rows
from bot.model.run import Run
from tests.bot.features.drift.chat_walk import use_drift
from tests.bot.harness import Harness

READERS = ("read", "request", "approve")
SERVICE = "service"

PAGES = {
    ("GET", "/drift"): (401, 200),
    ("GET", "/drift/{number}"): (401, 404),
    ("POST", "/drift/{number}/read"): (401, 404),
    ("POST", "/drift/{number}/restore"): (401, 404),
    ("POST", "/drift/{number}/adopt"): (401, 404),
    ("POST", "/drift/{number}/expect"): (401, 404),
}
PAGES_VIEWING = {
    ("GET", "/drift"): "leaves out",
    ("GET", "/drift/{number}"): "value",
    ("POST", "/drift/{number}/read"): "value",
    ("POST", "/drift/{number}/restore"): "value",
    ("POST", "/drift/{number}/adopt"): "value",
    ("POST", "/drift/{number}/expect"): "value",
}
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, str] | None]] = {
    ("GET", "/drift"): (READERS, 200, None),
    ("POST", "/hosts/{name}/drift"): (("request",), 202, None),
    ("GET", "/drift/{number}"): (READERS, 404, None),
    ("POST", "/drift/{number}/adopt"): (("approve",), 404, {"reason": "it is right"}),
    ("POST", "/drift/{number}/expect"): (
        ("approve",),
        404,
        {"until": "2100-01-01T00:00:00Z", "reason": "a test"},
    ),
    ("POST", "/drift/{number}/restore"): (("request",), 404, {}),
}
ROUTES_VIEWING = {
    ("GET", "/drift"): "leaves out",
    ("POST", "/hosts/{name}/drift"): "tells of none",
    ("GET", "/drift/{number}"): "value",
    ("POST", "/drift/{number}/adopt"): "value",
    ("POST", "/drift/{number}/expect"): "value",
    ("POST", "/drift/{number}/restore"): "value",
}
COMMANDS = {
    "drift adopt": SERVICE,
    "drift expect": SERVICE,
    "drift list": SERVICE,
    "drift read": SERVICE,
    "drift restore": SERVICE,
    "drift show": SERVICE,
}
CHAT_VIEWING = {
    "drift {number}": "value",
    "drift restore {number}": "value",
    "drift adopt {number} because it is right": "value",
    "drift expect {number} until 3 days because of a test": "value",
    "drift": "leaves out",
    "drift lb1": "leaves out",
}


def _add_value(harness: Harness, run: Run, word: str) -> int:
    """Watch a value of a run, which has the word as its name."""
    with harness.database.transaction() as tx:
        rows.set_key(tx, run.host, word, run=run.id, set_value=word, next_at=tx.now)
        key = rows.find_key(tx, run.host, word)
    assert key
    return key.id


RECORDS = {"value": _add_value}
CHAT_WALKS = {"drift": use_drift}
CHAT_TRUSTED_TEXTS = {"drift/chat: title": "a host of the policy, and a count"}

"""Its rows in the tables of routes and commands; see the tables for what they mean."""

from tests.bot.features.redundancy.chat_walk import show_trees

READ_ONLY = "looks"

PAGES = {
    ("GET", "/redundancy"): (401, 200),
    ("GET", "/redundancy/{name}"): (401, 404),
}
PAGES_VIEWING = {
    ("GET", "/redundancy"): "tells of none",
    ("GET", "/redundancy/{name}"): "tells of none",
}
CHAT_VIEWING = {"tree": "tells of none"}
WRONG_INPUT = {
    "tree check --file @/text": (2, "must be a mapping"),
    "tree draw --file @/binary": (2, "is not UTF-8 text"),
    "tree cuts --order x": (2, "not a valid integer"),
    "tree draw nope": (3, "no fault trees"),
}
COMMANDS = {
    "tree analyse": READ_ONLY,
    "tree check": READ_ONLY,
    "tree claims": READ_ONLY,
    "tree cuts": READ_ONLY,
    "tree draw": READ_ONLY,
    "tree release": "leg released",
}
COMMANDS_WITHOUT_JSON = {
    "tree check": "one line for each tree",
    "tree draw": "an outline, or --svg",
}
CHAT_WALKS = {"trees": show_trees}
CHAT_TRUSTED_TEXTS = {
    "redundancy/chat: f'{tree.name}: {overview.margin_sentence}'": "a name, and counts",
}

"""Its rows in the tables of routes; see the tables for what they mean."""

READERS = ("read", "request", "approve")

PAGES = {("GET", "/report"): (401, 200)}
PAGES_VIEWING = {("GET", "/report"): "leaves out"}
ROUTES = {("GET", "/report/waiting"): (READERS, 200, None)}
ROUTES_VIEWING = {("GET", "/report/waiting"): "leaves out"}
COMMANDS = {"report waiting": "service", "policy replay": "looks"}
WRONG_INPUT = {
    "policy replay @/text": (2, "is a file"),
    "policy replay @/policy --since nonsense": (2, "is not a time"),
}
LONG_COMMANDS = {"policy replay {place}/policy": "replaying"}

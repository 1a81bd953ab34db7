"""Its rows in the tables of routes; see the tables for what they mean."""

READERS = ("read", "request", "approve")

PAGES = {
    ("GET", "/hosts/{name}/rebuild"): (401, 200),
    ("POST", "/hosts/{name}/rebuild"): (401, 422),
}
PAGES_VIEWING = {
    ("GET", "/hosts/{name}/rebuild"): "leaves out",
    ("POST", "/hosts/{name}/rebuild"): "tells of none",
}
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, str] | None]] = {
    ("GET", "/hosts/{name}/rebuild"): (READERS, 200, None),
    ("POST", "/hosts/{name}/rebuild"): (("request",), 422, {"new_host": "lb2"}),
}
ROUTES_VIEWING = PAGES_VIEWING
COMMANDS = {"rebuild": "service"}

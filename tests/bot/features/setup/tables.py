"""Its rows in the tables of routes; see the tables for what they mean."""

PAGES = {("GET", "/setup"): (401, 200)}
PAGES_VIEWING = {("GET", "/setup"): "tells of none"}

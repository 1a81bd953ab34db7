"""Its rows in the tables of routes; see the tables for what they mean."""

PAGES = {("GET", "/draft"): (401, 200), ("POST", "/draft"): (401, 200)}
PAGES_VIEWING = {("GET", "/draft"): "tells of none", ("POST", "/draft"): "tells of none"}

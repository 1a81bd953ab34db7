"""`make docs` writes the reference of commands and API, in docs/cli and docs/api."""

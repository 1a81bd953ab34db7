"""`make docs` writes the reference of the command line and of the API, in docs/cli and docs/api."""

"""Its rows in the tables of tests."""

COMMANDS = {"people import-slack": "files", "people list": "looks"}

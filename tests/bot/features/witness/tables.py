"""The command `keyturn witness` has a state of its own, and no service."""

COMMANDS = {"witness": "files"}
COMMANDS_WITHOUT_JSON = {"witness": "it runs until interrupted"}

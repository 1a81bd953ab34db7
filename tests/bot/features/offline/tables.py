"""Offline commands reach no service: they act on files and hosts."""

COMMANDS = {
    "offline plan": "files",
    "offline run": "files",
    "offline sign": "files",
}
COMMANDS_WITHOUT_JSON = {
    "offline plan": "people read it, and sign it",
    "offline run": "people follow it, and the record is a file",
    "offline sign": "people read it, and sign it",
}

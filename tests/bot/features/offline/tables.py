"""Offline commands reach no service: they act on files and hosts."""

COMMANDS = {
    "offline plan": "files",
    "offline run": "files",
    "offline sign": "files",
}

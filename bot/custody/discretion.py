"""Discretion: the service's own secrets, and log lines that do not tell them."""

import logging
from collections.abc import Iterator
from pathlib import Path

from bot.redaction import Redactor
from connectors.inventory import Inventory

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Every key of OpenSSH begins with this, so it tells nothing.
_HEAD_OF_ANY_KEY = "b3BlbnNzaC1rZXktdjEA"
_SHORTEST_LINE = 40


class Discreet(logging.Formatter):
    """Formats a record, with its trace if there is one, and takes out what is secret."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))


def set_up_logging(redactor: Redactor) -> None:
    """Log to standard error, secrets left out."""
    handler = logging.StreamHandler()
    handler.setFormatter(Discreet(redactor))
    logging.basicConfig(handlers=[handler], force=True)


def secrets_of(inventory: Inventory, keys: Path) -> Iterator[str]:
    """Yield what we log in to hosts with. keys: the directory that the files are relative to."""
    for host in inventory.hosts.values():
        for file in (host.password_file, host.enable_file, host.key):
            if file is not None:
                yield from _lines(keys / file)


def _lines(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return  # whoever logs in with it will say what is wrong
    if any("PRIVATE KEY" in line for line in lines):
        lines = [line for line in lines if len(line) >= _SHORTEST_LINE and "--" not in line]
    yield from (line for line in lines if not line.startswith(_HEAD_OF_ANY_KEY))

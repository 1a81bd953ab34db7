"""Discretion: the service's own secrets, and log lines that do not tell them."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bot import trail
from bot.redaction import Redactor
from bot.visible import one_line
from connectors.inventory import Inventory

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What anybody who connects can have them write. Each message is passed so often within a minute.
_CAUSED_BY_STRANGERS = frozenset({"asyncio", "uvicorn.error"})
_MOST_A_MINUTE = 10

_ABOUT = frozenset({"run", "person", "host", "trace_id"})

# Every key of OpenSSH begins with this, so it tells nothing.
_HEAD_OF_ANY_KEY = "b3BlbnNzaC1rZXktdjEA"
_SHORTEST_LINE = 40


class Discreet(logging.Formatter):
    """Formats a record on one line, its trace below it, and takes out what is secret."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return one_line(self._redactor.text(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))


class Lines(logging.Formatter):
    """Formats a record as one JSON object on a line, with what it is about, and without secrets.

    time: UTC. trouble: the trace of an exception. run, person, trace_id: where it has them.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, str | int] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.text(record.getMessage()),
        }
        if record.exc_info:
            told["trouble"] = self._redactor.text(self.formatException(record.exc_info))
        # Each text by itself: once it is JSON, a secret with a quote in it looks different.
        about = {
            name: self._redactor.text(fact) if isinstance(fact, str) else fact
            for name, fact in trail.facts().items()
            if name in _ABOUT
        }
        return json.dumps({**told, **about})


class NoFlood(logging.Filter):
    """Passes what strangers can cause ten times a minute, so that they cannot fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._passed = 0.0, Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in _CAUSED_BY_STRANGERS:
            return True
        if not 0 <= record.created - self._since < 60:
            self._since, self._passed = record.created, Counter()
        about = str(record.msg).partition("\n")[0]
        self._passed[about] += 1
        if self._passed[about] == _MOST_A_MINUTE:
            record.msg = f"{record.msg} (further ones are left out for a minute)"
        return self._passed[about] <= _MOST_A_MINUTE


def set_up_logging(redactor: Redactor, form: Literal["text", "json"] = "text") -> None:
    """Log to standard error, secrets left out."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(redactor) if form == "json" else Discreet(redactor))
    handler.addFilter(NoFlood())
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

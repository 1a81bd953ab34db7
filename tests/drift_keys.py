"""Read what runs have set when a test wants it, not when it is due."""

from threading import Event

from bot.features.drift.reader import DriftReader
from bot.service import KeyturnService


def read_due_keys(service: KeyturnService) -> None:
    """Read the keys that are due, as the periodic duty of a process does."""
    service.bind(lambda context: DriftReader(context, Event())).read_due_keys()


def read_requested_keys(service: KeyturnService) -> None:
    """Read the keys whose reading a person asked for."""
    service.bind(lambda context: DriftReader(context, Event())).read_due_keys(requested=True)

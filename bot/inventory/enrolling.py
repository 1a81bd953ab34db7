"""The hosts that wait for a second person, as pages tell of them."""

import logging
from pathlib import Path

from bot.inventory import pending
from bot.inventory.pending import NotConfirmed
from bot.roll import Enrolling

log = logging.getLogger(__name__)


def enrolling(directory: Path) -> list[Enrolling]:
    """Return them by name; none where the file that keeps them is broken, which is logged."""
    try:
        waiting = pending.waiting(directory)
    except (NotConfirmed, OSError) as trouble:
        log.warning("hosts that wait to be confirmed cannot be shown: %s", trouble)
        return []
    return [
        Enrolling(name, str(one.entry.get("address", "")), one.fingerprint, str(one.asked_by))
        for name, one in sorted(waiting.items())
    ]

"""The whole log for others to read and to verify: each entry with the output that it binds."""

from collections.abc import Generator
from typing import Any

from bot.store import changelog, output
from bot.store.database import Transaction


def exported(tx: Transaction) -> Generator[dict[str, Any]]:
    """Yield every entry's members; of one that binds output, that too, or None once erased."""
    outputs = output.everything(tx)
    bound = next(outputs, None)
    for entry in changelog.everything(tx):
        members = dict(vars(entry))
        if bound is not None and bound[0] == entry.seq:
            _, salt, text = bound
            members["output"] = None if text is None else {"salt": salt, "text": text}
            bound = next(outputs, None)
        yield members

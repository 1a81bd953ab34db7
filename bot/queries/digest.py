"""What features say in the weekly digest of an owner."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.policy import Policy


@dataclass(frozen=True)
class DigestSection:
    """A section that a feature adds."""

    title: str
    list_lines: Callable[[Transaction, Policy, set[str]], Iterable[str]]
    """Returns its lines about these areas, from what the transaction may view."""

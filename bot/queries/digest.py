"""What features say in the weekly digest of an owner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.db.database import Transaction
from bot.policy import Policy


@dataclass(frozen=True)
class DigestSection:
    """A section that a feature adds."""

    title: str
    lines: Sequence[str]


BuildDigest = Callable[[Transaction, Policy, set[str]], Sequence[DigestSection]]
"""Returns sections about these areas, from what the transaction may view."""

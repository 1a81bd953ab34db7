"""What features say in the weekly digest of an owner, and what they have that ends soon."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bot.audit.change_log import EntryDraft
from bot.db.database import Transaction
from bot.model.times import DAY
from bot.policy import Policy


@dataclass(frozen=True)
class DigestSection:
    """A section that a feature adds."""

    title: str
    lines: Sequence[str]
    command: str = ""
    """What shows more in chat; "" for nothing."""


BuildDigest = Callable[[Transaction, Policy, set[str]], Sequence[DigestSection]]
"""Returns sections about these areas, from what the transaction may view."""
ListEnds = Callable[[Transaction], Iterable[EntryDraft]]
"""Returns entries about what ends soon and has none yet."""


def is_near_end(now: int, begins_at: int, ends_at: int, *, days: int) -> bool:
    """Return whether it ends soon. What is as short as that ends without a notice."""
    return ends_at - now < days * DAY < ends_at - begins_at

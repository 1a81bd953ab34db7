"""How hosts were met, for tests that look at it."""

from bot.store import contacts
from bot.store.contacts import Contact
from bot.store.database import Transaction


def meet(
    tx: Transaction,
    host: str,
    *,
    met: int,
    answered: int | None,
    kind: str = "",
    trouble: str = "",
) -> None:
    """Note how a host was met. answered: None for not now."""
    contacts.keep(tx, [Contact(host, met, answered, met, kind, trouble)])

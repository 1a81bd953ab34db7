"""How hosts were met, for tests that look at it."""

from bot.db import host_contacts
from bot.db.database import Transaction
from bot.db.host_contacts import LastContact


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
    host_contacts.store_contacts(tx, [LastContact(host, met, answered, met, kind, trouble)])

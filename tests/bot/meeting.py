"""How hosts were met, for tests that look at it."""

from bot.db.database import Transaction
from bot.hosts import reachability
from bot.hosts.reachability import LastContact


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
    reachability.store_contacts(tx, [LastContact(host, met, answered, met, kind, trouble)])

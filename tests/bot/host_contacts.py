"""Last contacts with hosts, for tests."""

from bot.db import host_contacts
from bot.db.database import Transaction
from bot.db.host_contacts import LastContact


def store_contact(
    tx: Transaction,
    host: str,
    *,
    tried_at: int,
    answered_at: int | None,
    kind: str = "",
    error: str = "",
) -> None:
    """Store a contact with a host. answered_at: None if it did not answer."""
    host_contacts.store_contacts(
        tx,
        [
            LastContact(
                *(host, tried_at, answered_at, tried_at, kind, error),
                failed_at=tried_at if kind else None,
            )
        ],
    )

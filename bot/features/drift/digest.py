"""What the weekly digest says of drift."""

from collections.abc import Iterator

from bot.db.database import Transaction
from bot.features.drift import rows
from bot.model.drift_state import DriftState
from bot.model.text import format_count
from bot.policy import Policy
from bot.queries.digest import DigestSection


def _list_changed_hosts(tx: Transaction, policy: Policy, owned: set[str]) -> Iterator[str]:
    hosts: dict[str, int] = {}
    for key in rows.list_keys(tx, state=DriftState.CHANGED):
        known = policy.inventory.hosts.get(key.host)
        if known is not None and known.area in owned:
            hosts[key.host] = hosts.get(key.host, 0) + 1
    for host, number in hosts.items():
        yield f"{host}: {format_count(number, 'value')}"


DIGEST = (DigestSection("Changed outside Keyturn", _list_changed_hosts),)

"""Message authentication codes (MAC) of rows that give access: sessions, links, tokens, agents.

A person with write access to the database could create a session, link, token or agent for another
person, or change its owner, expiry or scopes. Each of these rows has a MAC of its values. The key
is derived from the signing key of the change log and is not in the database. A row whose MAC is
wrong gives no access, and is recorded in the change log. Snapshots of the log have one as well.
"""

import hmac
import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, select, update

from bot.audit import change_log, events
from bot.db.database import StoreUnavailable, Transaction
from bot.model.canonical import encode_canonical
from bot.model.signing import SigningKey

log = logging.getLogger(__name__)

# The database assigns the id. Rows are identified by a prefix or a hash, which the MAC covers.
_COLUMNS_WITHOUT_MAC = frozenset({"id", "mac"})
_NAME_LENGTH = 16
# Which columns name a row and its owner.
_NAMES, _OWNERS = ("prefix", "token", "name", "size", "user_id", "person"), ("person", "owner")
# An attacker who writes many rows must not fill the change log.
_MAX_FORGED_ROWS, _MAX_LOGGED_AT_ONCE = 1000, 20


def add_mac(tx: Transaction, table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a new row with its MAC."""
    return {**values, "mac": _get_signing_key(tx).create_mac(encode_row(table, values))}


def amend_with_mac(
    tx: Transaction, table: Table, row: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the changed values of a row with the MAC of the whole row.

    The row must be locked: a concurrent change would make the MAC wrong.
    """
    return {
        **values,
        "mac": _get_signing_key(tx).create_mac(encode_row(table, {**row._asdict(), **values})),
    }


def is_mac_valid(tx: Transaction, table: Table, row: Any) -> bool:
    """Return whether Keyturn wrote the row as it is. row: all columns of the table."""
    key = _get_signing_key(tx)
    try:
        expected = compute_mac(key, table, row)
    except (TypeError, ValueError):
        # SQLite stores values of any type in any column.
        expected = ""
    if expected and hmac.compare_digest(expected.encode(), str(row.mac).encode(errors="replace")):
        return True
    values = row._asdict()
    name = next(str(values[each]) for each in _NAMES if each in values)[:_NAME_LENGTH]
    owner = next((str(values[each]) for each in _OWNERS if each in values), "Keyturn")[:64]
    _remember_forged_row(key, (table.name, name, owner))
    return False


def compute_mac(key: SigningKey, table: Table, row: Any) -> str:
    """Return the MAC of a row with this key."""
    return key.create_mac(encode_row(table, row._asdict()))


def remac_rows(tx: Transaction, table: Table, new_key: SigningKey) -> None:
    """Give the rows of a table that Keyturn wrote a MAC by a new signing key."""
    for row in tx.sql.execute(select(table)).all():
        if is_mac_valid(tx, table, row):
            named = [column == getattr(row, column.name) for column in table.primary_key]
            values = {"mac": compute_mac(new_key, table, row)}
            tx.sql.execute(update(table).where(*named).values(values))


def log_forged_rows(tx: Transaction) -> None:
    """Append the forged rows that were detected since the last call to the change log."""
    forged_rows = tx.signing_key.forged_rows
    new = [row for row, is_logged in forged_rows.items() if not is_logged][:_MAX_LOGGED_AT_ONCE]
    for table, name, owner in new:
        change_log.append_entry(tx, events.ForgeryRefused(what=table, name=name, owner=owner))
    if new:
        tx.after_commit(lambda: forged_rows.update(dict.fromkeys(new, True)))


def _remember_forged_row(key: SigningKey, forged_row: tuple[str, str, str]) -> None:
    if forged_row in key.forged_rows or len(key.forged_rows) >= _MAX_FORGED_ROWS:
        return
    key.forged_rows[forged_row] = False
    log.critical(
        "the %s %s of %s was not written by Keyturn: the database may have been altered. The row "
        "does not count",
        *forged_row,
    )


def _get_signing_key(tx: Transaction) -> SigningKey:
    if tx.stamping is None:
        raise StoreUnavailable(
            "the signing key of the change log is not loaded: no one can sign in"
        )
    return tx.stamping


def encode_row(table: Table, values: Mapping[str, Any]) -> str:
    """Encode a row for its MAC. Null values are left out, so a new column changes no MAC."""
    encoded = {
        name: value
        for name, value in values.items()
        if name not in _COLUMNS_WITHOUT_MAC and value is not None
    }
    return encode_canonical({"table": table.name, "row": encoded})

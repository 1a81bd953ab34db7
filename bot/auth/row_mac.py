"""Stamps: a row that lets somebody in says who wrote it.

Whoever can write to the database could write a session, a link or a token for somebody else, or
alter whose one is, how long it lasts and what it is for. Each such row has a stamp over all that
it says, by a key that is derived from that of the change log and is not in the database. A row
whose stamp is not ours is none: it opens nothing, and the change log tells of it.
"""

import hmac
import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table

from bot.audit import change_log
from bot.db.database import StoreUnavailable, Transaction
from bot.model.canonical import encode_canonical
from bot.model.signing import SigningKey

log = logging.getLogger(__name__)

FORGERY_REFUSED = "forgery refused"
# The database gives the number, and nothing is found by it that a prefix or a hash does not bind.
_COLUMNS_WITHOUT_MAC = frozenset({"id", "mac"})
_NAME_LENGTH = 16
# Whoever writes such rows by the thousand has the log tell of as many, and no more at once.
_MOST_DOUBTED, _MOST_AT_ONCE = 1000, 20


def add_mac(tx: Transaction, table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a new row with their stamp."""
    return {**values, "mac": _get_signing_key(tx).create_mac(encode_row(table, values))}


def amend_with_mac(
    tx: Transaction, table: Table, row: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a row that holds is to say from now on, with the stamp of all that it says then.

    Keep others from changing it meanwhile, or the stamp is of what it does not say.
    """
    return {
        **values,
        "mac": _get_signing_key(tx).create_mac(encode_row(table, {**row._asdict(), **values})),
    }


def is_mac_valid(tx: Transaction, table: Table, row: Any) -> bool:
    """Say whether we wrote the row as it is. row: all columns of the table, by their names."""
    key = _get_signing_key(tx)
    try:
        wanted = compute_mac(key, table, row)
    except (TypeError, ValueError):
        # SQLite keeps whatever it is given in whichever column.
        wanted = ""
    if wanted and hmac.compare_digest(wanted.encode(), str(row.mac).encode(errors="replace")):
        return True
    told = row._asdict()
    name = str(told.get("prefix") or told["token"])[:_NAME_LENGTH]
    _note_forged_row(key, (table.name, name, str(told["person"])[:64]))
    return False


def compute_mac(key: SigningKey, table: Table, row: Any) -> str:
    """Return the stamp that a row has by this key."""
    return key.create_mac(encode_row(table, row._asdict()))


def log_forged_rows(tx: Transaction) -> None:
    """Tell the change log of the rows that were found since it was told last."""
    doubted = tx.seal.doubted_rows
    untold = [doubt for doubt, told in doubted.items() if not told][:_MOST_AT_ONCE]
    for what, name, whose in untold:
        change_log.append_entry(tx, FORGERY_REFUSED, what=what, name=name, owner=whose)
    if untold:
        tx.after_commit(lambda: doubted.update(dict.fromkeys(untold, True)))


def _note_forged_row(key: SigningKey, forged_row: tuple[str, str, str]) -> None:
    if forged_row in key.doubted_rows or len(key.doubted_rows) >= _MOST_DOUBTED:
        return
    key.doubted_rows[forged_row] = False
    log.critical(
        "the %s %s of %s was not written by Keyturn as it is: somebody may have altered the "
        "database. It opens nothing",
        *forged_row,
    )


def _get_signing_key(tx: Transaction) -> SigningKey:
    if tx.stamping is None:
        raise StoreUnavailable("the key of the change log is not here: nobody can be let in")
    return tx.stamping


def encode_row(table: Table, values: Mapping[str, Any]) -> str:
    """Write down what a row says. What is empty is left out: a column more changes no stamp."""
    said = {
        name: value
        for name, value in values.items()
        if name not in _COLUMNS_WITHOUT_MAC and value is not None
    }
    return encode_canonical({"table": table.name, "row": said})

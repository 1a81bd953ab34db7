"""What somebody who can write to the database can do to the change log, for tests."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, insert

from bot.audit import change_log
from bot.audit.change_log import Entry, EntryDraft
from bot.audit.checkpoints import Checkpoint, name_log, parse_note, sign_checkpoint
from bot.audit.event_type import UnknownEvent
from bot.db import tables
from bot.db.database import Database, Transaction
from bot.model.canonical import encode_canonical
from bot.model.merkle import Tile, Tree
from bot.model.signing import SigningKey

_BATCH = 500
_ALL = 1_000_000
_LOG = (tables.entry, tables.tile)


def entries_of(database: Database) -> list[Entry]:
    with database.reading() as tx:
        return change_log.list_entries_after(tx, 0, limit=_ALL)


def append_entries(database: Database, count: int) -> None:
    """Let Keyturn append so many entries, in transactions that a busy machine ends in time."""
    draft = EntryDraft(UnknownEvent(kind="noted"))
    for first in range(0, count, _BATCH):
        with database.transaction() as tx:
            change_log.append_entries(tx, [draft] * min(_BATCH, count - first))


def rehash(entries: Sequence[Entry]) -> list[Entry]:
    """Number the entries, and make every hash fit again."""
    numbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries, start=1)]
    return [
        replace(entry, hash=change_log.hash_entry([*vars(entry).values()])) for entry in numbered
    ]


def drop_triggers(database: Database) -> None:
    with database.engine.connect() as connection:
        for table in _LOG:
            if database.embedded:
                for verb in ("update", "delete"):
                    connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {table.name}_no_{verb}")
            else:
                connection.exec_driver_sql(
                    f"DROP TRIGGER IF EXISTS {table.name}_append_only ON {table.name}"
                )


def rewrite(database: Database, entries: Sequence[Entry], key: SigningKey | None = None) -> None:
    """Put these entries in the place of the log, with tiles that fit.

    key: signs a checkpoint of each entry. Without one, the checkpoints stay as they are, up to the
    last entry.
    """
    with database.reading() as tx, change_log.read_rows(tx) as rows:
        points = {row[0]: point for row in rows if row[-1] and (point := parse_note(row[-1]))}
    drop_triggers(database)
    tiles: list[Tile] = []
    tree = Tree()
    origin = name_log(change_log.get_added_key(entries[0])) if entries else ""
    for entry in entries:
        tree = tree.add_leaves([_get_leaf(entry)], tiles)
        if key is not None:
            points[entry.seq] = sign_checkpoint(origin, tree, entry.at, [key])
    with database.engine.connect() as connection:
        if database.embedded:
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.execute(delete(tables.entry))
        connection.execute(delete(tables.tile))
        for entry in entries:
            _insert_entry(connection, entry, points.get(entry.seq))
        for tile in tiles:
            connection.execute(
                insert(tables.tile).values(
                    level=tile.level, number=tile.number, hash=tile.hash.hex()
                )
            )
        connection.commit()


def _insert_entry(connection: Connection, entry: Entry, point: Checkpoint | None) -> None:
    note = point.note if point else None
    connection.execute(insert(tables.entry).values(**vars(entry), note=note))


def _get_leaf(entry: Entry) -> bytes:
    try:
        return bytes.fromhex(entry.hash)
    except ValueError:
        return b""


def forge_entries(tx: Transaction, *drafts: EntryDraft) -> list[Entry]:
    """Add entries with a checkpoint by another key than ours."""
    entries = change_log.list_entries_after(tx, 0, limit=_ALL)
    forged = [
        Entry(0, tx.now, one.event.kind, one.run, one.person, one.host, _encode_facts(one), "")
        for one in drafts
    ]
    entries = rehash([*entries, *forged])
    tree = Tree().add_leaves(_get_leaf(entry) for entry in entries)
    origin = name_log(change_log.get_added_key(entries[0]))
    point = sign_checkpoint(origin, tree, tx.now, [SigningKey.create()])
    added = entries[-len(forged) :]
    for entry in added:
        _insert_entry(tx.sql, entry, point if entry.seq == point.size else None)
    return added


def _encode_facts(draft: EntryDraft) -> str:
    return encode_canonical(draft.event.encode())


def trust_the_database(tx: Transaction, _newest: object, _durable: Tree) -> tuple[Tree, str]:
    """Return the tree of the rows as they are, whatever is signed."""
    size = len(change_log.list_entries_after(tx, 0, limit=_ALL))
    point = change_log.get_newest_checkpoint(tx)
    return change_log.build_tree(tx, size), point.origin if point else ""

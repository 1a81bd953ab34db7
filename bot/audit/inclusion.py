"""Which entries are in the tree that our key signed.

A row that someone added to the database, or altered, is not. An entry is shown to be in the tree
by the tile that holds its hash: 256 hashes, whose root is in the tile above, and so on up to the
root. Each tile is verified once; after that its hashes are known to this process.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from bot.audit import change_log
from bot.audit.change_log import Entry, LogAlteredError
from bot.db.database import SeenHead, Transaction
from bot.model.merkle import TILE_HEIGHT, TILE_WIDTH, Tree

# 8 KiB each.
_MAX_TILES = 512


@lru_cache(64, typed=True)
def _is_hash_valid_cached(*row: Any) -> bool:
    """Return whether the content of an entry has its hash.

    The cache key is the whole entry, not its hash, so an altered entry is checked again. Cached
    because the entries of a request for hundreds of hosts are long.
    """
    return change_log.is_hash_valid(row)


class _VerifiedTiles:
    """The hashes of tiles that lead to a durable root, the most recently used of them."""

    def __init__(self) -> None:
        self._tiles: OrderedDict[tuple[int, int], Sequence[bytes]] = OrderedDict()
        self._lock = Lock()

    def get(self, level: int, number: int, position: int) -> bytes | None:
        with self._lock:
            hashes = self._tiles.get((level, number), ())
            if position >= len(hashes):
                return None
            self._tiles.move_to_end((level, number))
            return hashes[position]

    def add(self, level: int, number: int, hashes: Sequence[bytes]) -> None:
        with self._lock:
            self._tiles[level, number] = hashes
            self._tiles.move_to_end((level, number))
            if len(self._tiles) > _MAX_TILES:
                self._tiles.popitem(last=False)


# One for each database that this process has opened.
_TILES: WeakKeyDictionary[SeenHead, _VerifiedTiles] = WeakKeyDictionary()


def list_vouched_entries(tx: Transaction, entries: Iterable[Entry]) -> list[Entry]:
    """Return those of the entries that have their hash and are in the tree that our key signed.

    Without a signing key this process only reads and decides nothing: all are returned. Raises
    LogAlteredError.
    """
    if not tx.can_sign:
        return list(entries)
    intact = [entry for entry in entries if _is_hash_valid_cached(*vars(entry).values())]
    if not intact:
        return []
    newest = max(entry.seq for entry in intact)
    tree = change_log.get_verified_tree(tx, covering=newest)
    tiles = _TILES.setdefault(tx.seen_head, _VerifiedTiles())
    return _list_included(tx, tree, tiles, intact)


def list_included_entries(tx: Transaction, tree: Tree, entries: Sequence[Entry]) -> list[Entry]:
    """Return those of the entries whose hash is in this tree.

    Raises LogAlteredError if the stored hashes do not lead to its root.
    """
    return _list_included(tx, tree, _VerifiedTiles(), entries)


def _list_included(
    tx: Transaction, tree: Tree, tiles: _VerifiedTiles, entries: Sequence[Entry]
) -> list[Entry]:
    return [
        entry
        for entry in entries
        if 0 < entry.seq <= tree.size
        and _find_hash(tx, tree, tiles, 0, entry.seq - 1).hex() == entry.hash
    ]


def _find_hash(
    tx: Transaction, tree: Tree, tiles: _VerifiedTiles, level: int, index: int
) -> bytes:
    """Return the hash at this position of a level, which leads to the root."""
    number, position = divmod(index, TILE_WIDTH)
    if (known := tiles.get(level, number, position)) is not None:
        return known
    first = number * TILE_WIDTH
    end = min(first + TILE_WIDTH, tree.size >> level * TILE_HEIGHT)
    hashes = change_log.read_hashes(tx, level, first, end)
    part = Tree().add_leaves(hashes)
    expected = (
        (_find_hash(tx, tree, tiles, level + 1, number),)
        if end - first == TILE_WIDTH
        else tree.get_edge_of_level(level)
    )
    if part.edge != expected:
        step = 1 << level * TILE_HEIGHT
        raise LogAlteredError(
            f"entries {first * step + 1} to {end * step} are not those that Keyturn wrote"
        )
    # What is not durable may be rolled back, and other entries may take its place.
    if end << level * TILE_HEIGHT <= tx.seen_head.tree.size:
        tiles.add(level, number, hashes)
    return hashes[position]

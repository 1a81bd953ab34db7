"""The change log as static files that tools of other logs read: https://c2sp.org/tlog-tiles.

A bundle holds 256 entries, a tile 256 hashes. A directory of them on any web server is a log.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bot.audit import change_log
from bot.audit.change_log import LogAlteredError
from bot.audit.checkpoints import Checkpoint, parse_note
from bot.db import cosignatures
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError
from bot.model.merkle import TILE_WIDTH, Tree, hash_leaf

_CHECKPOINT_FILE = "checkpoint"


def write_tiles(
    tx: Transaction, directory: Path, report_progress: Callable[[int], None]
) -> Checkpoint:
    """Write all entries and tiles, and then the checkpoint that signs them; return it.

    Into an older export of the same log, it adds what is new. Raises InvalidRequestError, and
    LogAlteredError if the entries do not have the root of the checkpoint.
    """
    point = change_log.get_newest_checkpoint(tx)
    if point is None:
        raise InvalidRequestError("the change log is empty: there is nothing to export")
    point = change_log.add_cosignatures(tx, point)
    _check_directory(directory, point)
    writer = _TileWriter(directory)
    with change_log.read_rows(tx) as rows:
        for *row, _ in rows:
            writer.add_entry(change_log.encode_entry(row))
            report_progress(1)
    if (writer.size, writer.compute_root()) != (point.size, point.root):
        raise LogAlteredError(f"its entries do not have the root of the checkpoint {point.size}")
    writer.write_partial_tiles()
    _write_time_stamps(tx, directory)
    # Last, and at once: readers see the older log until then.
    new = directory / f"{_CHECKPOINT_FILE}.new"
    new.write_text(point.note)
    new.rename(directory / _CHECKPOINT_FILE)
    return point


def _write_time_stamps(tx: Transaction, directory: Path) -> None:
    """Write each stamp, beside the text that it is of, as `openssl ts -verify` reads them."""
    for size, stamp in list(cosignatures.iterate_time_stamps(tx)):
        point = change_log.get_checkpoint(tx, size)
        if point is not None:
            file = directory / "time-stamps" / str(size)
            file.parent.mkdir(exist_ok=True)
            file.with_suffix(".txt").write_text(point.text)
            file.with_suffix(".tsr").write_bytes(b64decode(stamp))


def _check_directory(directory: Path, point: Checkpoint) -> None:
    """Raise InvalidRequestError if the directory holds something else than this log."""
    older = None
    with suppress(FileNotFoundError, UnicodeDecodeError):
        older = parse_note((directory / _CHECKPOINT_FILE).read_text())
    if directory.exists() and any(directory.iterdir()):
        if older is None:
            raise InvalidRequestError(f"{directory} holds other files: name a new directory")
        if older.origin != point.origin:
            raise InvalidRequestError(f"{directory} holds the log {older.origin}: name another")


class _TileWriter:
    """Writes bundles and tiles as they become full."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.size = 0
        self._bundle: list[bytes] = []
        # Of each level, the hashes of the tile that is not full yet, and the number of full ones.
        self._hashes: list[list[bytes]] = []
        self._full: list[int] = []
        self._tree = Tree()

    def add_entry(self, content: bytes) -> None:
        self.size += 1
        self._bundle.append(len(content).to_bytes(2, "big") + content)
        if len(self._bundle) == TILE_WIDTH:
            self._write("entries", self.size // TILE_WIDTH - 1, self._bundle)
            self._bundle = []
        self._add_hash(0, hash_leaf(content))

    def compute_root(self) -> str:
        return change_log.encode_root(self._tree.add_leaves(self._hashes[0]))

    def _add_hash(self, level: int, node: bytes) -> None:
        if level == len(self._hashes):
            self._hashes.append([])
            self._full.append(0)
        hashes = self._hashes[level]
        hashes.append(node)
        if len(hashes) < TILE_WIDTH:
            return
        if not level:
            self._tree = self._tree.add_leaves(hashes)
        self._write(str(level), self._full[level], hashes)
        self._hashes[level], self._full[level] = [], self._full[level] + 1
        self._add_hash(level + 1, Tree().add_leaves(hashes).root)

    def write_partial_tiles(self) -> None:
        if self._bundle:
            self._write("entries", self.size // TILE_WIDTH, self._bundle)
        for level, hashes in enumerate(self._hashes):
            if hashes:
                self._write(str(level), self._full[level], hashes)

    def _write(self, level: str, number: int, pieces: Sequence[bytes]) -> None:
        name = name_tile(level, number, len(pieces))
        file = self._directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(pieces))


def name_tile(level: str, number: int, width: int) -> str:
    """Return the path of a tile. level: or "entries" for a bundle. width: how much is in it."""
    path = f"{number % 1000:03}"
    while number := number // 1000:
        path = f"x{number % 1000:03}/{path}"
    return f"tile/{level}/{path}" + ("" if width == TILE_WIDTH else f".p/{width}")

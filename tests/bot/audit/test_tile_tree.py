"""The log as files of tlog-tiles, which tools of others accept."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log, tile_tree
from bot.audit.change_log import LogAlteredError
from bot.audit.checkpoints import Checkpoint, is_signed_by
from bot.audit.tile_tree import name_tile
from bot.db import tables
from bot.db.database import Database
from bot.model.errors import InvalidRequestError
from bot.model.verifier_keys import list_cosignatures, parse_signed_note, parse_verifier_key
from bot.queries import log_formats
from tests.bot.audit.fixed_log import KEY, write_fixed_log
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.databases import create_sqlite_database
from tests.bot.rewritten_log import drop_triggers, entries_of, rehash, rewrite

Write = Callable[[int], Checkpoint]

# fsck of github.com/transparency-dev/tessera v1.0.4 accepted these files of 300 entries.
ACCEPTED_ROOT = "gH9W2TqI4MGmKJSFJaozhsRbQpXpsmkjQdKRz+3y1HE="
ACCEPTED_FILES = "f7d0420b0f77ed12b029149a2d786f2db7205f298da451ae76b9ea4bd9111a02"
# litewitness of filippo.io/torchwood v0.6.1 cosigned their checkpoint.
LITEWITNESS_KEY = "litewitness.example/w1+fa8f4771+BA+gYPlRL6XHI1tiZuIUxjDY4BtX21/S1TARSl5Q/Me+"
LITEWITNESS_LINE = (
    "— litewitness.example/w1 +o9HcQAAAABrC1rM5w/welXQfJM2bEcQ2EY8wu5ddqsBmh9dKznsJ9Hr2ND4tf3ul"
    "iuPHjVcpsftkhxyidvcxc5oJBTqiDH3hzkdCw==\n"
)


@pytest.fixture
def database(tmp_path: Path) -> Generator[Database]:
    database = create_sqlite_database(tmp_path / "keyturn.db", KEY)
    yield database
    database.close()


@pytest.fixture
def write(tmp_path: Path, database: Database) -> Write:
    def write(size: int) -> Checkpoint:
        write_fixed_log(database, size)
        return _export(database, tmp_path / "tiles")

    return write


def _export(database: Database, directory: Path) -> Checkpoint:
    with database.reading() as tx:
        return tile_tree.write_tiles(tx, directory, lambda _: None)


def hash_files(directory: Path) -> str:
    """Return a digest of the names and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(one for one in directory.rglob("*") if one.is_file()):
        digest.update(f"{file.relative_to(directory)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def list_files(directory: Path) -> set[str]:
    found = (one for one in directory.rglob("*") if one.is_file())
    return {str(one.relative_to(directory)) for one in found}


def test_files_are_those_that_fsck_of_tessera_accepted(tmp_path: Path, write: Write) -> None:
    assert write(300).root == ACCEPTED_ROOT
    assert hash_files(tmp_path / "tiles") == ACCEPTED_FILES


def test_cosignature_of_litewitness_verifies(write: Write) -> None:
    point = write(300)
    note = parse_signed_note(f"{point.note}{LITEWITNESS_LINE}")
    assert note is not None
    key = parse_verifier_key(LITEWITNESS_KEY)
    [signed] = list_cosignatures(note.text, note.signatures, [key])
    assert (signed.name, signed.line) == ("litewitness.example/w1", LITEWITNESS_LINE)
    assert list_cosignatures(note.text.replace("300", "299"), note.signatures, [key]) == []


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (1, {"tile/0/000.p/1", "tile/entries/000.p/1"}),
        (255, {"tile/0/000.p/255", "tile/entries/000.p/255"}),
        (256, {"tile/0/000", "tile/entries/000", "tile/1/000.p/1"}),
        (
            257,
            {
                *("tile/0/000", "tile/entries/000", "tile/1/000.p/1"),
                *("tile/0/001.p/1", "tile/entries/001.p/1"),
            },
        ),
    ],
)
def test_tiles_are_full_or_partial(
    tmp_path: Path, write: Write, size: int, names: set[str]
) -> None:
    point = write(size)
    assert list_files(tmp_path / "tiles") == names | {"checkpoint"}
    assert (tmp_path / "tiles" / "checkpoint").read_text() == point.note
    assert is_signed_by(point, KEY.public_key)


# The example of https://c2sp.org/tlog-tiles.
def test_names_of_tiles_are_those_of_the_specification() -> None:
    assert name_tile("0", 1_234_067, 256) == "tile/0/x001/x234/067"
    assert name_tile("entries", 5, 7) == "tile/entries/005.p/7"


def test_later_export_adds_to_an_older_one(tmp_path: Path, write: Write) -> None:
    write(200)
    assert write(300).size == 300
    files = list_files(tmp_path / "tiles")
    assert {"tile/0/000.p/200", "tile/0/000", "tile/0/001.p/44"} <= files


@pytest.mark.parametrize("name", ["checkpoint", "holiday.jpg"])
def test_directory_with_other_files_is_refused(
    tmp_path: Path, database: Database, name: str
) -> None:
    write_fixed_log(database, 3)
    directory = tmp_path / "other"
    directory.mkdir()
    (directory / name).write_text("no checkpoint")
    with pytest.raises(InvalidRequestError, match="holds other files"):
        _export(database, directory)
    assert list_files(directory) == {name}


def test_directory_of_another_log_is_refused(tmp_path: Path, write: Write) -> None:
    note = write(3).note
    file = tmp_path / "tiles" / "checkpoint"
    file.write_text(note.replace("keyturn/", "keyturn/other"))
    with pytest.raises(InvalidRequestError, match="holds the log keyturn/other"):
        write(4)


def test_altered_entry_is_not_exported_under_a_checkpoint(
    tmp_path: Path, database: Database
) -> None:
    write_fixed_log(database, 10)
    drop_triggers(database)
    with database.engine.connect() as connection:
        row = tables.entry
        connection.execute(update(row).where(row.c.seq == 5).values(person="olga"))
        connection.commit()
    with pytest.raises(LogAlteredError, match="do not have the root of the checkpoint 10"):
        _export(database, tmp_path / "tiles")
    assert not (tmp_path / "tiles" / "checkpoint").exists()


@pytest.mark.parametrize("extra", [0, 1])
def test_entry_that_is_too_long_for_a_bundle_is_held_by_its_hash(
    tmp_path: Path, database: Database, extra: int
) -> None:
    write_fixed_log(database, 3)
    entries = [*entries_of(database)]
    room = 0xFFFF - len(change_log.encode_entry([*vars(replace(entries[1], body="")).values()]))
    entries[1] = replace(entries[1], body="w" * (room + extra))
    rewrite(database, rehash(entries), KEY)
    _export(database, tmp_path / "tiles")
    bundle = (tmp_path / "tiles" / "tile" / "entries" / "000.p" / "3").read_bytes()
    assert (b'"body_sha256":"' in bundle) == bool(extra)
    # The verifier that shares no code with the service finds the same hash.
    with database.reading() as tx:
        text = "".join(map(log_formats.format_archive_json, log_formats.iterate_export(tx)))
    (tmp_path / "log.jsonl").write_text(text)
    command = [sys.executable, str(VERIFIER), str(tmp_path / "log.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("3 entries, log intact"), done.stderr
    (tmp_path / "log.jsonl").write_text(text.replace("wwww", "wwwv", 1))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BROKEN at entry 2" in done.stderr


def test_empty_log_is_refused(tmp_path: Path, database: Database) -> None:
    with pytest.raises(InvalidRequestError, match="is empty"):
        _export(database, tmp_path / "tiles")

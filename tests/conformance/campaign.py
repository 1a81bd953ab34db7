"""What is tried: an untouched log, and each way to tamper with it."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bot.audit import change_log, tile_tree, verification
from bot.audit.change_log import EntryDraft
from bot.audit.events import Claimed
from bot.db.database import Database
from bot.integrations.witnesses import Witnesses
from bot.model.signing import SigningKey
from bot.model.verifier_keys import VerifierKey
from tests.bot.databases import create_sqlite_database, skip_fsync
from tests.bot.harness import open_harness
from tests.bot.rewritten_log import entries_of, rehash, rewrite
from tests.conformance.foreign_tools import check_tiles, run_litewitness
from tests.toy import SetSwitch

# What was tried, what the tool said ("" if it accepted), and whether it should accept.
Result = tuple[str, str, bool]
_ENTRIES = 600


def run_campaign(tools: Path, directory: Path) -> Iterator[Result]:
    """Yield what each tool says about the log of a service that has done something."""
    key, file = SigningKey.create(), directory / "keyturn.db"
    with open_harness(directory, database=create_sqlite_database(file, key)) as harness:
        with harness.database.transaction() as tx:
            verification.open_log(tx)
        harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        with harness.database.transaction() as tx:
            drafts = [EntryDraft(Claimed(worker="w", fence=n), run=1) for n in range(_ENTRIES)]
            change_log.append_entries(tx, drafts)
        with harness.database.reading() as tx:
            log = verification.get_verifier_key(tx)
            tile_tree.write_tiles(tx, directory / "tiles", lambda _: None)
        if log is None:
            raise RuntimeError("the log has no key")
        yield from try_tiles(tools, directory, log)
        yield from _try_witness(tools, directory, harness.database, key, log)


def try_tiles(tools: Path, directory: Path, log: VerifierKey) -> Iterator[Result]:
    """Yield what fsck says about an export, and about copies of it that were altered."""
    tiles = directory / "tiles"
    yield "fsck: an untouched export", check_tiles(tools, tiles, log), True
    for what, tamper in TAMPERINGS.items():
        copy = directory / "tampered"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tiles, copy)
        tamper(copy)
        yield f"fsck: {what}", check_tiles(tools, copy, log), False


def _flip(path: str, place: int) -> Callable[[Path], None]:
    """Return what alters one byte of a file. path: a pattern. place: of the byte."""

    def flip(copy: Path) -> None:
        file = next(iter(sorted(copy.glob(path))))
        content = bytearray(file.read_bytes())
        content[place] ^= 1
        file.write_bytes(content)

    return flip


def _drop_entry(copy: Path) -> None:
    file = next(iter(sorted(copy.glob("tile/entries/000"))))
    content = file.read_bytes()
    file.write_bytes(content[2 + int.from_bytes(content[:2], "big") :])


def _drop_bundle(copy: Path) -> None:
    (copy / "tile" / "entries" / "001").unlink()


def _edit_checkpoint(line: int, text: str) -> Callable[[Path], None]:
    def edit(copy: Path) -> None:
        file = copy / "checkpoint"
        lines = file.read_text().split("\n")
        lines[line] = text
        file.write_text("\n".join(lines))

    return edit


TAMPERINGS: Mapping[str, Callable[[Path], None]] = {
    "one byte of an entry": _flip("tile/entries/000", 40),
    "one byte of the last entry": _flip("tile/entries/*.p/*", -3),
    "a missing entry": _drop_entry,
    "a missing bundle": _drop_bundle,
    "one byte of a tile": _flip("tile/0/000", 100),
    "one byte of the last tile": _flip("tile/0/*.p/*", -1),
    "one byte of an upper tile": _flip("tile/1/*.p/*", 5),
    "another size in the checkpoint": _edit_checkpoint(1, "512"),
    "another root in the checkpoint": _edit_checkpoint(2, f"{'A' * 43}="),
    "another log in the checkpoint": _edit_checkpoint(0, "keyturn/0011223344556677"),
    "no signature in the checkpoint": _edit_checkpoint(4, ""),
}


def _try_witness(
    tools: Path, directory: Path, database: Database, key: SigningKey, log: VerifierKey
) -> Iterator[Result]:
    with run_litewitness(tools, directory, log) as address:
        witnesses = Witnesses(database, [address])
        yield "litewitness: a log that it has not seen", _ask(witnesses, database), True
        with database.transaction() as tx:
            change_log.append_entry(tx, Claimed(worker="w", fence=9), run=1)
        yield "litewitness: the log continued", _ask(witnesses, database), True
        witnesses.close()
        again = Witnesses(database, [address])
        yield "litewitness: after a restart of Keyturn", _ask(again, database), True
        again.close()
        entries = entries_of(database)
        histories = {
            "a rewritten entry": rehash([entries[0], replace(entries[1], at=1), *entries[2:]]),
            "a missing entry": rehash([*entries[:100], *entries[101:], entries[-1]]),
            "a log that was cut off": entries[:300],
        }
        for what, history in histories.items():
            copy = _copy_database(database, directory / "copy.db", key)
            rewrite(copy, history, key)
            forged = Witnesses(copy, [address])
            yield f"litewitness: {what}, signed with the stolen key", _ask(forged, copy), False
            forged.close()
            copy.close()


def _copy_database(database: Database, file: Path, key: SigningKey) -> Database:
    file.unlink(missing_ok=True)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("VACUUM INTO ?", (str(file),))
    return skip_fsync(Database(f"sqlite:///{file}", key))


def _ask(witnesses: Witnesses, database: Database) -> str:
    with database.reading() as tx:
        size = change_log.get_head(tx)[0]
    found = witnesses.collect_cosignatures(size, 1)
    problems = [one.problem for one in witnesses.list_states() if one.problem]
    return "" if found.is_enough else "; ".join(problems)

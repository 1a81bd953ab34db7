"""What is kept: settings file, keys, database, change log and witness."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bot.custody import condition
from bot.doctor.patient import Patient
from bot.finding import Finding, mend, note, ok
from bot.store import rights, schema, seal, verification, witness
from bot.store.database import Database, StoreUnavailable
from bot.store.keyfile import BadKey
from connectors.permissions import find_reader

_TAIL = 500
_KEYS = {
    "changelog.key": "the key of the change log",
    "secrets.key": "the key of second factors",
}


def findings(patient: Patient) -> Iterator[Finding]:
    if finding := _settings_file(patient.settings_file):
        yield finding
    for name, about in _KEYS.items():
        yield _key(patient.keys / name, about)
    yield from _database(patient)


def _settings_file(file: Path) -> Finding | None:
    """Look at who can read the file in which secrets may stand."""
    trouble = find_reader(file) if file.exists() else ""
    return mend("the settings", trouble) if trouble else None


def _key(file: Path, about: str) -> Finding:
    if not file.exists():
        return note(about, f"is not there yet: the first start makes {file}")
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        return mend(about, f"{file} can be read by others (mode {mode:o}): chmod 600 it")
    if not os.access(file, os.R_OK):
        return mend(
            about, f"{file} is not ours to read: run this as the user that Keyturn runs as"
        )
    return ok(about, f"is for Keyturn alone: keep a copy of {file} apart from the database")


def _database(patient: Patient) -> Iterator[Finding]:
    file = patient.embedded_file
    if file is not None and not file.exists():
        yield note("the database", f"is not there yet: the first start makes {file}")
        yield from _witness(patient.witness, file)
        return
    database = Database(patient.database, redactor=patient.redactor)
    with closing(database):
        try:
            yield from _of(database, file)
            yield _log(database, patient)
            if patient.distributed:
                yield _sites(database)
        except StoreUnavailable as trouble:
            yield mend("the database", f"{trouble}: does it run, and is KEYTURN_DATABASE right?")
        yield from _witness(patient.witness, file)


def _of(database: Database, file: Path | None) -> Iterator[Finding]:
    with database.reading():
        pass
    if file is not None and not os.access(file, os.W_OK):
        yield mend("the database", f"{file} is not ours to write: whose is it?")
    elif file is not None and _open_to_others(file):
        yield mend("the database", f"{file} can be read by others: chmod 700 {file.parent}")
    elif not schema.is_current(database):
        yield mend("the database", "is behind this version: keyturn db upgrade, or start Keyturn")
    else:
        yield ok("the database", "answers, and has the schema of this version")
    if strong := rights.too_strong(database):
        yield note("our role", f"{', '.join(strong)}: keyturn db grants prints what it needs")


def _open_to_others(file: Path) -> bool:
    """Say whether others can come to it and read it."""
    return bool(file.stat().st_mode & 0o044 and file.parent.stat().st_mode & 0o011)


def _log(database: Database, patient: Patient) -> Finding:
    about = "the change log"
    with database.reading() as tx:
        verdict = verification.verify_tail(tx, most=_TAIL, witnesses=_kept(patient.witness))
    if verdict.broken is not None:
        return mend(
            about,
            f"BROKEN at entry {verdict.broken}: {verdict.why}: change nothing, keep a copy, and "
            "find out with keyturn changelog verify",
        )
    key = patient.keys / "changelog.key"
    try:
        ours = seal.kept_in(key).public if key.exists() else verdict.key
    except BadKey as trouble:
        return mend(about, str(trouble))
    if verdict.key and ours != verdict.key:
        return mend(about, f"was sealed by another key than {key}: put the right one back")
    tail = "is empty" if not verdict.entries else "verifies at its end"
    return ok(about, f"{tail}: {verdict.entries} entries")


def _sites(database: Database) -> Finding:
    with database.reading() as tx:
        found = condition.sites(tx)
    return Finding("the sites", found.mark, found.said)


def _kept(file: Path | None) -> list[witness.Checkpoint]:
    """Return the newest checkpoint of the witness, if there is one."""
    try:
        return witness.read(file)[-1:] if file else []
    except (OSError, ValueError):
        return []


def _witness(file: Path | None, database: Path | None) -> Iterator[Finding]:
    about = "the witness"
    if file is None:
        yield note(
            about,
            "there is no file for checkpoints (KEYTURN_WITNESS): whoever can rewrite the database "
            "could cut its end off, and only chat and hosts would know",
        )
        return
    there = file if file.exists() else file.parent
    if file.is_dir():
        yield mend(
            about, f"{file} is a directory: name a file in it, such as {file / 'keyturn.log'}"
        )
    elif not os.access(there, os.W_OK):
        yield mend(about, f"{there} cannot be written by us: make it so, or set another file")
    elif database is not None and _disk(there) == _disk(database):
        yield note(about, f"{file} is on the disk of the database: what rewrites one reaches both")
    else:
        yield ok(about, f"{file} can be written")


def _disk(path: Path) -> int:
    there = path if path.exists() else path.parent
    return there.stat().st_dev if there.exists() else -1

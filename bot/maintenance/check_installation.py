"""Check an installation: settings, policy, keys, database, log, doors, hosts."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bot import health
from bot.audit import checkpoints, verification
from bot.db import migrations, roles
from bot.db.database import Database, StoreUnavailable
from bot.hosts.live_check import check_hosts
from bot.maintenance.installation import Installation
from bot.model import signing
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.model.keyfile import KeyFileError
from bot.policy import NoPolicyError, Policy
from bot.policy.loader import check_access, load_policy
from connectors.fleet import Fleet
from connectors.permissions import find_reader
from connectors.ssh_pool import SshPool

_TAIL = 500
_KEYS = {
    "changelog.key": "the key of the change log",
    "secrets.key": "the key of second factors",
}


def check_records(patient: Installation) -> Iterator[CheckResult]:
    if finding := _settings_file(patient.settings_file):
        yield finding
    for name, about in _KEYS.items():
        yield _key(patient.keys / name, about)
    yield from _database(patient)


def _settings_file(file: Path) -> CheckResult | None:
    """Look at who can read the file in which secrets may stand."""
    trouble = find_reader(file) if file.exists() else ""
    return create_error_result("the settings", trouble) if trouble else None


def _key(file: Path, about: str) -> CheckResult:
    if not file.exists():
        return create_warning_result(about, f"is not there yet: the first start makes {file}")
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        return create_error_result(
            about, f"{file} can be read by others (mode {mode:o}): chmod 600 it"
        )
    if not os.access(file, os.R_OK):
        return create_error_result(
            about, f"{file} is not ours to read: run this as the user that Keyturn runs as"
        )
    return create_ok_result(
        about, f"is for Keyturn alone: keep a copy of {file} apart from the database"
    )


def _database(patient: Installation) -> Iterator[CheckResult]:
    file = patient.embedded_file
    if file is not None and not file.exists():
        yield create_warning_result(
            "the database", f"is not there yet: the first start makes {file}"
        )
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
            yield create_error_result(
                "the database", f"{trouble}: does it run, and is KEYTURN_DATABASE right?"
            )
        yield from _witness(patient.witness, file)


def _of(database: Database, file: Path | None) -> Iterator[CheckResult]:
    with database.reading():
        pass
    if file is not None and not os.access(file, os.W_OK):
        yield create_error_result("the database", f"{file} is not ours to write: whose is it?")
    elif file is not None and _open_to_others(file):
        yield create_error_result(
            "the database", f"{file} can be read by others: chmod 700 {file.parent}"
        )
    elif not migrations.is_schema_current(database):
        yield create_error_result(
            "the database", "is behind this version: keyturn db upgrade, or start Keyturn"
        )
    else:
        yield create_ok_result("the database", "answers, and has the schema of this version")
    if strong := roles.find_excess_rights(database):
        yield create_warning_result(
            "our role", f"{', '.join(strong)}: keyturn db grants prints what it needs"
        )


def _open_to_others(file: Path) -> bool:
    """Say whether others can come to it and read it."""
    return bool(file.stat().st_mode & 0o044 and file.parent.stat().st_mode & 0o011)


def _log(database: Database, patient: Installation) -> CheckResult:
    about = "the change log"
    with database.reading() as tx:
        verdict = verification.verify_newest_entries(
            tx, limit=_TAIL, witnesses=_kept(patient.witness)
        )
    if verdict.broken is not None:
        return create_error_result(
            about,
            f"BROKEN at entry {verdict.broken}: {verdict.why}: change nothing, keep a copy, and "
            "find out with keyturn changelog verify",
        )
    key = patient.keys / "changelog.key"
    try:
        ours = signing.load_signing_key(key).public_key if key.exists() else verdict.key
    except KeyFileError as trouble:
        return create_error_result(about, str(trouble))
    if verdict.key and ours != verdict.key:
        return create_error_result(
            about, f"was sealed by another key than {key}: put the right one back"
        )
    tail = "is empty" if not verdict.entries else "verifies at its end"
    return create_ok_result(about, f"{tail}: {verdict.entries} entries")


def _sites(database: Database) -> CheckResult:
    with database.reading() as tx:
        found = health.check_sites(tx)
    return CheckResult("the sites", found.level, found.message)


def _kept(file: Path | None) -> list[checkpoints.Checkpoint]:
    """Return the newest checkpoint of the witness, if there is one."""
    try:
        return checkpoints.read_checkpoints(file)[-1:] if file else []
    except (OSError, ValueError):
        return []


def _witness(file: Path | None, database: Path | None) -> Iterator[CheckResult]:
    about = "the witness"
    if file is None:
        yield create_warning_result(
            about,
            "there is no file for checkpoints (KEYTURN_WITNESS): whoever can rewrite the database "
            "could cut its end off, and only chat and hosts would know",
        )
        return
    there = file if file.exists() else file.parent
    if file.is_dir():
        yield create_error_result(
            about, f"{file} is a directory: name a file in it, such as {file / 'keyturn.log'}"
        )
    elif not os.access(there, os.W_OK):
        yield create_error_result(
            about, f"{there} cannot be written by us: make it so, or set another file"
        )
    elif database is not None and _disk(there) == _disk(database):
        yield create_warning_result(
            about, f"{file} is on the disk of the database: what rewrites one reaches both"
        )
    else:
        yield create_ok_result(about, f"{file} can be written")


def _disk(path: Path) -> int:
    there = path if path.exists() else path.parent
    return there.stat().st_dev if there.exists() else -1


_MOST_HOSTS_TOLD = 20


# Checks one door of an installation; the policy is None if it is not valid.
DoorCheck = Callable[[Installation, Policy | None], Iterator[CheckResult]]


def check_installation(patient: Installation, doors: Sequence[DoorCheck]) -> Iterator[CheckResult]:
    """Check one thing after the other, and yield each result as it is known.

    Args:
        patient: The installation.
        doors: The checks of the pages and of chat, in the order of their results.
    """
    policy = _policy(patient)
    yield (
        policy
        if isinstance(policy, CheckResult)
        else create_ok_result(
            "the policy",
            f"is valid: {len(policy.organisation.people)} people, "
            f"{len(policy.inventory.hosts)} hosts",
        )
    )
    known = None if isinstance(policy, CheckResult) else policy
    yield from _settings(patient)
    yield from check_records(patient)
    for check_door in doors:
        yield from check_door(patient, known)
    if known is not None:
        yield from _hosts(patient, known)


def _settings(patient: Installation) -> Iterator[CheckResult]:
    for name, meant in patient.misspelt.items():
        yield create_warning_result(
            "the settings", f"{name} is none, so it is ignored: is {meant} meant?"
        )


def _policy(patient: Installation) -> Policy | CheckResult:
    try:
        check_access(patient.policy)
        return load_policy(patient.policy)
    except NoPolicyError as trouble:
        return create_error_result(
            "the policy",
            f"{trouble} (until it is valid, nobody may do anything: keyturn policy check)",
        )


def _hosts(patient: Installation, policy: Policy) -> Iterator[CheckResult]:
    names = list(policy.inventory.hosts)
    if not names:
        yield create_warning_result(
            "the hosts", "there are none yet: keyturn inventory enroll adds the first"
        )
        return
    with closing(Fleet(policy.inventory, SshPool(patient.policy))) as fleet:
        found = sorted(check_hosts(fleet, names), key=lambda each: names.index(each.host))
    sick = [each for each in found if not each.is_healthy]
    for each in sick[:_MOST_HOSTS_TOLD]:
        yield create_error_result(f"host {each.host}", each.error)
    if len(sick) > _MOST_HOSTS_TOLD:
        more = len(sick) - _MOST_HOSTS_TOLD
        yield create_error_result(
            "the hosts", f"{more} more are not well: keyturn inventory check lists them"
        )
    if len(sick) < len(names):
        yield create_ok_result("the hosts", f"{len(names) - len(sick)} of {len(names)} answer")
    for each in found:
        if each.is_healthy and each.advice:
            yield create_warning_result(f"host {each.host}", each.advice)

"""Check an installation: settings, policy, keys, database, change log, pages, chat, hosts."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bot import health
from bot.audit import change_log, checkpoints, verification
from bot.db import migrations, roles
from bot.db.database import Database, StoreUnavailable
from bot.health import CheckWithPolicy
from bot.hosts.live_check import Runbooks, check_hosts
from bot.integrations import witness_file
from bot.integrations.witnesses import Witnesses
from bot.maintenance.installation import Installation
from bot.model import signing
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.model.errors import InvalidRequestError
from bot.model.keyfile import KeyFileError
from bot.model.text import format_count
from bot.model.verifier_keys import WitnessAddress
from bot.policy import NoPolicyError, Policy
from bot.policy.loader import check_access, load_policy
from bot.queries import own_runbooks
from connectors.fleet import Fleet
from connectors.permissions import (
    find_other_owner,
    find_reader,
    find_writer_above,
    list_trusted_owners,
)
from connectors.ssh_pool import SshPool
from runbooks import load_usable_catalogue

_NEWEST_ENTRIES = 500
# Where neither is, there is no policy yet.
_FIRST_FILES = ("people.yaml", "policy.cedar")
_KEYS = {
    "changelog.key": "signing key",
    "secrets.key": "second-factor key",
}


def check_records(
    installation: Installation,
    policy: Policy | None = None,
    policy_checks: Sequence[CheckWithPolicy] = (),
) -> Iterator[CheckResult]:
    if finding := _check_settings_file(installation.settings_file):
        yield finding
    yield from _check_secret_files(installation.secret_files)
    for name, about in _KEYS.items():
        yield _check_key(installation.keys / name, about)
    yield from _check_database(installation, policy, policy_checks)


def _check_settings_file(file: Path) -> CheckResult | None:
    """Check that other users cannot read the settings file, which can hold secrets."""
    problem = find_reader(file) if file.exists() else ""
    return create_error_result("settings", problem) if problem else None


def _check_secret_files(files: Mapping[str, Path]) -> Iterator[CheckResult]:
    """Say of each file with a secret who can read it."""
    for name, file in files.items():
        about = f"secret {name}"
        try:
            problem = find_reader(file)
        except OSError as error:
            yield create_error_result(about, f"cannot read {file}: {error.strerror}")
            continue
        if problem:
            yield create_error_result(about, problem)
        else:
            yield create_ok_result(about, f"{_name_readers(file)} can read {file}")


def _name_readers(file: Path) -> str:
    """Return who can read a file besides root: `user keyturn and group keyturn`."""
    known = file.stat()
    readers = [f"user {file.owner()}"] if known.st_mode & stat.S_IRUSR else []
    readers += [f"group {file.group()}"] if known.st_mode & stat.S_IRGRP else []
    return " and ".join(readers) or "only root"


def _check_key(file: Path, about: str) -> CheckResult:
    if not file.exists():
        return create_warning_result(
            about, f"{file} does not exist yet: the first start creates it"
        )
    known = file.stat()
    mode = known.st_mode & 0o777
    if mode & 0o077:
        return create_error_result(
            about, f"other users can read {file} (mode {mode:o}): chmod 600 {file}"
        )
    # Any user may run this command, so the owner of the directory counts as Keyturn's.
    if known.st_uid != file.parent.stat().st_uid and (other := find_other_owner(file, known)):
        return create_error_result(about, other)
    if not os.access(file, os.R_OK):
        return create_error_result(
            about, f"cannot read {file}: run this command as the user that Keyturn runs as"
        )
    return create_ok_result(
        about, f"only Keyturn can read it: keep a copy of {file} apart from the database"
    )


def _check_database(
    installation: Installation, policy: Policy | None, policy_checks: Sequence[CheckWithPolicy]
) -> Iterator[CheckResult]:
    file = installation.embedded_file
    if file is not None and not file.exists():
        yield create_warning_result(
            "database", f"{file} does not exist yet: the first start creates it"
        )
        yield from _check_witness(installation, file)
        return
    database = Database(
        installation.database, _load_key(installation), redactor=installation.redactor
    )
    with closing(database):
        try:
            yield from _check_schema(database, file)
            yield _check_log(database, installation)
            yield from _check_cosigners(database, installation.witnesses, policy)
            if installation.distributed:
                yield _check_sites(database)
            yield from _check_own_runbooks(database)
            if policy is not None:
                with database.reading() as tx:
                    for check in policy_checks:
                        for one in check(tx, policy):
                            yield replace(one, subject=one.subject.lower())
        except StoreUnavailable as error:
            yield (
                create_error_result("change log", error.public_message)
                if isinstance(error, change_log.LogAlteredError)
                else create_error_result(
                    "database", f"{error}: check that it runs, and check KEYTURN_DATABASE"
                )
            )
        yield from _check_witness(installation, file)


def _load_key(installation: Installation) -> signing.SigningKey | None:
    """Return the signing key, with which entries of the log are checked; None if unusable."""
    key = installation.keys / "changelog.key"
    try:
        return signing.load_signing_key(key) if key.exists() else None
    except (KeyFileError, OSError):
        return None


def _check_schema(database: Database, file: Path | None) -> Iterator[CheckResult]:
    with database.reading():
        pass
    writer = find_writer_above(file.parent) if file is not None else ""
    if file is not None and not os.access(file, os.W_OK):
        yield create_error_result("database", f"cannot write {file}: check its owner")
    elif writer:
        yield create_error_result("database", f"{writer}, or they can replace the database")
    elif file is not None and _is_readable_by_others(file):
        yield create_error_result(
            "database", f"other users can read {file}: chmod 700 {file.parent}"
        )
    elif not migrations.is_schema_current(database):
        yield create_error_result(
            "database",
            "its schema is older than this version: run keyturn db upgrade, or start Keyturn",
        )
    else:
        yield create_ok_result("database", "reachable, schema up to date")
    if excess := roles.find_excess_rights(database):
        yield create_warning_result(
            "database role",
            f"{', '.join(excess)}: keyturn db grants prints the rights that it needs",
        )


def _is_readable_by_others(file: Path) -> bool:
    """Return whether other users can read the file."""
    return bool(file.stat().st_mode & 0o044 and file.parent.stat().st_mode & 0o011)


def _check_log(database: Database, installation: Installation) -> CheckResult:
    about = "change log"
    with database.reading() as tx:
        verdict = verification.verify_newest_entries(
            tx, limit=_NEWEST_ENTRIES, witnesses=_read_newest_checkpoint(installation.witness)
        )
    if verdict.broken is not None:
        return create_error_result(
            about,
            f"BROKEN at entry {verdict.broken}: {verdict.why}: change nothing, keep a copy, and "
            "run keyturn changelog verify",
        )
    key = installation.keys / "changelog.key"
    try:
        ours = signing.load_signing_key(key).public_key if key.exists() else verdict.key
    except KeyFileError as error:
        return create_error_result(about, str(error))
    if verdict.key and ours != verdict.key:
        return create_error_result(
            about, f"signed with another key than {key}: restore the right key"
        )
    if not verdict.entries:
        return create_ok_result(about, "empty")
    # A limit keeps this quick. The service reads the rest in the background.
    newest = min(verdict.entries, _NEWEST_ENTRIES)
    return create_ok_result(about, f"newest {newest} of {verdict.entries} entries verified")


def _check_sites(database: Database) -> CheckResult:
    with database.reading() as tx:
        found = health.check_sites(tx)
    return CheckResult("sites", found.level, found.message)


def _check_own_runbooks(database: Database) -> Iterator[CheckResult]:
    """Check that two people have enabled the installation's own runbooks, where there are any."""
    if load_usable_catalogue()[1]:
        return  # check_installation() says why.
    with database.transaction() as tx:
        states = own_runbooks.list_states(tx)
    pending = [one.words for one in states if not one.is_enabled]
    if pending:
        yield create_warning_result(
            "own runbooks",
            f"{', '.join(pending)}: new or changed, and not executed until two people review the "
            f"files and run `keyturn runbook enable {pending[0]}`, and Keyturn is restarted",
        )
    elif states:
        yield create_ok_result("own runbooks", f"{len(states)}, enabled by two people")


def _check_cosigners(
    database: Database, addresses: Sequence[WitnessAddress], policy: Policy | None
) -> Iterator[CheckResult]:
    """Have the newest checkpoint cosigned by each witness of the settings."""
    with database.reading() as tx:
        size = change_log.get_head(tx)[0]
        if policy is not None:
            for one in health.check_witness_count(len(addresses), tx, policy):
                yield replace(one, subject=one.subject.lower())
    if not size:
        return
    with closing(Witnesses(database, addresses)) as cosigners:
        cosigners.publish_newest(size)
        cosigners.wait_for_answers()
        signed = f"cosigned {format_count(size, 'entry', plural='entries')}"
        for state in cosigners.list_states():
            about = f"witness {state.name}"
            yield (
                create_ok_result(about, signed)
                if state.level == "ok"
                else create_error_result(about, state.problem)
            )


def _read_newest_checkpoint(file: Path | None) -> list[checkpoints.Checkpoint]:
    """Return the newest checkpoint of the witness, or none."""
    try:
        return witness_file.read_checkpoints(file)[-1:] if file else []
    except (OSError, InvalidRequestError):
        return []


def _check_witness(installation: Installation, database: Path | None) -> Iterator[CheckResult]:
    about, file = "witness", installation.witness
    if file is None and installation.witnesses:
        return
    if file is None:
        yield create_warning_result(
            about,
            "none configured: if someone with access to the database deletes the newest entries, "
            "only chat and hosts show it. Set KEYTURN_WITNESS to a file on another disk",
        )
        return
    target = file if file.exists() else file.parent
    if file.is_dir():
        yield create_error_result(
            about, f"{file} is a directory: set a file in it, such as {file / 'keyturn.log'}"
        )
    elif not os.access(target, os.W_OK):
        yield create_error_result(
            about, f"cannot write {target}: change its permissions, or set another file"
        )
    elif database is not None and _get_device(target) == _get_device(database):
        yield create_warning_result(
            about, f"{file} is on the same disk as the database: use another disk or machine"
        )
    else:
        yield create_ok_result(about, f"{file} is writable")


def _get_device(path: Path) -> int:
    existing = path if path.exists() else path.parent
    return existing.stat().st_dev if existing.exists() else -1


_MAX_HOSTS_SHOWN = 20


# Checks the pages or the chat of an installation; the policy is None if it is invalid.
ComponentCheck = Callable[[Installation, Policy | None], Iterator[CheckResult]]


def check_installation(
    installation: Installation,
    component_checks: Sequence[ComponentCheck],
    policy_checks: Sequence[CheckWithPolicy] = (),
) -> Iterator[CheckResult]:
    """Yield the results of all checks, one after the other.

    Args:
        installation: The installation.
        component_checks: The checks of the pages and of chat, in the order of their results.
        policy_checks: The checks of features.
    """
    policy = _load_policy(installation)
    yield (
        policy
        if isinstance(policy, CheckResult)
        else create_ok_result(
            "policy",
            f"valid: {format_count(len(policy.organisation.people), 'person', plural='people')}, "
            f"{format_count(len(policy.inventory.hosts), 'host')}",
        )
    )
    known = None if isinstance(policy, CheckResult) else policy
    for warning in known.warnings if known is not None else ():
        yield create_warning_result("policy", f"in force, but {warning}")
    yield from _check_settings(installation)
    runbooks, problem = load_usable_catalogue()
    if problem:
        yield create_error_result(
            "own runbooks", f"{problem} (Keyturn does not start until they can be used)"
        )
    yield from check_records(installation, known, policy_checks)
    for check_component in component_checks:
        yield from check_component(installation, known)
    if known is not None:
        yield from _check_hosts(installation, known, runbooks)


def _check_settings(installation: Installation) -> Iterator[CheckResult]:
    for name, similar in installation.misspelt_settings.items():
        yield create_warning_result(
            "settings", f"{name} is not a setting and is ignored: did you mean {similar}?"
        )


def _load_policy(installation: Installation) -> Policy | CheckResult:
    try:
        check_access(installation.policy, list_trusted_owners(installation.data))
        return load_policy(installation.policy)
    except NoPolicyError as error:
        is_new = not any((installation.policy / name).exists() for name in _FIRST_FILES)
        command = "keyturn init" if is_new else "keyturn policy check"
        return create_error_result(
            "policy", f"{error} (Keyturn refuses everything until it is valid: run {command})"
        )


def _check_hosts(
    installation: Installation, policy: Policy, runbooks: Runbooks
) -> Iterator[CheckResult]:
    names = list(policy.inventory.hosts)
    if not names:
        yield create_warning_result(
            "hosts", "none yet: run keyturn inventory enrol to add the first"
        )
        return
    with closing(Fleet(policy.inventory, SshPool(installation.policy))) as fleet:
        found = sorted(
            check_hosts(fleet, names, runbooks), key=lambda each: names.index(each.host)
        )
    failed = [each for each in found if not each.is_healthy]
    for each in failed[:_MAX_HOSTS_SHOWN]:
        yield create_error_result(f"host {each.host}", each.error)
    if len(failed) > _MAX_HOSTS_SHOWN:
        more = len(failed) - _MAX_HOSTS_SHOWN
        yield create_error_result(
            "hosts", f"{more} more have problems: run keyturn inventory check to list them"
        )
    if len(failed) < len(names):
        yield create_ok_result("hosts", f"{len(names) - len(failed)} of {len(names)} reachable")
    for each in found:
        if each.is_healthy and each.advice:
            yield create_warning_result(f"host {each.host}", each.advice)

"""Write lists that two people confirmed into inventory.yaml."""

import fcntl
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bot.audit import change_log, events
from bot.db.database import Database, Transaction
from bot.features.host_lists.changes import find_stale, is_done
from bot.features.host_lists.state import HostList, find_refusal, get_list, read_lists
from bot.hosts.inventory_text import change_hosts, insert_hosts
from bot.hosts.pending_hosts import INVENTORY_FILE, write_inventory
from bot.model.text import escape_to_one_line
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.policy.loader import load_policy
from bot.queries.second_factor import is_factor_still_valid
from connectors.errors import DomainError

log = logging.getLogger(__name__)


class NotWrittenError(DomainError):
    """A list was not written. The message says why and what to do."""

    code, status = "not-written", 409


def write_list(
    database: Database, policies: PolicySource, directory: Path, number: int
) -> HostList:
    """Write a list that two people confirmed into inventory.yaml, and log that.

    Who confirmed it is read from the signed log, so a process without the signing key raises
    StoreUnavailable.

    Args:
        policies: Without the people who are banned.
        directory: Of the policy.

    Raises:
        NotWrittenError: It is not confirmed any more, or cannot be written.
    """
    with _lock_directory(directory):
        with database.transaction() as tx:
            assert tx.signing_key  # noqa: S101 - raises StoreUnavailable without one
            found = get_list(tx, number)
            _check_confirmed(tx, found, policies.get_policy())
        # As it is now: the policy in memory may be older.
        text, current = _load(directory)
        if not is_done(current, found.changes):
            _replace(text, current, found, directory)
        with database.transaction() as tx:
            change_log.lock_log(tx)
            if get_list(tx, number).state != "written":
                written = events.HostListWritten(list=number, digest=found.digest)
                change_log.append_entry(tx, written)
            return get_list(tx, number)


def write_confirmed_lists(
    database: Database, policies: PolicySource, directory: Path
) -> Mapping[int, str]:
    """Write every list that waits for that; return why some were not, by their numbers."""
    with database.reading() as tx:
        waiting = [one.number for one in reversed(read_lists(tx)) if one.state == "confirmed"]
    problems: dict[int, str] = {}
    for number in waiting:
        try:
            write_list(database, policies, directory, number)
            log.info("list %d of hosts is in %s", number, INVENTORY_FILE)
        except (NotWrittenError, NoPolicyError) as error:
            problems[number] = escape_to_one_line(str(error))
    return problems


def _check_confirmed(tx: Transaction, one: HostList, policy: Policy) -> None:
    if one.state not in {"confirmed", "written"}:
        raise NotWrittenError(
            f"list {one.number} is {one.state}: two people have to confirm it first"
        )
    for person in one.people:
        is_known = policy.find_person(person) is not None
        refusal = find_refusal(policy, one, person) if person in one.confirmed_by else ""
        if not is_known or refusal:
            raise NotWrittenError(
                f"list {one.number} was confirmed by {person}, who is not an owner of its areas "
                "any more: propose it again"
            )
    for person, digest in one.confirmed_by.items():
        if not (digest or policy.can_require_second_factor):
            continue
        if not is_factor_still_valid(tx, policy, person=person, digest=digest):
            raise NotWrittenError(
                f"list {one.number} was confirmed by {person} without a second factor that is "
                "valid now: propose it again"
            )


def _replace(before: str, current: Policy, one: HostList, directory: Path) -> None:
    """Replace inventory.yaml, whose text was *before*. Raises NotWrittenError."""
    file = directory / INVENTORY_FILE
    if stale := find_stale(current, one.changes, one.areas):
        raise NotWrittenError(
            f"{', '.join(stale[:3])} changed in {INVENTORY_FILE} after list {one.number} was "
            "proposed: propose it again"
        )
    try:
        text = edit_text(before, one)
        load_policy(directory, inventory=text)
        # Both take seconds for thousands of hosts, and a person may edit the file by hand.
        if file.read_text(encoding="utf-8") != before:
            raise NotWrittenError(
                f"{INVENTORY_FILE} changed while list {one.number} was being written into it: "
                "nothing is lost, and the service tries again"
            )
        write_inventory(directory, text)
    except NoPolicyError as error:
        raise NotWrittenError(
            f"list {one.number} would make the policy invalid: {error}"
        ) from None
    except ValueError as error:
        raise NotWrittenError(f"list {one.number}: {error}") from None
    except OSError as error:
        raise NotWrittenError(
            f"{file} cannot be written ({error.strerror or error}): run "
            f"`keyturn host-list write {one.number}` with a login that can write to it"
        ) from None


def edit_text(text: str, one: HostList) -> str:
    """Return the text of inventory.yaml with the changes of a list."""
    added = {each.name: _drop_none(each.after) for each in one.changes if each.action == "add"}
    changed = {each.name: each.after for each in one.changes if each.action == "change"}
    removed = [each.name for each in one.changes if each.action == "remove"]
    if changed or removed:
        text = change_hosts(text, changed, removed)
    if not added:
        return text
    by = " and ".join(one.people)
    return insert_hosts(text, added, f"list {one.number} of hosts, confirmed by {by}")


def _drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _load(directory: Path) -> tuple[str, Policy]:
    """Return the text of inventory.yaml, and the policy with exactly that."""
    try:
        text = (directory / INVENTORY_FILE).read_text(encoding="utf-8")
        return text, load_policy(directory, inventory=text)
    except (NoPolicyError, OSError, UnicodeDecodeError) as error:
        raise NotWrittenError(f"the policy is not valid: {error}") from None


@contextmanager
def _lock_directory(directory: Path) -> Generator[None]:
    """Have one process at a time change the files of a directory."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)

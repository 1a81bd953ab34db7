"""Hosts that wait for the confirmation of a second person."""

import logging
import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bot.hosts.inventory_text import create_yaml, dump_yaml, insert_hosts, replace_file
from bot.policy.loader import load_policy
from bot.queries.host_status import PendingHostSummary
from connectors.inventory import Name

PENDING_HOSTS_FILE = "enrolling.yaml"
INVENTORY_FILE = "inventory.yaml"
_FILE_HEADER = (
    "# Hosts that wait for a second person: `keyturn inventory confirm HOST FINGERPRINT`.\n"
)
_LOGIN_UID_FILE = Path("/proc/self/loginuid")
_UNSET_LOGIN_UID = 2**32 - 1


class LocalUser(BaseModel):
    """The login of a person on a machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    login: str
    uid: int
    machine: str

    def is_same_person(self, other: "LocalUser") -> bool:
        """Return whether both logins could be one person."""
        same_uid = (self.uid, self.machine) == (other.uid, other.machine)
        return same_uid or self.login == other.login

    def __str__(self) -> str:
        return f"{self.login} on {self.machine}"


class PendingHost(BaseModel):
    """A host to be added to the inventory, and who requested it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requested_by: LocalUser
    fingerprint: str
    entry: Mapping[str, Any]


class HostNotConfirmedError(ValueError):
    """A host was not added. The message says why and what to do."""


_PENDING_HOSTS_ADAPTER = TypeAdapter(dict[Name, PendingHost])


def get_local_user() -> LocalUser:
    """Return who logged in to this machine, even if they have become root by sudo since."""
    try:
        uid = int(_LOGIN_UID_FILE.read_text())
    except (OSError, ValueError):
        uid = _UNSET_LOGIN_UID
    uid = os.getuid() if uid == _UNSET_LOGIN_UID else uid
    try:
        login = pwd.getpwuid(uid).pw_name
    except KeyError:
        login = str(uid)
    return LocalUser(login=login, uid=uid, machine=socket.gethostname())


def list_pending_hosts(directory: Path) -> dict[str, PendingHost]:
    """Return the pending hosts by name. Raises HostNotConfirmedError if the file is invalid."""
    file = directory / PENDING_HOSTS_FILE
    if not file.exists():
        return {}
    try:
        return _PENDING_HOSTS_ADAPTER.validate_python(YAML(typ="safe", pure=True).load(file) or {})
    except (ValidationError, ValueError, YAMLError) as error:
        raise HostNotConfirmedError(
            f"{file} is invalid: delete it and enrol its hosts again ({error})"
        ) from None


def store_pending_hosts(directory: Path, pending_hosts: Mapping[str, PendingHost]) -> None:
    """Replace the pending hosts.

    Raises OSError without write access to the directory.
    """
    if not pending_hosts:
        (directory / PENDING_HOSTS_FILE).unlink(missing_ok=True)
        return
    replace_file(
        directory / PENDING_HOSTS_FILE, _FILE_HEADER + render_pending_hosts(pending_hosts)
    )


def add_host_to_inventory_text(
    directory: Path, name: str, pending_host: PendingHost, confirmed_by: LocalUser
) -> str:
    """Return inventory.yaml with a host added, and write nothing.

    Raises HostNotConfirmedError if the host exists already, and NoPolicyError if the policy would
    be invalid.
    """
    old = (directory / INVENTORY_FILE).read_text(encoding="utf-8")
    data: Any = create_yaml().load(old)
    if name in (data.get("hosts") or {}):
        raise HostNotConfirmedError(
            f"{name} is already in {INVENTORY_FILE}: delete its entry from {PENDING_HOSTS_FILE}"
        )
    comment = describe_confirmation(pending_host, confirmed_by)
    text = insert_hosts(old, {name: pending_host.entry}, comment)
    load_policy(directory, inventory=text)
    return text


def write_inventory(directory: Path, text: str) -> None:
    """Write inventory.yaml. Raises OSError without write access to the directory."""
    replace_file(directory / INVENTORY_FILE, text)


def describe_confirmation(pending_host: PendingHost, confirmed_by: LocalUser) -> str:
    """Return the comment above the entry of an added host."""
    if confirmed_by == pending_host.requested_by:
        return f"{pending_host.fingerprint}: requested and confirmed by {confirmed_by} alone"
    return (
        f"{pending_host.fingerprint}: requested by {pending_host.requested_by}, confirmed by "
        f"{confirmed_by}"
    )


def render_pending_hosts(pending_hosts: Mapping[str, PendingHost]) -> str:
    """Return the entries of enrolling.yaml as YAML."""
    return dump_yaml({name: each.model_dump(mode="json") for name, each in pending_hosts.items()})


_log = logging.getLogger(__name__)


def list_pending_host_summaries(directory: Path) -> list[PendingHostSummary]:
    """Return the pending hosts by name; none, with a warning in the log, for an invalid file."""
    try:
        pending = list_pending_hosts(directory)
    except (HostNotConfirmedError, OSError) as error:
        _log.warning("cannot list hosts that wait for confirmation: %s", error)
        return []
    return [
        PendingHostSummary(
            name, str(one.entry.get("address", "")), one.fingerprint, str(one.requested_by)
        )
        for name, one in sorted(pending.items())
    ]

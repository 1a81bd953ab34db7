"""Hosts that wait for the confirmation of a second person."""

import logging
import os
import pwd
import socket
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

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
    _replace_file(
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
    data: Any = _create_yaml().load(old)
    if name in (data.get("hosts") or {}):
        raise HostNotConfirmedError(
            f"{name} is already in {INVENTORY_FILE}: delete its entry from {PENDING_HOSTS_FILE}"
        )
    comment = describe_confirmation(pending_host, confirmed_by)
    text = _insert_host(old, name, pending_host.entry, comment)
    load_policy(directory, inventory=text)
    return text


def _insert_host(text: str, name: str, fields: Mapping[str, Any], comment: str) -> str:
    """Return the text of an inventory with a host after the last one.

    The lines of the other hosts stay as they are. ruamel would write the new one behind the
    comments that follow the last host, which may belong to the next key.
    """
    line, indent = _find_place(text)
    wanted: Any = YAML(typ="safe", pure=True).load(text)
    wanted["hosts"] = {**(wanted.get("hosts") or {}), name: dict(fields)}
    entry = _dump_yaml({name: dict(fields)}).splitlines()
    lines = text.splitlines()
    added = [f"{' ' * indent}{one}" for one in (f"# {comment}", *entry)]
    inserted = "\n".join([*lines[:line], *added, *lines[line:], ""])
    # An alias as the last value, for example, stands elsewhere than its node.
    if line and _is_same_yaml(inserted, wanted):
        return inserted
    data: Any = _create_yaml().load(text)
    hosts = data["hosts"] = data.get("hosts") or CommentedMap()
    hosts.fa.set_block_style()
    hosts[name] = dict(fields)
    hosts.yaml_set_comment_before_after_key(name, before=comment, indent=2)
    return _dump_yaml(data)


def _is_same_yaml(text: str, data: object) -> bool:
    try:
        return YAML(typ="safe", pure=True).load(text) == data
    except YAMLError:
        return False


def _find_place(text: str) -> tuple[int, int]:
    """Return after how many lines a host is inserted, and its indentation.

    0 lines where the hosts are written in braces, or nowhere.
    """
    root: Any = _create_yaml().compose(text)
    pairs: list[tuple[Any, Any]] = root.value
    found = [(key, value) for key, value in pairs if key.value == "hosts"]
    if not found:
        return 0, 0
    key, hosts = found[0]
    if hosts.id == "scalar":  # `hosts:` and nothing below it
        return key.end_mark.line + 1, key.start_mark.column + 2
    if hosts.flow_style or not hosts.value:
        return 0, 0
    last: Any = hosts
    while last.id != "scalar" and not last.flow_style and last.value:
        newest: Any = last.value[-1]
        last = newest[1] if last.id == "mapping" else newest
    return last.end_mark.line + 1, hosts.value[0][0].start_mark.column


def write_inventory(directory: Path, text: str) -> None:
    """Write inventory.yaml. Raises OSError without write access to the directory."""
    _replace_file(directory / INVENTORY_FILE, text)


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
    return _dump_yaml({name: each.model_dump(mode="json") for name, each in pending_hosts.items()})


def _create_yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # a key stays on its line
    return yaml


def _dump_yaml(data: Any) -> str:
    stream = StringIO()
    _create_yaml().dump(data, stream)
    return stream.getvalue()


def _replace_file(file: Path, text: str) -> None:
    """Replace a file atomically and keep its mode; only the owner can write a new one."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
        new.replace(file)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


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

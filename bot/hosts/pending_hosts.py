"""The hosts that wait for a second person, as pages tell of them."""

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

from bot.hosts.status import EnrollingHost
from bot.policy.loader import load_policy
from connectors.inventory import Name

FILE = "enrolling.yaml"
INVENTORY = "inventory.yaml"
_HEAD = "# Hosts that wait for a second person: `keyturn inventory confirm HOST FINGERPRINT`.\n"
_LOGIN_UID = Path("/proc/self/loginuid")
_NOBODY_LOGGED_IN = 2**32 - 1


class LocalUser(BaseModel):
    """Who is at a machine, as far as it can tell: the name and the number of their login there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    login: str
    uid: int
    machine: str

    def is_same(self, other: "LocalUser") -> bool:
        """Tell whether both may well be one person: then they count as one."""
        here = (self.uid, self.machine) == (other.uid, other.machine)
        return here or self.login == other.login

    def __str__(self) -> str:
        return f"{self.login} on {self.machine}"


class PendingHost(BaseModel):
    """What is to be added to the inventory, and who wants it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asked_by: LocalUser
    fingerprint: str
    entry: Mapping[str, Any]


class NotConfirmed(ValueError):
    """A host was not added: why, and what to do."""


_WAITING = TypeAdapter(dict[Name, PendingHost])


def get_local_user() -> LocalUser:
    """Return who logged in to this machine, even if they have become root by sudo since."""
    try:
        uid = int(_LOGIN_UID.read_text())
    except (OSError, ValueError):
        uid = _NOBODY_LOGGED_IN
    uid = os.getuid() if uid == _NOBODY_LOGGED_IN else uid
    try:
        login = pwd.getpwuid(uid).pw_name
    except KeyError:
        login = str(uid)
    return LocalUser(login=login, uid=uid, machine=socket.gethostname())


def list_pending_hosts(directory: Path) -> dict[str, PendingHost]:
    """Return what waits, by the names of the hosts. Raises NotConfirmed for a broken file."""
    file = directory / FILE
    if not file.exists():
        return {}
    try:
        return _WAITING.validate_python(YAML(typ="safe").load(file) or {})
    except (ValidationError, ValueError, YAMLError) as error:
        raise NotConfirmed(f"{file} is broken: delete it, and enroll anew ({error})") from None


def store_pending_hosts(directory: Path, all_waiting: Mapping[str, PendingHost]) -> None:
    """Write what waits, in the place of what waited.

    Raises OSError without write access to the directory.
    """
    if not all_waiting:
        (directory / FILE).unlink(missing_ok=True)
        return
    _replace(directory / FILE, _HEAD + render(all_waiting))


def add_to_text(directory: Path, name: str, one: PendingHost, confirmed_by: LocalUser) -> str:
    """Return inventory.yaml with a host added, and write nothing.

    Raises NotConfirmed if the host is there already, and NoPolicy if no valid policy would come
    of it.
    """
    yaml = _yaml()
    data: Any = yaml.load(directory / INVENTORY)
    hosts = data.get("hosts") or CommentedMap()
    if name in hosts:
        raise NotConfirmed(f"{name} is in {INVENTORY} already: delete its entry from {FILE}")
    data["hosts"] = hosts
    hosts.fa.set_block_style()
    hosts[name] = dict(one.entry)
    said = describe_people(one, confirmed_by)
    hosts.yaml_set_comment_before_after_key(name, before=said, indent=2)
    text = _written(data)
    load_policy(directory, inventory=text)
    return text


def write_inventory(directory: Path, text: str) -> None:
    """Write inventory.yaml. Raises OSError without write access to the directory."""
    _replace(directory / INVENTORY, text)


def describe_people(one: PendingHost, confirmed_by: LocalUser) -> str:
    """Return the line that stands above the entry of an added host."""
    return f"{one.fingerprint}: asked for by {one.asked_by}, confirmed by {confirmed_by}"


def render(all_waiting: Mapping[str, PendingHost]) -> str:
    """Return the entries of enrolling.yaml as YAML."""
    return _written({name: each.model_dump(mode="json") for name, each in all_waiting.items()})


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # a key stays on its line
    return yaml


def _written(data: Any) -> str:
    stream = StringIO()
    _yaml().dump(data, stream)
    return stream.getvalue()


def _replace(file: Path, text: str) -> None:
    """Replace a file at once, with the rights that it has; a new one is for us alone to write."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
        new.replace(file)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


log = logging.getLogger(__name__)


def list_for_pages(directory: Path) -> list[EnrollingHost]:
    """Return them by name; none where the file that keeps them is broken, which is logged."""
    try:
        waiting = list_pending_hosts(directory)
    except (NotConfirmed, OSError) as trouble:
        log.warning("hosts that wait to be confirmed cannot be shown: %s", trouble)
        return []
    return [
        EnrollingHost(name, str(one.entry.get("address", "")), one.fingerprint, str(one.asked_by))
        for name, one in sorted(waiting.items())
    ]

"""Sources of hosts: what their file says, and what each returns.

The file is named by a setting and not in the policy directory: a source can be a command, and
those who edit the policy are not meant to run programs as Keyturn.

Formats: NetBox's REST API, https://netboxlabs.com/docs/netbox/integrations/rest-api/, with the
fields of its `DeviceSerializer` and `VirtualMachineSerializer`; and the output of
`ansible-inventory --list`, which `bot.hosts.ansible` reads.
"""

import ipaddress
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Annotated, Any
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bot.features.host_lists.changes import ListedHost
from bot.hosts.ansible import parse_ansible_inventory
from bot.hosts.imported_host import ImportedHost, InvalidImportError
from bot.hosts.inventory_writer import build_slug
from bot.integrations import safe_http
from bot.integrations.safe_http import DeliveryError
from bot.model.text import escape_to_one_line
from bot.policy.loader import describe_validation_error
from bot.policy.yaml_file import YamlFile
from bot.secret_sources import resolve_secret
from connectors.inventory import Name, PublicKey
from connectors.permissions import find_writer_above, list_trusted_owners

_COMMAND_SECONDS = 120
_MAX_BYTES = 32 << 20
_PAGE, _MAX_PAGES = 200, 100
_MAX_REMARKS = 20
_MAX_REMARK_LENGTH = 200
_NETBOX_PATHS = ("/api/dcim/devices/", "/api/virtualization/virtual-machines/")
# A name as systems write it, of which a name of the inventory can be made.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")


class SourceError(Exception):
    """A source was not read whole, so it proposes nothing. The message says why."""


class HostSource(BaseModel):
    """One source of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    """The key in the file, whatever is written here."""
    command: Annotated[Sequence[str], Field(min_length=1)] | None = None
    """A program and its arguments, which prints what `ansible-inventory --list` prints."""
    netbox: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$", max_length=300)] | None = None
    """The address of a NetBox."""
    token: str = ""
    """NetBox's token: `file:PATH` or `vault:MOUNT/PATH#KEY`."""
    filter: Mapping[str, str] = {}
    """NetBox's filters, such as `status: active`."""
    private: bool = False
    """Whether the address may be in a private network."""
    every: Annotated[int, Field(ge=1, le=10_080)] = 60
    """Minutes from one reading to the next."""
    area: Name | None = None
    """The area of hosts that `areas` does not name."""
    areas: Mapping[Name, Name] = {}
    """The area of hosts in a group, by the group; the first that a host is in counts."""
    tags: Sequence[Name] | None = None
    """The groups that become tags; all of them without it."""
    host_ca: PublicKey | None = None
    """The CA that signs the keys of new hosts."""
    user: Name | None = None
    """The login of new hosts."""

    @model_validator(mode="after")
    def _require_one_kind(self) -> "HostSource":
        if (self.command is None) == (self.netbox is None):
            raise ValueError("set either command or netbox")
        if self.netbox and "@" in urlsplit(self.netbox).netloc:
            raise ValueError("netbox must be an address without a login: set token")
        if bool(self.netbox) != bool(self.token):
            raise ValueError("netbox needs token, and only netbox has one: set both or none")
        if self.token and not self.token.startswith(("file:", "vault:")):
            raise ValueError("token must be file:PATH or vault:MOUNT/PATH#KEY, not the token")
        if self.command and not Path(self.command[0]).is_absolute():
            raise ValueError("command must begin with the absolute path of a program")
        if self.area is None and not self.areas:
            raise ValueError("set area or areas, so that each host has owners")
        return self

    def find_area(self, groups: Sequence[str]) -> str | None:
        return next((area for group, area in self.areas.items() if group in groups), self.area)


class _SourceFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: Mapping[Name, HostSource] = {}


@dataclass(frozen=True)
class SourceHost:
    """A host as a source has it."""

    name: str
    """As the inventory would write it."""
    fields: Mapping[str, Any]
    """The fields that the source decides, as the inventory writes them."""
    new_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a host gets besides when it is added."""


@dataclass(frozen=True)
class Reading:
    """Everything that a source returned."""

    hosts: Mapping[str, SourceHost]
    remarks: Sequence[str] = ()
    """Why some of its hosts are left out."""
    left_out: frozenset[str] = frozenset()
    """The names of these, where they have one: they have not vanished."""


def load_sources(file: Path | None) -> Mapping[str, HostSource]:
    """Return the sources by name; none without a file. Raises SourceError."""
    if file is None:
        return {}
    try:
        if problem := find_writer_above(file, list_trusted_owners()):
            raise SourceError(f"{problem}, because it can name commands")
        text = file.read_text(encoding="utf-8")
        found = _SourceFile.model_validate(YamlFile(file.name, text).parse_data()).sources
    except ValidationError as error:
        raise SourceError(f"{file}: {describe_validation_error(error)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{file} cannot be read: {error}") from None
    return {name: one.model_copy(update={"name": name}) for name, one in found.items()}


def read_source(source: HostSource) -> Reading:
    """Return all hosts of a source. Raises SourceError if any part of its answer is missing."""
    found = _read_command(source) if source.command else _read_netbox(source)
    reading = _name_hosts(source, found)
    if not reading.hosts:
        why = f": {reading.remarks[0]}" if reading.remarks else ""
        raise SourceError(f"it returned no hosts that can be used{why}")
    return reading


def _read_command(source: HostSource) -> Sequence[ImportedHost]:
    text = _run(source.command or ())
    try:
        found = parse_ansible_inventory(text)
    except InvalidImportError as error:
        raise SourceError(str(error)) from None
    return found.hosts


def _run(command: Sequence[str]) -> str:
    """Return what a program prints. Raises SourceError unless it exits with 0 in time."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={
                    name: os.environ[name]
                    for name in ("PATH", "HOME", "LANG")
                    if name in os.environ
                },
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            status = process.wait(_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise SourceError(
                f"{command[0]} did not end within {_COMMAND_SECONDS} seconds"
            ) from None
        finally:
            _end_group(process)
        if status != 0:
            said = escape_to_one_line(_read_end(errors))[-_MAX_REMARK_LENGTH:]
            raise SourceError(f"{command[0]} exited with {status}: {said or 'no message'}")
        output.seek(0)
        content = output.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise SourceError(f"{command[0]} printed more than {_MAX_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SourceError(f"{command[0]} did not print UTF-8 text") from None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End what a program has started and left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _read_end(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2000))
    return file.read().decode(errors="replace").strip()


def _read_netbox(source: HostSource) -> Sequence[ImportedHost]:
    try:
        token = resolve_secret(source.token)
    except ValueError as error:
        raise SourceError(f"token: {error}") from None
    if not (token.isascii() and token.isprintable()):
        raise SourceError("token: it is not one line of ASCII characters")
    records = [record for path in _NETBOX_PATHS for record in _read_list(source, path, token)]
    return [_parse_record(record) for record in records]


def _read_list(source: HostSource, path: str, token: str) -> Sequence[Mapping[str, Any]]:
    """Return all records of a list, page by page.

    Only `count` says how many there are: `next` names the address that NetBox believes it has. A
    list that changed between two pages is not whole.
    """
    records: dict[int, Mapping[str, Any]] = {}
    count = -1
    for _ in range(_MAX_PAGES):
        # Pages in the order of names can repeat a record, or miss one.
        query = {**source.filter, "ordering": "id", "limit": _PAGE, "offset": len(records)}
        if path == _NETBOX_PATHS[0]:
            query["exclude"] = "config_context"
        page = _get(f"{(source.netbox or '').rstrip('/')}{path}?{urlencode(query)}", token, source)
        try:
            if count not in {-1, int(page["count"])}:
                raise SourceError(f"{path} changed while it was read: the next reading is whole")
            count = int(page["count"])
            before = len(records)
            records |= {int(one["id"]): one for one in page["results"]}
            expected = min(before + len(page["results"]), count)
        except (KeyError, TypeError, ValueError, OverflowError):  # JSON's 1e999 is infinite
            raise SourceError(f"{path} is not a list as NetBox returns it") from None
        if len(records) != expected or (len(records) == before and before < count):
            raise SourceError(f"{path} returned {len(records)} of {count} records")
        if len(records) == count:
            return [*records.values()]
    raise SourceError(f"{path} has more than {_PAGE * _MAX_PAGES} records: set filter")


def _get(url: str, token: str, source: HostSource) -> Mapping[str, Any]:
    # Tokens of the second version have a prefix, and another scheme.
    scheme = "Bearer" if token.startswith("nbt_") else "Token"
    headers = {"Authorization": f"{scheme} {token}", "Accept": "application/json"}
    try:
        answer = safe_http.request(
            "GET", url, b"", headers, private=source.private, max_bytes=_MAX_BYTES
        )
        found = json.loads(answer)
    except DeliveryError as error:
        raise SourceError(f"{source.netbox}: {error}") from None
    except (ValueError, RecursionError):
        raise SourceError(f"{source.netbox} did not return JSON") from None
    if not isinstance(found, dict):
        raise SourceError(f"{source.netbox} did not return a list")
    return found  # pyright: ignore[reportUnknownVariableType]


def _parse_record(record: Mapping[str, Any]) -> ImportedHost:
    try:
        name = record.get("name") or ""
        primary = record.get("primary_ip")
        address = str(ipaddress.ip_interface(str(primary["address"])).ip) if primary else ""
        # `device_role` until NetBox 3.6.
        related = [record.get(key) for key in ("role", "device_role", "site", "tenant")]
        groups = [one["slug"] for one in (*related, *record.get("tags", ())) if one]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SourceError(
            f"record {escape_to_one_line(str(record.get('id')))[:20]} is not a device as NetBox "
            "returns it"
        ) from None
    return ImportedHost(str(name), address, groups=frozenset(map(str, groups)))


def _name_hosts(source: HostSource, found: Sequence[ImportedHost]) -> Reading:
    """Return the hosts that can be in the inventory, and why others cannot."""
    names = [build_slug(one.name) if _PLAIN_NAME.fullmatch(one.name) else "" for one in found]
    counts = Counter(names)
    hosts: dict[str, SourceHost] = {}
    remarks: list[str] = []
    for one, name in zip(found, names, strict=True):
        groups = sorted({slug for group in one.groups if (slug := build_slug(group))})
        problem = _find_problem(source, one, name, counts[name], groups)
        if problem:
            shown = escape_to_one_line(one.name)[:64] or "a host without a name"
            remarks.append(f"{shown}: {problem}"[:_MAX_REMARK_LENGTH])
        else:
            hosts[name] = _build_host(source, one, name, groups)
    more = len(remarks) - _MAX_REMARKS
    shown = [*remarks[:_MAX_REMARKS], *([f"and {more} more"] if more > 0 else [])]
    return Reading(hosts, shown, frozenset(names) - {*hosts, ""})


def _find_problem(
    source: HostSource, one: ImportedHost, name: str, count: int, groups: Sequence[str]
) -> str:
    if not name:
        return "this name cannot be one of the inventory"
    if count > 1:
        return f"{count} hosts of the source would be called {name}"
    if not one.address or not _ADDRESS.fullmatch(one.address):
        return "it has no address" if not one.address else "its address is not valid"
    if source.find_area(groups) is None:
        return "none of its groups is in `areas`"
    return ""


def _build_host(
    source: HostSource, one: ImportedHost, name: str, groups: Sequence[str]
) -> SourceHost:
    tags = [group for group in groups if source.tags is None or group in source.tags]
    fields = {
        "address": one.address,
        "port": one.port,
        "area": source.find_area(groups),
        "tags": tags,
    }
    new: dict[str, Any] = {"source": source.name}
    if one.platform:
        new["platform"] = one.platform
    if source.user:
        new["user"] = source.user
    if source.host_ca:
        new["host_ca"] = source.host_ca
    return SourceHost(name, fields, new)


def build_listed(source: SourceHost, *, is_new: bool) -> ListedHost:
    """Return a host as a list sets it."""
    fields = {**source.fields, **(source.new_fields if is_new else {})}
    # The usual port is not written.
    if is_new and fields.get("port") == 22:
        fields.pop("port")
    return ListedHost.model_validate(fields)

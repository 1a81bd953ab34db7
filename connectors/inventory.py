"""The hosts under our care, as the inventory file describes them. No I/O."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from connectors.command import Command, DeviceCommand, Shell, quote_text, refuse_invisible
from connectors.errors import SetupError, UnknownHostError

_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")

# A host with a shell, or a network device by the kind of its command line.
Platform = Literal["linux", "cisco_ios", "dell_powerconnect", "frr"]
Name = Annotated[str, Field(pattern=_NAME)]
Clean = Annotated[str, AfterValidator(refuse_invisible)]
UserName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]


def _refuse_unknown_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {quote_text(name)}: give one such as Europe/Paris"
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_refuse_unknown_zone)]


def _parse_public_key(text: str) -> str:
    words = text.split()
    if len(words) < 2 or words[0] not in (*_KEY_TYPES, "ssh-rsa"):
        raise ValueError('must be a public key such as "ssh-ed25519 AAAA…", as ssh-keyscan prints')
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        raise ValueError("is cut off or mistyped: its second word is not base64") from None
    if not blob[4:].startswith(words[0].encode()):
        raise ValueError("is cut off or mistyped: its two words do not belong together")
    return " ".join(words[:2])


PublicKey = Annotated[str, AfterValidator(_parse_public_key)]


class Reader(BaseModel):
    """A second login of a host, which can only read: user is its name, key its own private key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: UserName
    key: PurePath


class Host(BaseModel):
    """One host: where it is, how we log in, who owns it.

    address: name or IP address that we connect to. port: TCP. user: login name.
    key: private key file, relative to the policy directory.
    reader: the login for whatever only reads; without it, `user` is for that too.
    changes: whether anything may be changed there. scripts: whether those that sudo runs lie there
    as files, as `keyturn sudoers HOST --scripts` installs them.
    platform: linux, or what a network device speaks; frr is FRR's vtysh instead of a shell.
    password_file, enable_file: for a network device that takes no key: files like `key` that hold
    its login password, and the secret of its privileged mode.
    host_key: the public key that the host must show. host_ca: or the CA that signed it.
    jump: the host that we go through. site: which network segment, so which workers.
    zone: the time zone that its people keep, for rules about hours and days of the week.
    area: the part of production that the host belongs to. tags: what runs on it.
    settings: words of commands that differ on this host, such as `haproxy.socket`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$", max_length=253)]
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: UserName = "keyturn"
    key: PurePath = PurePath("keys/keyturn")
    reader: Reader | None = None
    changes: bool = True
    scripts: bool = False
    platform: Platform = "linux"
    password_file: PurePath | None = None
    enable_file: PurePath | None = None
    host_key: PublicKey | None = None
    host_ca: PublicKey | None = None
    jump: Name | None = None
    site: Name = "main"
    zone: Zone = "UTC"
    area: Name
    tags: frozenset[Name] = frozenset()
    settings: Mapping[Clean, Clean] = {}

    @model_validator(mode="after")
    def _require_host_key(self) -> "Host":
        if (self.host_key is None) == (self.host_ca is None):
            raise ValueError("give either host_key or host_ca: a host is known by its key")
        return self

    @model_validator(mode="after")
    def _refuse_passwords_of_linux(self) -> "Host":
        if self.platform == "linux" and (self.password_file or self.enable_file):
            raise ValueError("password_file and enable_file are for network devices: use a key")
        return self

    @model_validator(mode="after")
    def _require_separate_reader(self) -> "Host":
        if self.reader is not None and self.reader.key == self.key:
            raise ValueError("reader: give it a key of its own, as this one opens both logins")
        if self.reader is not None and self.platform != "linux":
            raise ValueError("reader is for hosts with a shell: a network device has one login")
        return self

    @property
    def for_reading(self) -> "Host":
        """The host by the login that reads."""
        if self.reader is None:
            return self
        login = {"user": self.reader.user, "key": self.reader.key, "reader": None}
        return self.model_copy(update=login)

    @property
    def for_changing(self) -> "Host":
        """The host by the login that changes. Raises SetupError on a host without changes."""
        if not self.changes:
            raise SetupError(
                f"nothing may be changed on {self.name}: the inventory says `changes: false`. "
                "Nothing was sent"
            )
        return self

    @property
    def fingerprint(self) -> str:
        """The key's SHA-256 as OpenSSH prints it: `SHA256:` and unpadded base64."""
        blob = base64.b64decode((self.host_key or self.host_ca or "").split()[1])
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")

    def resolve(self, command: Command) -> Command:
        """Return the command exactly as this host will be told it.

        Raises SetupError where a shell would be told what is for a network device, or the reverse.
        """
        if isinstance(command, Shell):
            if self.platform == "linux":
                by_sudo = self.user != "root"
                return command.resolve(self.settings, sudo=by_sudo, scripts=self.scripts)
            raise SetupError(
                f"{self.name} is a network device ({self.platform}) without a shell: "
                "ask it what is meant for network devices"
            )
        if self.platform == "linux":
            raise SetupError(
                f"{self.name} is no network device as the inventory has it: "
                "name a host with another platform than linux. Nothing was sent"
            )
        return self._translate_command(command) if isinstance(command, DeviceCommand) else command

    def _translate_command(self, command: DeviceCommand) -> DeviceCommand:
        worded = command.for_platform(self.platform)
        if worded is None:
            raise SetupError(
                f"how to ask a {self.platform} such as {self.name} for this is not known "
                f"(others are asked: {command})"
            )
        return worded


class Inventory(BaseModel):
    """Every host by its name. `defaults` fill in what a host leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: Mapping[str, Host]
    redundant: Sequence[Annotated[Sequence[Name], Field(min_length=2)]] = ()
    """Groups of hosts that carry a service together: one group, or a list of groups."""

    @field_validator("redundant", mode="before")
    @classmethod
    def _take_one_group(cls, groups: Any) -> Any:
        names = cast("list[object]", groups) if isinstance(groups, list) else []
        return [names] if names and isinstance(names[0], str) else cast("Any", groups)

    @model_validator(mode="after")
    def _refuse_unknown_redundant(self) -> "Inventory":
        for name in (name for group in self.redundant for name in group):
            if name not in self.hosts:
                raise ValueError(f"redundant: {name} is not in the inventory")
        return self

    @model_validator(mode="before")
    @classmethod
    def _apply_defaults(cls, data: Any) -> Any:
        file = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        if not isinstance(file.get("hosts"), dict):
            return cast("Any", data)
        if not isinstance(file.get("defaults") or {}, dict):
            raise ValueError("defaults: must hold fields of hosts, such as `user: keyturn`")
        for name, host in cast("dict[str, Any]", file["hosts"]).items():
            if not isinstance(host or {}, dict):
                raise ValueError(f"{name}: must hold its fields, such as `address: lb1.example`")
        defaults = cast("dict[str, Any]", file.get("defaults") or {})
        listed = cast("dict[str, dict[str, Any] | None]", file["hosts"])
        hosts = {name: {**defaults, **(host or {}), "name": name} for name, host in listed.items()}
        rest = {key: value for key, value in file.items() if key not in {"defaults", "hosts"}}
        return rest | {"hosts": hosts}

    @model_validator(mode="after")
    def _refuse_bad_jumps(self) -> "Inventory":
        for host in self.hosts.values():
            seen = {host.name}
            step = host
            while step.jump is not None:
                if step.jump not in self.hosts:
                    raise ValueError(f"{step.name}: jump {step.jump} is not in the inventory")
                if step.jump in seen:
                    raise ValueError(f"{host.name}: its jumps go round in a circle")
                if self.hosts[step.jump].platform != "linux":
                    raise ValueError(f"{step.name}: jump {step.jump} is a network device")
                seen.add(step.jump)
                step = self.hosts[step.jump]
        return self

    def __getitem__(self, name: str) -> Host:
        try:
            return self.hosts[name]
        except KeyError:
            close = _format_similar(name, self.hosts)
            more = f": did you mean {close}?" if close else ""
            raise UnknownHostError(
                f"there is no host {quote_text(name)} in the inventory{more}"
            ) from None

    def __iter__(self) -> Iterator[Host]:  # type: ignore[override]  # a mapping of hosts, not of pydantic fields
        return iter(self.hosts.values())

    @property
    def tags(self) -> dict[str, frozenset[Name]]:
        """Every host's name with its tags."""
        return {host.name: host.tags for host in self}

    def list_tagged(self, tag: str | None) -> list[Host]:
        return [host for host in self if tag is None or tag in host.tags]


def _format_similar(name: str, known: Mapping[str, Host]) -> str:
    stem = re.sub(r"\d+$", "", name.lower())
    return ", ".join(sorted(other for other in known if stem and other.startswith(stem))[:3])

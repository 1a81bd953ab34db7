"""Inventory: the hosts and how to reach them, as the inventory file describes them. No I/O."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from connectors.command import (
    ApiCall,
    Command,
    DeviceCommand,
    Shell,
    SnmpSet,
    SnmpWalk,
    SwitchLines,
)
from connectors.errors import SetupError, UnknownHostError
from connectors.visible_text import quote_text, refuse_invisible

_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_ADDRESS = r"^[A-Za-z0-9][A-Za-z0-9.:-]*$"
_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")

# A host with a shell, or a network device by the kind of its command line.
# snmp is a device without a login, such as a power strip, and hp_msa a storage array.
Platform = Literal[
    "linux",
    "cisco_ios",
    "dell_powerconnect",
    "frr",
    "arista_eos",
    "juniper_junos",
    "hp_procurve",
    "snmp",
    "hp_msa",
]
Name = Annotated[str, Field(pattern=_NAME)]
Clean = Annotated[str, AfterValidator(refuse_invisible)]
UserName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
SudoUser = Annotated[str, Field(pattern=r"^%?[a-z_][a-z0-9_-]{0,31}$")]


def _refuse_unknown_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {quote_text(name)}: use one such as Europe/Paris"
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_refuse_unknown_zone)]


# A program and its words, as the floor of an enrolled host compares them.
_PLAIN_COMMAND = re.compile(r"[^\s=#-][^\s=]*( \S+)*")


def _parse_public_key(text: str) -> str:
    words = text.split()
    if len(words) < 2 or words[0] not in (*_KEY_TYPES, "ssh-rsa"):
        raise ValueError('must be a public key such as "ssh-ed25519 AAAA…", as ssh-keyscan prints')
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        raise ValueError("is cut off or mistyped: its second word is not base64") from None
    if not blob[4:].startswith(words[0].encode()):
        raise ValueError("is cut off or mistyped: its type does not match its base64")
    return " ".join(words[:2])


PublicKey = Annotated[str, AfterValidator(_parse_public_key)]


Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]


class Reader(BaseModel):
    """A second, read-only login of a host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: UserName
    """The login name."""
    key: PurePath
    """Its own private key file, relative to the policy directory."""


class Snmp(BaseModel):
    """How a device authenticates by SNMP: version 3 with a user, or 2c with a community."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,32}$")] = ""
    """The user of version 3 (RFC 3414); "" for version 2c."""
    auth: Literal["md5", "sha", "sha224", "sha256", "sha384", "sha512"] = "sha"
    """The authentication protocol of the user."""
    auth_file: PurePath | None = None
    """The authentication passphrase: a file with one line, relative to the policy directory."""
    privacy: Literal["des", "aes", "aes192", "aes256"] = "aes"
    """The privacy protocol of the user."""
    privacy_file: PurePath | None = None
    """The privacy passphrase; a file like `auth_file`."""
    community_file: PurePath | None = None
    """The community of version 2c, which crosses the network in clear text; such a file too."""

    @model_validator(mode="after")
    def _require_one_version(self) -> "Snmp":
        is_v3 = bool(self.user and self.auth_file and self.privacy_file)
        is_v2 = self.community_file is not None
        if is_v3 == is_v2 or (is_v2 and (self.user or self.auth_file or self.privacy_file)):
            raise ValueError(
                "set user, auth_file and privacy_file for version 3, or only community_file for "
                "version 2c"
            )
        return self

    def __str__(self) -> str:
        return f"SNMPv3 user {self.user}" if self.user else "SNMPv2c"


class Interface(BaseModel):
    """An HTTPS interface by which a server or a storage array is managed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Annotated[str, Field(pattern=_ADDRESS, max_length=253)]
    """The name or IP address of the interface itself."""
    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """443 by default, and 623 for IPMI."""
    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}$")]
    """The login name there."""
    password_file: PurePath
    """The login password; a path like `key`. With `ipmi_from`, a path on that host."""
    certificate: Annotated[str | None, Field(pattern=r"^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$")] = (
        None
    )
    """The SHA-256 of its certificate, as `openssl x509 -noout -fingerprint -sha256` prints it."""
    ca: PurePath | None = None
    """Or a PEM file with the CA that must have signed its certificate; a path like `key`."""
    ipmi_from: Name | None = None
    """Or, for a BMC without Redfish, the host on which to run ipmitool."""

    @model_validator(mode="after")
    def _require_identity(self) -> "Interface":
        if [self.certificate, self.ca, self.ipmi_from].count(None) != 2:
            raise ValueError(
                "set either certificate or ca, by which the interface is identified, or, for a "
                "BMC without Redfish, ipmi_from"
            )
        return self

    @property
    def identity(self) -> str:
        """What identifies it: its address, and its certificate or CA."""
        return f"{self.address}:{self.port or 443} {self.certificate or self.ca}"


class Bmc(Interface):
    """The management controller of a server, such as an iDRAC or an iLO."""

    ipmi_cipher: Literal["3", "17", ""] = ""
    """The cipher suite of IPMI, for a controller that does not list its suites."""
    serial: Clean = ""
    """The serial number of the server that it must belong to."""
    uuid: Annotated[
        str, Field(pattern=r"^([0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})?$")
    ] = ""
    """The UUID of that server."""


class Msa(Interface):
    """The XML API of an HP MSA."""

    digest: Literal["sha256", "md5"] = "sha256"
    """The digest of the login: md5 for a P2000 and other firmware without SHA-256."""


class Host(BaseModel):
    """One host: its address, its logins, its area."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    # What the policy says of the host, see add_policy_settings().
    _policy_settings: Mapping[str, str] = PrivateAttr(default_factory=dict[str, str])

    name: Name
    address: Annotated[str, Field(pattern=_ADDRESS, max_length=253)]
    """The name or IP address to connect to."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """The TCP port of SSH."""
    user: UserName = "keyturn"
    """The login name."""
    key: PurePath = PurePath("keys/keyturn")
    """The private key file, relative to the policy directory."""
    reader: Reader | None = None
    """The login for queries; without it, `user` runs them too."""
    changes: bool = True
    """Whether changes are allowed there."""
    scripts: bool = False
    """Whether scripts that sudo runs are files there: `keyturn sudoers HOST --scripts`."""
    signed: bool = False
    """Whether the host itself checks who signed each change: `keyturn host-files HOST`."""
    offline_logins: Sequence[SudoUser] = ()
    """Logins of people, and groups such as %ops, that may have an enrolled host run signed plans
    without Keyturn: `keyturn offline`."""
    unsigned: tuple[Clean, ...] = ()
    """Commands that an enrolled host runs without signatures, word by word, such as
    `zpool scrub tank`: for schedules and agents, which sign nothing."""
    platform: Platform = "linux"
    """linux, snmp, hp_msa, or the command line of a network device; frr is FRR's vtysh."""
    snmp: Snmp | None = None
    """How Keyturn authenticates to a device whose platform is snmp."""
    msa: Msa | None = None
    """How Keyturn reaches an array whose platform is hp_msa; its address is that of the host."""
    password_file: PurePath | None = None
    """The login password of a network device that accepts no key; a path like `key`."""
    enable_file: PurePath | None = None
    """The secret of a network device's privileged mode; a path like `key`."""
    host_key: PublicKey | None = None
    """The public key that the host must show."""
    host_ca: PublicKey | None = None
    """Or the CA that must have signed its key."""
    revoked_keys: tuple[Fingerprint, ...] = ()
    """Fingerprints of host keys that are not accepted, whichever CA signed them."""
    jump: Name | None = None
    """The host to connect through."""
    bmc: Bmc | None = None
    """The management controller of the server that the host runs on."""
    vantage: Name | None = None
    """Another host that must reach this one before a change on probation is kept."""
    site: Name = "main"
    """The network segment, which decides the workers."""
    zone: Zone = "UTC"
    """The time zone of its people, for rules about hours and days of the week."""
    area: Name
    """The part of production that it belongs to."""
    tags: frozenset[Name] = frozenset()
    """What runs on it."""
    source: Name | None = None
    """The source of hosts that proposes changes of this entry, and its removal."""
    settings: Mapping[Clean, Clean] = {}
    """Words of commands that differ on this host, such as `haproxy.socket`."""

    @model_validator(mode="before")
    @classmethod
    def _use_port_of_platform(cls, data: Any) -> Any:
        fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        if isinstance(fields.get("msa"), dict) and "address" in fields:
            place = {"address": fields["address"], "port": fields.get("port", 443)}
            return {"port": 443, **fields, "msa": {**place, **fields["msa"]}}
        return {"port": 161, **fields} if fields.get("platform") == "snmp" else cast("Any", data)

    @model_validator(mode="after")
    def _require_snmp(self) -> "Host":
        if (self.platform == "snmp") != (self.snmp is not None):
            raise ValueError("snmp: set it for a device with `platform: snmp`, and only there")
        if self.snmp and (self.host_key or self.host_ca or self.jump or self.reader):
            raise ValueError("host_key, host_ca, jump and reader are for SSH, not for SNMP")
        return self

    @model_validator(mode="after")
    def _require_msa(self) -> "Host":
        if (self.platform == "hp_msa") != (self.msa is not None):
            raise ValueError("msa: set it for an array with `platform: hp_msa`, and only there")
        if self.msa and (self.host_key or self.host_ca or self.jump or self.reader):
            raise ValueError("host_key, host_ca, jump and reader are for SSH, not for an array")
        if self.msa and self.msa.ipmi_from:
            raise ValueError("msa: ipmi_from is for a BMC")
        return self

    @model_validator(mode="after")
    def _require_host_key(self) -> "Host":
        has_keys = self.snmp is None and self.msa is None
        if has_keys and (self.host_key is None) == (self.host_ca is None):
            raise ValueError("set either host_key or host_ca: a host is identified by its key")
        return self

    @model_validator(mode="after")
    def _refuse_revoked_key(self) -> "Host":
        if (self.host_key or self.host_ca) and self.fingerprint in self.revoked_keys:
            raise ValueError(
                f"{self.fingerprint} is in revoked_keys: give the host a new key, or the hosts a "
                "new CA"
            )
        return self

    @property
    def revoked_hashes(self) -> frozenset[bytes]:
        """The SHA-256 of the host keys that are not accepted."""
        return frozenset(
            base64.b64decode(f"{one.removeprefix('SHA256:')}=") for one in self.revoked_keys
        )

    @model_validator(mode="after")
    def _refuse_passwords_of_linux(self) -> "Host":
        if self.platform == "linux" and (self.password_file or self.enable_file):
            raise ValueError("password_file and enable_file are for network devices: use a key")
        return self

    @model_validator(mode="after")
    def _require_separate_reader(self) -> "Host":
        if self.reader is not None and self.reader.key == self.key:
            raise ValueError("reader: set a key of its own, since this key opens both logins")
        if self.reader is not None and self.platform != "linux":
            raise ValueError("reader is for hosts with a shell: a network device has one login")
        return self

    @model_validator(mode="after")
    def _require_login_without_root(self) -> "Host":
        if self.signed and (self.platform != "linux" or self.user == "root"):
            raise ValueError(
                "signed is for hosts with a shell whose login is not root: root could change "
                "them without signatures"
            )
        if self.signed and self.host_key is None:
            raise ValueError("signed needs host_key: plans name the host's own key, not a host_ca")
        return self

    @model_validator(mode="after")
    def _require_plain_commands(self) -> "Host":
        if self.unsigned and not self.signed:
            raise ValueError("unsigned is for hosts with `signed: true`: others ask for nothing")
        for command in self.unsigned:
            if not _PLAIN_COMMAND.fullmatch(command):
                raise ValueError(
                    f"unsigned: {quote_text(command)} is not a program and its words, with one "
                    "blank between them"
                )
        return self

    def runs_unsigned(self, command: "Command") -> bool:
        """Return whether an enrolled host runs a command without signatures."""
        return (
            isinstance(command, Shell)
            and not command.stdin
            and any(list(command.words) == line.split(" ") for line in self.unsigned)
        )

    @property
    def for_reading(self) -> "Host":
        """The host with its read-only login."""
        if self.reader is None:
            return self
        login = {"user": self.reader.user, "key": self.reader.key, "reader": None}
        return self.model_copy(update=login)

    @property
    def for_changing(self) -> "Host":
        """The host with its login for changes. Raises SetupError on a host without changes."""
        if not self.changes:
            raise SetupError(
                f"changes are not allowed on {self.name}: the inventory has `changes: false`. "
                "Nothing was sent"
            )
        return self

    @property
    def setting_values(self) -> Mapping[str, str]:
        """The settings, and what runbooks may read of the other fields in the same way."""
        bmc = self.bmc.model_dump(mode="json", exclude_none=True) if self.bmc else {}
        derived = {f"bmc.{name}": str(value) for name, value in bmc.items()}
        tags = {"inventory.tags": " ".join(sorted(self.tags))}
        return {**self.settings, **derived, **tags, **self._policy_settings}

    def add_policy_settings(self, settings: Mapping[str, str]) -> "Host":
        """Add settings that the inventory cannot have, for runbooks to read; return the host."""
        self._policy_settings = settings
        return self

    @property
    def fingerprint(self) -> str:
        """The key's SHA-256 as OpenSSH prints it: `SHA256:` and unpadded base64.

        Without host keys: for SNMP, the address and how Keyturn authenticates; for an array, its
        address, and its certificate or CA.
        """
        if self.msa is not None:
            return self.msa.identity
        if self.snmp is not None:
            return f"{self.snmp} at {self.address}:{self.port}"
        return compute_fingerprint((self.host_key or self.host_ca or "").split()[1])

    def resolve(self, command: "Command | SnmpWalk") -> "Command | SnmpWalk":
        """Return the command exactly as this host runs it.

        Raises SetupError for a network device's command on a Linux host, or the reverse.
        """
        if isinstance(command, ApiCall):
            return self._address_call(command)
        if self.msa is not None:
            raise SetupError(f"{self.name} is an array without a shell. Nothing was sent")
        if self.snmp is not None or isinstance(command, SnmpWalk | SnmpSet):
            return self._require_snmp_command(command)
        if isinstance(command, Shell):
            if self.platform == "linux":
                by_sudo = self.user != "root"
                if self.signed:
                    command, scripts = command.for_enrolled_host, True
                else:
                    scripts = self.scripts
                return command.resolve(self.settings, sudo=by_sudo, scripts=scripts)
            raise SetupError(
                f"{self.name} is a network device ({self.platform}) without a shell: use a "
                "runbook for network devices. Nothing was sent"
            )
        if self.platform == "linux":
            raise SetupError(
                f"{self.name} is not a network device in the inventory: choose a host whose "
                "platform is not linux. Nothing was sent"
            )
        return self._translate_command(command) if isinstance(command, DeviceCommand) else command

    def _require_snmp_command(self, command: "Command | SnmpWalk") -> "Command | SnmpWalk":
        # A stored plan has SwitchLines, which the session checks before it sends them.
        if self.snmp is not None and isinstance(command, SnmpWalk | SwitchLines):
            return command
        how = f"uses {self.snmp}" if self.snmp else "does not use SNMP (platform: snmp)"
        raise SetupError(
            f"{self.name} {how} in the inventory: use a runbook for such devices. Nothing was sent"
        )

    @property
    def interface(self) -> Interface:
        """The HTTPS interface by which it is managed. Raises SetupError if it has none."""
        interface = self.msa or self.bmc
        if interface is None or interface.ipmi_from:
            raise SetupError(
                f"{self.name} has no bmc with Redfish in the inventory: add its address, user, "
                "password_file and certificate"
            )
        return interface

    def _address_call(self, call: ApiCall) -> ApiCall:
        identity = self.interface.identity
        if call.server not in {"", identity}:
            raise SetupError(
                f"the management interface of {self.name} in the inventory changed after the "
                "approval. Nothing was sent: request the change again"
            )
        return replace(call, server=identity)

    def _translate_command(self, command: DeviceCommand) -> DeviceCommand:
        translated = command.for_platform(self.platform)
        if translated is None:
            raise SetupError(
                f"Keyturn has no such command for {self.name}, a {self.platform} "
                f"(on other platforms: {command})"
            )
        return translated


def compute_fingerprint(key: str) -> str:
    """Return the SHA-256 of a public key in base64, as OpenSSH prints it."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class Inventory(BaseModel):
    """All hosts by name. `defaults` in the file fill in fields that a host does not set."""

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
            raise ValueError("defaults: must be fields of hosts, such as `user: keyturn`")
        for name, host in cast("dict[str, Any]", file["hosts"]).items():
            if not isinstance(host or {}, dict):
                raise ValueError(f"{name}: must have fields, such as `address: lb1.example`")
        defaults = cast("dict[str, Any]", file.get("defaults") or {})
        listed = cast("dict[str, dict[str, Any] | None]", file["hosts"])
        hosts = {name: {**defaults, **(host or {}), "name": name} for name, host in listed.items()}
        rest = {key: value for key, value in file.items() if key not in {"defaults", "hosts"}}
        return rest | {"hosts": hosts}

    @model_validator(mode="after")
    def _refuse_bad_vantages(self) -> "Inventory":
        for host in self.hosts.values():
            if host.vantage is None:
                continue
            known = self.hosts.get(host.vantage)
            if known is None or known.platform != "linux" or known is host:
                raise ValueError(
                    f"{host.name}: vantage {host.vantage} must be another host of the inventory, "
                    "with a shell"
                )
        return self

    @model_validator(mode="after")
    def _refuse_bad_ipmi_hosts(self) -> "Inventory":
        for host in self.hosts.values():
            name = host.bmc.ipmi_from if host.bmc else None
            if name and (name not in self.hosts or self.hosts[name].platform != "linux"):
                raise ValueError(
                    f"{host.name}: ipmi_from {name} must be a host of the inventory with a shell"
                )
        return self

    @model_validator(mode="after")
    def _refuse_bad_jumps(self) -> "Inventory":
        for host in self.hosts.values():
            visited = {host.name}
            step = host
            while step.jump is not None:
                if step.jump not in self.hosts:
                    raise ValueError(f"{step.name}: jump {step.jump} is not in the inventory")
                if step.jump in visited:
                    raise ValueError(f"{host.name}: its jump hosts form a circle")
                if self.hosts[step.jump].platform != "linux":
                    raise ValueError(f"{step.name}: jump {step.jump} is a network device")
                visited.add(step.jump)
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
        """The tags of each host, by host name."""
        return {host.name: host.tags for host in self}

    def list_tagged(self, tag: str | None) -> list[Host]:
        return [host for host in self if tag is None or tag in host.tags]


def _format_similar(name: str, known: Mapping[str, Host]) -> str:
    stem = re.sub(r"\d+$", "", name.lower())
    return ", ".join(sorted(other for other in known if stem and other.startswith(stem))[:3])

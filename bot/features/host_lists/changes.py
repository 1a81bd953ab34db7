"""What a list of hosts would change in the inventory, and the digest that people confirm. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.model.canonical import hash_canonical
from bot.model.errors import InvalidRequestError
from bot.model.text import join_names
from bot.policy import Policy
from bot.policy.loader import describe_validation_error
from connectors.inventory import Clean, Host, Inventory, Name, Reader, compute_fingerprint

MAX_HOSTS = 500
"""Of one list: more than people read at a time, and its entry in the log stays short."""
Action = Literal["add", "change", "remove"]
# What is shown of a host that is removed, and must not have changed until it is.
_IDENTITY = ("address", "port", "area", "host_key", "host_ca")
_PLACE = {"address", "port", "jump"}
Place = tuple[str, int, str | None]
"""Where a host is reached: its address, its port, and the host through which."""


class ListedHost(BaseModel):
    """The fields of inventory.yaml that a list can set; the inventory validates their values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Clean = ""
    port: int = 22
    platform: Clean = "linux"
    user: Clean = "keyturn"
    key: Clean = ""
    reader: Reader | None = None
    host_key: Clean | None = None
    host_ca: Clean | None = None
    jump: Clean | None = None
    site: Clean = "main"
    zone: Clean = "UTC"
    area: Clean = ""
    tags: Sequence[Clean] = ()
    scripts: bool = False
    signed: bool = False
    settings: Mapping[Clean, Clean] = {}
    source: Clean | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were given, as JSON."""
        return _normalise(self.model_dump(mode="json", exclude_unset=True))


class HostListFile(BaseModel):
    """A file with a list: `hosts` as in inventory.yaml, and the names of those to remove."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: Mapping[Name, ListedHost] = Field(
        default={}, max_length=MAX_HOSTS, description="Hosts to add or change, by name."
    )
    remove: Sequence[Name] = Field(
        default=(), max_length=MAX_HOSTS, description="Names of hosts to remove."
    )


@dataclass(frozen=True)
class HostChange:
    """What changes of one host; before and after hold only the fields that differ."""

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def action(self) -> Action:
        return "change" if self.before and self.after else "add" if self.after else "remove"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the host key or CA that the list sets; "" if it sets none."""
        key = self.after.get("host_key") or self.after.get("host_ca")
        return compute_fingerprint(str(key).split()[1]) if key else ""

    @property
    def lines(self) -> Sequence[str]:
        """What changes, one field a line, for people."""
        return [*self._list_lines()]

    def _list_lines(self) -> Iterator[str]:
        names = dict.fromkeys((*_IDENTITY, *self.before, *self.after))
        for name in names:
            old, new = self.before.get(name), self.after.get(name)
            if old is None and new is None:
                continue
            if self.action == "change":
                yield f"{name}: {format_value(name, old)} → {format_value(name, new)}"
            else:
                yield f"{name}: {format_value(name, old if new is None else new)}"


def format_value(name: str, value: Any) -> str:
    """Return a value of a field for people: keys by their fingerprints."""
    if value is None:
        return "-"
    if name in {"host_key", "host_ca"}:
        kind, _, key = str(value).partition(" ")
        return f"{kind} {compute_fingerprint(key)}"
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value))) or "-"
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value)
        return ", ".join(f"{key}={one}" for key, one in pairs.items()) or "-"
    return str(value)


def compute_changes(policy: Policy, listed: HostListFile) -> Sequence[HostChange]:
    """Return what a list would change, by the name of the host; hosts that it has already do not.

    Raises:
        InvalidRequestError: The inventory would not be valid, or nothing would change.
    """
    hosts = policy.inventory.hosts
    if both := sorted({*listed.hosts} & {*listed.remove}):
        raise InvalidRequestError(f"{join_names(both)}: listed both to be set and to be removed")
    if unknown := sorted({*listed.remove} - {*hosts}):
        raise InvalidRequestError(f"{join_names(unknown)}: not in the inventory, so not removed")
    found = [compute_change(hosts.get(name), name, one) for name, one in listed.hosts.items()]
    found += [compute_removal(hosts[name]) for name in listed.remove]
    changes = sorted((one for one in found if one.before or one.after), key=lambda one: one.name)
    if not changes:
        raise InvalidRequestError("the inventory has all of this already: nothing would change")
    check_changes(policy, changes)
    return changes


def compute_removal(host: Host) -> HostChange:
    """Return the removal of a host, with the fields that say which one it is."""
    shown = host.model_dump(mode="json", include={*_IDENTITY}, exclude_none=True)
    return HostChange(host.name, _normalise(shown), {})


def compute_change(known: Host | None, name: str, listed: ListedHost) -> HostChange:
    """Return what a list would change of one host; a change without fields if nothing differs."""
    after = listed.given
    if known is None:
        return HostChange(name, {}, {key: one for key, one in after.items() if one is not None})
    before = _normalise(known.model_dump(mode="json", include={*after}))
    # One replaces the other.
    for key, other in (("host_key", "host_ca"), ("host_ca", "host_key")):
        if after.get(key) and getattr(known, other) is not None:
            after |= {other: None}
            before |= {other: getattr(known, other)}
    differing = [key for key in after if after[key] != before.get(key)]
    return HostChange(
        name, {key: before.get(key) for key in differing}, {key: after[key] for key in differing}
    )


def check_changes(policy: Policy, changes: Sequence[HostChange]) -> None:
    """Raise InvalidRequestError if the inventory would not be valid with these changes."""
    hosts = policy.inventory.hosts
    changed = {one.name: one for one in changes}
    entries: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys((*hosts, *changed)):
        one = changed.get(name)
        if one is not None and one.action == "remove":
            continue
        known = hosts[name].model_dump(mode="json", exclude_none=True) if name in hosts else {}
        merged = {**known, **(one.after if one else {})}
        entries[name] = {
            key: value for key, value in merged.items() if key != "name" and value is not None
        }
    try:
        wanted = Inventory.model_validate(
            {"hosts": entries, "redundant": policy.inventory.redundant}
        )
    except ValidationError as error:
        raise InvalidRequestError(describe_validation_error(error)) from None
    known_areas = policy.organisation.areas
    rekeyed = {one.name for one in changes if one.after.get("host_key")}
    by_key: dict[str, str] = {}
    moved = {one.name for one in changes if _PLACE & {*one.after}}
    by_place: dict[Place, str] = {}
    for host in wanted:
        if host.area not in known_areas:
            raise InvalidRequestError(
                f"{host.name}: area {host.area} is not in areas.yaml, which has "
                f"{', '.join(known_areas) or 'none'}"
            )
        other = by_key.setdefault(host.host_key or host.name, host.name)
        if other != host.name and {other, host.name} & rekeyed:
            raise InvalidRequestError(
                f"{other} and {host.name} have the same host key: either both are one machine, or "
                "one is a copy of the other and needs new host keys"
            )
        # The inventory has no keys by which hosts of one CA differ.
        other = by_place.setdefault(get_place(host), host.name)
        if other != host.name and {other, host.name} & moved:
            raise InvalidRequestError(
                f"{other} and {host.name} have the same address and port: they are one machine, "
                "and it can have only one entry"
            )


def get_place(host: Host) -> Place:
    return host.address.lower(), host.port, host.jump


def find_stale(
    policy: Policy, changes: Sequence[HostChange], areas: Collection[str]
) -> Sequence[str]:
    """Return the hosts that are not as a list says they are before it, or in none of its areas.

    A list of other fields does not say in which area a host is, and its owners confirm it.
    """
    hosts = policy.inventory.hosts
    return [
        one.name
        for one in changes
        if not _is_as_before(policy, one)
        or (one.name in hosts and hosts[one.name].area not in areas)
    ]


def is_done(policy: Policy, changes: Sequence[HostChange]) -> bool:
    """Return whether the inventory has all of these changes already."""
    return all(_is_as_after(policy, one) for one in changes)


def _is_as_before(policy: Policy, change: HostChange) -> bool:
    known = policy.inventory.hosts.get(change.name)
    if known is None or not change.before:
        return known is None and not change.before
    return _has_fields(known, change.before)


def _is_as_after(policy: Policy, change: HostChange) -> bool:
    known = policy.inventory.hosts.get(change.name)
    if known is None or not change.after:
        return known is None and not change.after
    return _has_fields(known, change.after)


def _has_fields(host: Host, fields: Mapping[str, Any]) -> bool:
    found = _normalise(host.model_dump(mode="json", include={*fields}))
    return all(found.get(key) == value for key, value in fields.items())


def list_areas(policy: Policy, changes: Sequence[HostChange]) -> Sequence[str]:
    """Return the areas to which these hosts belong, and will belong."""
    hosts = policy.inventory.hosts
    before = {hosts[one.name].area for one in changes if one.name in hosts}
    return sorted(before | {str(one.after["area"]) for one in changes if "area" in one.after})


def encode_changes(changes: Sequence[HostChange]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the changes as an entry of the log holds them: its facts `before` and `after`."""
    return {
        "before": {one.name: dict(one.before) for one in changes if one.before},
        "after": {one.name: dict(one.after) for one in changes if one.after},
    }


def decode_changes(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Sequence[HostChange]:
    """Return the changes that an entry of the log holds, by the names of their hosts."""
    names = sorted({*before, *after})
    return [HostChange(name, before.get(name, {}), after.get(name, {})) for name in names]


def compute_digest(source: str, changes: Sequence[HostChange]) -> str:
    """Return the digest of exactly this list."""
    return hash_canonical({"source": source, **encode_changes(changes)})


def _normalise(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as they are compared and stored: tags in one order, keys without comments."""
    if fields.get("tags"):
        fields["tags"] = sorted({*fields["tags"]})
    for name in ("host_key", "host_ca"):
        if fields.get(name):
            fields[name] = " ".join(str(fields[name]).split()[:2])
    return fields


def count_actions(changes: Collection[HostChange]) -> str:
    """Return how many hosts are added, changed and removed: `3 added, 1 removed`."""
    words: Mapping[Action, str] = {"add": "added", "change": "changed", "remove": "removed"}
    counts = {word: sum(one.action == act for one in changes) for act, word in words.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

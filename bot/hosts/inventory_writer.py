"""Create entries for inventory.yaml from imported hosts, with notes on missing fields. Pure."""

import base64
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from bot.hosts import known_hosts
from bot.hosts.imported_host import ImportedHost
from bot.model.text import escape_to_one_line
from connectors.inventory import Host

_MAX_NAME_LENGTH = 63
# Replaces an unknown key, so that the other fields of an entry can be validated.
PLACEHOLDER_KEY = f"ssh-ed25519 {base64.b64encode(b'....ssh-ed25519').decode()}"


@dataclass(frozen=True)
class InventoryEntry:
    """The entry of one host in inventory.yaml."""

    name: str
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    """What is missing and what to do."""

    @property
    def is_complete(self) -> bool:
        """Whether no required field is missing."""
        return {"address", "host_key", "area"} <= self.fields.keys()


def build_entries(
    imported_hosts: Sequence[ImportedHost],
    known_host_lines: Sequence[known_hosts.KnownHostLine],
    *,
    area: str = "",
) -> tuple[InventoryEntry, ...]:
    """Return an entry for each imported host, with valid fields only."""
    names = _choose_names(imported_hosts)
    names_by_host = {each.address: name for each, name in zip(imported_hosts, names, strict=True)}
    names_by_host |= {each.name: name for each, name in zip(imported_hosts, names, strict=True)}
    return tuple(
        _remove_invalid_fields(_build_entry(each, name, names_by_host, known_host_lines, area))
        for each, name in zip(imported_hosts, names, strict=True)
    )


def render_entries(entries: Iterable[InventoryEntry]) -> str:
    """Return the entries as YAML below `hosts:`, each with its notes above it."""
    hosts = CommentedMap()
    for entry in entries:
        hosts[entry.name] = CommentedMap(
            {key: _use_flow_style(value) for key, value in entry.fields.items()}
        )
        if entry.notes:
            notes = "\n".join(escape_to_one_line(note) for note in entry.notes)
            hosts.yaml_set_comment_before_after_key(entry.name, before=notes, indent=2)
    yaml = YAML()
    yaml.width = 4096  # a key stays on its line
    written = StringIO()
    yaml.dump({"hosts": hosts}, written)
    return written.getvalue()


def build_entries_data(entries: Iterable[InventoryEntry]) -> list[dict[str, Any]]:
    """Return the entries for JSON. entry: the fields below the name of the host."""
    return [
        {
            "name": entry.name,
            "entry": dict(entry.fields),
            "whole": entry.is_complete,
            "notes": list(entry.notes),
        }
        for entry in entries
    ]


def build_slug(text: str) -> str:
    """Return the most similar valid name, or "" if no character is valid."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return words[:_MAX_NAME_LENGTH].rstrip("-")


def _choose_names(imported_hosts: Sequence[ImportedHost]) -> tuple[str, ...]:
    """Return a name for each host; equal names get numbers."""
    wanted = [build_slug(each.name) or "host" for each in imported_hosts]
    taken: Counter[str] = Counter()
    names: list[str] = []
    for name in wanted:
        taken[name] += 1
        numbered = name
        while taken[name] > 1 and (numbered in wanted or numbered in names):
            numbered = f"{name[: _MAX_NAME_LENGTH - 4]}-{taken[name]}"
            taken[name] += 1
        names.append(numbered)
    return tuple(names)


# Fields of an entry, and notes on missing ones.
_EntryPart = tuple[dict[str, Any], tuple[str, ...]]


def _build_entry(
    imported: ImportedHost,
    name: str,
    names_by_host: Mapping[str, str],
    known_host_lines: Sequence[known_hosts.KnownHostLine],
    area: str,
) -> InventoryEntry:
    missing_area = "area: add the area that the host belongs to"
    tags = sorted({tag for tag in (build_slug(group) for group in imported.groups) if tag})
    sides: tuple[_EntryPart, ...] = (
        ({}, (f"its original name is {imported.name}",) if name != imported.name else ()),
        (_build_address_fields(imported), imported.notes),
        _build_key_field(imported),
        _build_host_key_field(imported, name, known_host_lines),
        _build_jump_field(imported, names_by_host),
        ({"area": area}, ()) if area else ({}, (missing_area,)),
        ({"tags": tags} if tags else {}, ()),
    )
    fields: dict[str, Any] = {}
    for side, _ in sides:
        fields |= side
    return InventoryEntry(name, fields, tuple(note for _, notes in sides for note in notes))


def _build_address_fields(imported: ImportedHost) -> dict[str, Any]:
    fields: dict[str, Any] = {"address": imported.address}
    if imported.port != 22:
        fields["port"] = imported.port
    words = {"user": imported.user, "platform": imported.platform}
    return fields | {field: word for field, word in words.items() if word}


def _build_key_field(imported: ImportedHost) -> _EntryPart:
    if not imported.key:
        return {}, ()
    if imported.key.startswith("/") and imported.key.isprintable():
        return {"key": imported.key}, ()
    return {}, (
        f"key: {imported.key} is a personal key: set the key of Keyturn if it is not keys/keyturn",
    )


def _build_host_key_field(
    imported: ImportedHost, name: str, lines: Sequence[known_hosts.KnownHostLine]
) -> _EntryPart:
    known = known_hosts.find_host_key(
        lines, (imported.address, imported.name, *imported.aliases), imported.port
    )
    if known.key:
        return {"host_key": known.key}, ()
    port = ("--port", str(imported.port)) if imported.port != 22 else ()
    platform = ("--platform", imported.platform) if imported.platform else ()
    command = shlex.join(
        ("keyturn", "inventory", "enrol", name, imported.address, *port, *platform)
    )
    return {}, (f"host_key: {known.reason or 'not in known_hosts'}: run `{command}`",)


def _build_jump_field(imported: ImportedHost, names_by_host: Mapping[str, str]) -> _EntryPart:
    if not imported.jump or imported.jump in names_by_host:
        return {"jump": names_by_host[imported.jump]} if imported.jump else {}, ()
    return {}, (f"jump: {imported.jump} is not in the inventory: add it, then set it as jump",)


def _remove_invalid_fields(entry: InventoryEntry) -> InventoryEntry:
    """Remove invalid fields, with a note for each."""
    try:
        Host.model_validate(
            {"host_key": PLACEHOLDER_KEY, "area": "x", **entry.fields, "name": "x"}
        )
    except ValidationError as error:
        bad = {str(problem["loc"][0]): problem for problem in error.errors() if problem["loc"]}
        notes = [
            f"{field}: {entry.fields[field]!r} is invalid and removed: "
            f"{_format_field_error(problem)}"
            for field, problem in bad.items()
        ]
        fields = {key: value for key, value in entry.fields.items() if key not in bad}
        return InventoryEntry(entry.name, fields, (*entry.notes, *notes))
    return entry


def _format_field_error(problem: Mapping[str, Any]) -> str:
    # The error of a validator of ours, without the words that pydantic puts before it.
    message = str(problem.get("ctx", {}).get("error") or problem["msg"])
    return message[:1].lower() + message[1:]


def _use_flow_style(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    sequence = CommentedSeq(value)  # pyright: ignore[reportUnknownArgumentType] - a list of strings
    sequence.fa.set_flow_style()
    return sequence

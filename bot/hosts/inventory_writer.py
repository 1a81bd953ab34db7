"""Entries for inventory.yaml, made of what was found elsewhere, and what they lack. Pure."""

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

_LONGEST_NAME = 63
# Stands in for a key that is not known, so that the rest of an entry can be judged.
SOME_KEY = f"ssh-ed25519 {base64.b64encode(b'....ssh-ed25519').decode()}"


@dataclass(frozen=True)
class Entry:
    """What inventory.yaml is to say of one host. notes: what it lacks, and what to do."""

    name: str
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the inventory would take it as it is."""
        return {"address", "host_key", "area"} <= self.fields.keys()


def build_entries(
    found: Sequence[ImportedHost], known: Sequence[known_hosts.KnownHostLine], *, area: str = ""
) -> tuple[Entry, ...]:
    """Turn what was found into entries whose every field the inventory takes."""
    names = _names(found)
    ours = {each.address: name for each, name in zip(found, names, strict=True)}
    ours |= {each.name: name for each, name in zip(found, names, strict=True)}
    return tuple(
        _judged(_entry(each, name, ours, known, area))
        for each, name in zip(found, names, strict=True)
    )


def entries_to_yaml(entries: Iterable[Entry]) -> str:
    """Write entries below `hosts:`, each with its notes above it."""
    hosts = CommentedMap()
    for entry in entries:
        hosts[entry.name] = CommentedMap(
            {key: _in_a_line(value) for key, value in entry.fields.items()}
        )
        if entry.notes:
            notes = "\n".join(escape_to_one_line(note) for note in entry.notes)
            hosts.yaml_set_comment_before_after_key(entry.name, before=notes, indent=2)
    yaml = YAML()
    yaml.width = 4096  # a key stays on its line
    written = StringIO()
    yaml.dump({"hosts": hosts}, written)
    return written.getvalue()


def entries_to_data(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return what json prints. entry: what inventory.yaml is to say of the host below its name."""
    return [
        {
            "name": entry.name,
            "entry": dict(entry.fields),
            "whole": entry.whole,
            "notes": list(entry.notes),
        }
        for entry in entries
    ]


def make_slug(text: str) -> str:
    """Return the nearest name that the inventory takes; "" if there is nothing left of it."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return words[:_LONGEST_NAME].rstrip("-")


def _names(found: Sequence[ImportedHost]) -> tuple[str, ...]:
    """Name each host; those that would be called the same are numbered."""
    wanted = [make_slug(each.name) or "host" for each in found]
    taken: Counter[str] = Counter()
    names: list[str] = []
    for name in wanted:
        taken[name] += 1
        numbered = name
        while taken[name] > 1 and (numbered in wanted or numbered in names):
            numbered = f"{name[: _LONGEST_NAME - 4]}-{taken[name]}"
            taken[name] += 1
        names.append(numbered)
    return tuple(names)


# What is known of one side of an entry: fields, and notes of what is not known.
_Side = tuple[dict[str, Any], tuple[str, ...]]


def _entry(
    found: ImportedHost,
    name: str,
    ours: Mapping[str, str],
    known: Sequence[known_hosts.KnownHostLine],
    area: str,
) -> Entry:
    lacks_area = "area: say which part of production it belongs to"
    tags = sorted({tag for tag in (make_slug(group) for group in found.groups) if tag})
    sides: tuple[_Side, ...] = (
        ({}, (f"it was called {found.name}",) if name != found.name else ()),
        (_place(found), found.notes),
        _key(found),
        _host_key(found, name, known),
        _jump(found, ours),
        ({"area": area}, ()) if area else ({}, (lacks_area,)),
        ({"tags": tags} if tags else {}, ()),
    )
    fields: dict[str, Any] = {}
    for side, _ in sides:
        fields |= side
    return Entry(name, fields, tuple(note for _, notes in sides for note in notes))


def _place(found: ImportedHost) -> dict[str, Any]:
    told: dict[str, Any] = {"address": found.address}
    if found.port != 22:
        told["port"] = found.port
    words = {"user": found.user, "platform": found.platform}
    return told | {field: word for field, word in words.items() if word}


def _key(found: ImportedHost) -> _Side:
    if not found.key:
        return {}, ()
    if found.key.startswith("/") and found.key.isprintable():
        return {"key": found.key}, ()
    return {}, (
        f"key: {found.key} is what people use: name Keyturn's own, if it is not keys/keyturn",
    )


def _host_key(found: ImportedHost, name: str, lines: Sequence[known_hosts.KnownHostLine]) -> _Side:
    known = known_hosts.find_host_key(
        lines, (found.address, found.name, *found.aliases), found.port
    )
    if known.key:
        return {"host_key": known.key}, ()
    port = ("--port", str(found.port)) if found.port != 22 else ()
    platform = ("--platform", found.platform) if found.platform else ()
    command = shlex.join(("keyturn", "inventory", "enroll", name, found.address, *port, *platform))
    return {}, (f"host_key: {known.why or 'not in known_hosts'}: `{command}` shows it",)


def _jump(found: ImportedHost, ours: Mapping[str, str]) -> _Side:
    if not found.jump or found.jump in ours:
        return {"jump": ours[found.jump]} if found.jump else {}, ()
    return {}, (f"jump: {found.jump} is no host here: add it, and name it as jump",)


def _judged(entry: Entry) -> Entry:
    """Leave out what the inventory would refuse, and say so."""
    try:
        Host.model_validate({"host_key": SOME_KEY, "area": "x", **entry.fields, "name": "x"})
    except ValidationError as error:
        bad = {str(problem["loc"][0]): problem for problem in error.errors() if problem["loc"]}
        notes = [
            f"{field}: {entry.fields[field]!r} is left out: {_why(problem['msg'])}"
            for field, problem in bad.items()
        ]
        fields = {key: value for key, value in entry.fields.items() if key not in bad}
        return Entry(entry.name, fields, (*entry.notes, *notes))
    return entry


def _why(message: str) -> str:
    return (
        message.removeprefix("Value error, ")[:1].lower()
        + message.removeprefix("Value error, ")[1:]
    )


def _in_a_line(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    sequence = CommentedSeq(value)  # pyright: ignore[reportUnknownArgumentType] - of words
    sequence.fa.set_flow_style()
    return sequence

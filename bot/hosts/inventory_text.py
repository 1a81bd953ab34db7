"""Edit the text of inventory.yaml, so that what people wrote there stays as it is."""

import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError


def insert_hosts(text: str, hosts: Mapping[str, Mapping[str, Any]], comment: str) -> str:
    """Return the text of an inventory with hosts after the last one, each below a comment.

    The lines of the other hosts stay as they are. ruamel would write the new ones behind the
    comments that follow the last host, which may belong to the next key.
    """
    line, indent = _find_place(text)
    wanted: Any = YAML(typ="safe", pure=True).load(text)
    entries = {name: dict(fields) for name, fields in hosts.items()}
    wanted["hosts"] = {**(wanted.get("hosts") or {}), **entries}
    lines = text.splitlines()
    added = [
        f"{' ' * indent}{one}"
        for name, fields in entries.items()
        for one in (f"# {comment}", *dump_yaml({name: fields}).splitlines())
    ]
    inserted = "\n".join([*lines[:line], *added, *lines[line:], ""])
    # An alias as the last value, for example, stands elsewhere than its node.
    if line and _is_same_yaml(inserted, wanted):
        return inserted
    data: Any = create_yaml().load(text)
    known = data["hosts"] = data.get("hosts") or CommentedMap()
    known.fa.set_block_style()
    for name, fields in entries.items():
        known[name] = fields
        known.yaml_set_comment_before_after_key(name, before=comment, indent=2)
    return dump_yaml(data)


def change_hosts(
    text: str, changes: Mapping[str, Mapping[str, Any]], removed: Collection[str]
) -> str:
    """Return the text of an inventory with other values of some fields, and without some hosts.

    Comments and the other values stay. Raises ValueError if the text would mean something else.
    """
    wanted: Any = YAML(typ="safe", pure=True).load(text)
    data: Any = create_yaml().load(text)
    for name, fields in changes.items():
        wanted["hosts"][name] = {**(wanted["hosts"][name] or {}), **fields}
        data["hosts"][name] = data["hosts"][name] or CommentedMap()
        data["hosts"][name].update(fields)
    for name in removed:
        del wanted["hosts"][name], data["hosts"][name]
    edited = dump_yaml(data)
    # A host that is an alias of another would have changed that one too.
    if not _is_same_yaml(edited, wanted):
        raise ValueError("hosts of inventory.yaml share lines (& and *): edit it by hand")
    return edited


def _is_same_yaml(text: str, data: object) -> bool:
    try:
        return YAML(typ="safe", pure=True).load(text) == data
    except YAMLError:
        return False


def _find_place(text: str) -> tuple[int, int]:
    """Return after how many lines a host is inserted, and its indentation.

    0 lines where the hosts are written in braces, or nowhere.
    """
    root: Any = create_yaml().compose(text)
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


def create_yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # a key stays on its line
    return yaml


def dump_yaml(data: Any) -> str:
    stream = StringIO()
    create_yaml().dump(data, stream)
    return stream.getvalue()


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, and keep its owner and mode; a symbolic link to it stays one.

    The new file is on the disk before it takes the place of the old one, so a crash leaves one of
    both. Root keeps the owner and any user the group, so that the service can still read a file
    that it could read.
    """
    file = file.resolve()
    new = file.with_name(f".{file.name}.new")
    known = file.stat() if file.exists() else None
    new.unlink(missing_ok=True)  # left by a process that was killed
    # Fails if another process put a link there just now.
    with open(new, "x", encoding="utf-8", opener=_open_private) as stream:
        try:
            if known is not None:
                _keep_owner(stream.fileno(), known)
            os.fchmod(stream.fileno(), stat.S_IMODE(known.st_mode) & 0o777 if known else 0o644)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
            new.replace(file)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _keep_owner(descriptor: int, known: os.stat_result) -> None:
    with suppress(PermissionError):
        os.fchown(descriptor, known.st_uid if os.geteuid() == 0 else -1, known.st_gid)

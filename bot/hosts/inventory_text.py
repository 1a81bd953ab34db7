"""Edit the text of inventory.yaml, so that what people wrote there stays as it is."""

from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError


def insert_host(text: str, name: str, fields: Mapping[str, Any], comment: str) -> str:
    """Return the text of an inventory with a host after the last one.

    The lines of the other hosts stay as they are. ruamel would write the new one behind the
    comments that follow the last host, which may belong to the next key.
    """
    line, indent = _find_place(text)
    wanted: Any = YAML(typ="safe", pure=True).load(text)
    wanted["hosts"] = {**(wanted.get("hosts") or {}), name: dict(fields)}
    entry = dump_yaml({name: dict(fields)}).splitlines()
    lines = text.splitlines()
    added = [f"{' ' * indent}{one}" for one in (f"# {comment}", *entry)]
    inserted = "\n".join([*lines[:line], *added, *lines[line:], ""])
    # An alias as the last value, for example, stands elsewhere than its node.
    if line and _is_same_yaml(inserted, wanted):
        return inserted
    data: Any = create_yaml().load(text)
    hosts = data["hosts"] = data.get("hosts") or CommentedMap()
    hosts.fa.set_block_style()
    hosts[name] = dict(fields)
    hosts.yaml_set_comment_before_after_key(name, before=comment, indent=2)
    return dump_yaml(data)


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

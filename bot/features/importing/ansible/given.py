"""The arguments of a module of Ansible.

Each argument has to be taken: a task with one that is not read has no plain meaning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.template_values import ROLE, Facts
from bot.features.importing.ansible.variables import find_folder
from bot.features.importing.drafts import Unclear, show_marks
from bot.features.importing.sources import (
    Plain,
    SourceError,
    as_list,
    is_false,
    is_file_within,
    is_list,
    is_true,
    read_bytes,
)

# How it is done, not what.
_NO_MEANING = frozenset(
    {"backup", "update_cache_retries", "update_cache_retry_max_delay", "lock_timeout"}
)  # fmt: skip


_PATHS = frozenset({"path", "dest", "destfile"})


class Given:
    """The arguments of a module, each of which has to be taken."""

    def __init__(
        self,
        file: Path,
        given: Mapping[str, Any],
        fill: Callable[..., str],
        facts: Facts,
        changed: Sequence[str] = (),
        *,
        is_asked: bool = False,
        shown: Sequence[str] = (),
    ) -> None:
        """changed: when the steps are needed after which it runs, if it runs only after some.

        is_asked: whether the draft asks which those are. shown: what else has to hold, all of it,
        if the page reads all that the task asks for.
        """
        self.shown = shown
        self._file, self.fill, self.facts = file, fill, facts
        self.changed, self.is_asked = changed, is_asked
        self.notes: list[str] = []
        """What the result says of the step."""
        self._given = {key: value for key, value in given.items() if key not in _NO_MEANING}

    def take(self, *names: str, default: str = "") -> str:
        """Return an argument as text, by the first of its names. Raises Unclear."""
        for name in names:
            if name in self._given:
                text = _read_text(name, self._given.pop(name))
                return re.sub("//+", "/", text) if name in _PATHS else text
        return default

    def take_flag(self, *names: str, default: bool = False) -> bool:
        """Return an argument that is yes or no. Raises Unclear for any other text."""
        value = self.take(*names)
        if value and not (is_true(value) or is_false(value)):
            raise Unclear(f"its {names[0]} is {value[:40]}, which is neither yes nor no")
        return is_true(value) if value else default

    def take_presence(self) -> bool:
        """Return whether the state is present, and not absent. Raises Unclear."""
        state = self.take("state", default="present")
        if state not in ("present", "absent"):
            raise Unclear(f"the state {state[:40]} is not read")
        return state == "present"

    def take_list(self, *names: str) -> list[str]:
        for name in names:
            value = self._given.pop(name, None)
            if is_list(value):
                return [_read_text(name, each) for each in as_list(value)]
            if value is not None:
                return [one.strip() for one in _read_text(name, value).split(",")]
        return []

    def has(self, name: str) -> bool:
        return name in self._given

    def take_attributes(self) -> dict[str, str]:
        return {name: self.take(name) for name in ("mode", "owner", "group")}

    def read_file(self, folder: str, name: str) -> str:
        """Return the content of a file beside the playbook, or of its role. Raises Unclear."""
        place, role = self._file.absolute().parent, find_folder(self._file)
        if name.startswith(f"{ROLE}/"):
            name, folder, place = name.removeprefix(f"{ROLE}/"), ".", role
        if not name or name.startswith("/") or ".." in Path(name).parts or "\x01" in name:
            raise Unclear(f"its source {show_marks(name)[:80]!r} is no file beside the playbook")
        for file in (role / folder / name, role / name, place / folder / name, place / name):
            if is_file_within(file, role):
                try:
                    return read_bytes(file).decode()
                except (UnicodeDecodeError, SourceError):
                    raise Unclear(f"{name} is no small file of text") from None
        raise Unclear(f"its source {name[:80]} is not beside the playbook")

    def refuse_unless(self, name: str, *plain: str) -> None:
        """Take an argument that has to be as it is without it, or alike. Raises Unclear."""
        value = self.take(name, default=plain[0])
        if value not in plain and value.lower() not in plain:
            raise Unclear(f"its argument {name} is not read")

    def refuse_rest(self) -> None:
        if self._given:
            raise Unclear(f"its argument {next(iter(self._given))} is not read")


def _read_text(name: str, value: object) -> str:
    """Return an argument as the text that Ansible takes it for. Raises Unclear."""
    if name == "mode" and isinstance(value, int):
        raise Unclear(
            f"the mode {value} without quotation marks and a 0 before it is no octal one"
        )
    # With it, it is octal to Ansible too.
    if isinstance(value, Plain) and name != "mode":
        value = value.read()
    if not isinstance(value, str | int):
        raise Unclear(f"{name} is not one value")
    return str(value)

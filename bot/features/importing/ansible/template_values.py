"""Values of templates that no file decides, and the facts of hosts."""

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateRuntimeError

ROLE = "\x03role"
"""What stands in a text for the folder of its role, which only a source may begin with."""
OMIT = object()
"""The value of `omit`: an argument that is not given."""
FOR_RUN = frozenset({"lookup", "query", "q", "vars", "now", "undef", "loop", "environment"})
# Facts of which all supported hosts have the first number alike, or the system says it.
_PARTIAL = frozenset({"distribution_version", "python_version"})
# Parts of what a task registers, which may be one of a file that is not read.
OF_RESULTS = frozenset(
    {"stdout", "stderr", "stdout_lines", "stderr_lines", "rc", "stat", "results", "changed",
     "failed", "skipped", "msg", "content", "json", "status", "invocation", "ansible_facts"}
)  # fmt: skip
# A name of its own, and neither a fact of a host nor what a loop or the inventory has.
_SIMPLE = re.compile(r"(?!(?:ansible|group|hostvars|item|omit|role|play)(?:_|s?\b))[A-Za-z_]\w*")


class NotKnownError(TemplateRuntimeError):
    """What the files do not decide. No ValueError, which the filters of Jinja take for a 0."""


class Unset(StrictUndefined):
    """A variable that no file sets, or a part of one."""

    reason = "no file sets {}"

    def __init__(self, variable: str) -> None:
        """variable: its name, and the place in it, such as `spark.home` or `users[].name`."""
        said = self.reason.format(variable)
        super().__init__(hint=f"it computes a value: {said}", exc=NotKnownError)
        self.variable = variable

    def get_part(self, key: object) -> "Unset":
        if key in OF_RESULTS:
            raise NotKnownError(
                f"it computes a value: {self.variable}.{key} is known only in a run"
            )
        return type(self)(f"{self.variable}.{key}")


class ListItem(Unset):
    """An item of a list that only an inventory has, or a part of one."""

    reason = "only an inventory has {}"


class Unknown(StrictUndefined):
    """What only a run knows: any use of it is unclear."""


class PartialVersion(Unknown):
    """A version of which only the first numbers are known, such as 12 of 12.7."""

    def __init__(self, known: str) -> None:
        super().__init__(hint=f"it depends on which version {known}.x is meant", exc=NotKnownError)
        self.known = [*map(int, known.split("."))]


class Facts(dict[str, Any]):
    """The facts of the hosts that a draft is for; each that is used is noted."""

    def __init__(self, facts: Mapping[str, Any], *, is_pattern: bool = False) -> None:
        """is_pattern: whether a fact that is not known is *, for the names of files."""
        super().__init__(facts)
        self.used = set[str]()
        self.is_pattern = is_pattern

    def has(self, key: str) -> bool:
        return self.is_pattern or super().__contains__(key) or key in _PARTIAL

    def __getitem__(self, key: str) -> Any:
        if not self.has(key):
            raise NotKnownError(f"it depends on the fact {key} of a host")
        self.used.add(key)
        if super().__contains__(key):
            return super().__getitem__(key)
        major = super().get("distribution_major_version", "")
        if self.is_pattern:
            return f"{major}*" if key == "distribution_version" else "*"
        return PartialVersion(major if key == "distribution_version" else "3")

    def add_root(self) -> None:
        """Add what is known of who gathers the facts, if that is root.

        By sudo -H, as by a login: https://docs.ansible.com/ansible/latest/collections/ansible/builtin/sudo_become.html
        """
        env = {"HOME": "/root", "USER": "root", "LOGNAME": "root"}
        self.update({"user_id": "root", "user_dir": "/root", "env": Facts(env)})

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002 - as of any mapping
        return self[key]

    def __contains__(self, key: object) -> bool:
        raise NotKnownError("it asks which facts there are")


def is_simple(name: str) -> bool:
    """Return whether a name may be one of a variable that an inventory sets."""
    return name not in FOR_RUN and _SIMPLE.fullmatch(name) is not None

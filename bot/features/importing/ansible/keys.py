"""Keys of a task that change how it runs: those that a step says, and those that none can say.

Source: https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from bot.features.importing.ansible.play import LINES, Task, as_parts
from bot.features.importing.ansible.variables import list_conditions
from bot.features.importing.drafts import Unclear, has_mark
from bot.features.importing.sources import as_mapping, is_false, is_mapping, is_true

# What changes how a task runs, and a step cannot say: always, or unless it is false.
ODD_KEYS = ("environment", "until", "failed_when", "async", "poll")
ODD_FLAGS = ("ignore_errors", "check_mode", "run_once")
ONE_HOST = "whether this host is the one of all that it ran on, with run_once"
_DONE = re.compile(
    r"\s*\(?\s*(?:(\w+)\s*(?:is\s+|\|\s*)(?:succeeded|success|successful|not\s+failed)"
    r"|not\s+(\w+)\.failed|(\w+)\.rc\s*==\s*0|(\w+)\.failed\s*==\s*[Ff]alse)\s*\)?\s*"
)
_FAILED = re.compile(
    r"\s*\(?\s*(?:(\w+)\s*(?:is\s+|\|\s*)(?:failed|failure)|(\w+)\.failed"
    r"|(\w+)\.rc\s*(?:!=|>)\s*0)\s*\)?\s*"
)
# Some of the numbers with which a command fails.
_FAILED_SO = re.compile(
    r"\s*\(?\s*(\w+)\.rc\s*(?:not\s+in\s+\[\s*0\s*(?:,\s*[0-9]+\s*)*\]|(?:>=?|==)\s*[1-9][0-9]*)"
    r"\s*\)?\s*"
)
# What a module acts on only if it needs a network, and what nothing acts on that asks nothing.
_OF_NETWORK = re.compile(r"(?:https?|ftp|no|all|rsync)_proxy", re.IGNORECASE)
_NO_MEANING = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|DEBIAN_FRONTEND|DEBIAN_PRIORITY")
_ALONE = frozenset(
    ["file", "copy", "template", "lineinfile", "blockinfile", "replace", "sysctl", "modprobe",
     "user", "group", "cron", "hostname", "timezone", "authorized_key", "alternatives",
     "service", "systemd", "systemd_service"]
)  # fmt: skip


def list_odd_keys(task: Task) -> list[str]:
    """Return the keys of a task that change how it runs, where they may mean something."""
    raw = task.raw
    keys = [key for key in ("until", "failed_when") if key in raw]
    keys += [key for key in ("ignore_errors", "check_mode") if not is_false(raw.get(key, "no"))]
    if _is_failure(raw):
        keys.remove("failed_when")
    # Without a poll of 0, Ansible waits for it.
    if "async" in raw and not re.fullmatch("[1-9][0-9]*", str(raw.get("poll", "15"))):
        keys.append("async")
    if "environment" in raw and not _is_without_meaning(task):
        keys.append("environment")
    return keys


def may_fail(raw: Mapping[str, Any]) -> set[str]:
    """Return the keys with which Ansible goes on, or tries again, after a task that failed."""
    known = {
        "until": _is_of(raw, "until", _DONE),
        "failed_when": is_false(raw.get("failed_when"))
        or any(_is_of(raw, "failed_when", one) for one in (_FAILED, _FAILED_SO)),
    }
    return {"ignore_errors"} | {key for key, is_so in known.items() if is_so}


def is_check(raw: Mapping[str, Any]) -> bool:
    """Return whether a task never changes anything, but says what it would change."""
    return is_true(raw.get("check_mode"))


def _is_of(raw: Mapping[str, Any], key: str, kind: re.Pattern[str]) -> bool:
    """Return whether a part of what has to hold is of a kind, and of what the task registers."""
    parts = list_conditions({"when": raw.get(key, [])})
    found = [one for one in map(kind.fullmatch, parts) if one]
    return any(raw.get("register") in one.groups() for one in found)


def _is_failure(raw: Mapping[str, Any]) -> bool:
    """Return whether a task fails as it does anyway."""
    is_one = len(as_parts(raw.get("failed_when"))) == 1
    return (
        is_one and _is_of(raw, "failed_when", _FAILED) and " and " not in str(raw["failed_when"])
    )


def _is_without_meaning(task: Task) -> bool:
    try:
        is_empty = not read_environment(task)
    except Unclear:
        is_empty = False
    is_module = task.module not in LINES
    return is_empty or (is_module and has_plain_environment(task, is_alone=task.module in _ALONE))


def has_plain_environment(task: Task, *, is_alone: bool = True) -> bool:
    """Return whether nothing acts on an environment, where no one answers questions.

    is_alone: whether what runs needs no network.
    """
    try:
        names = {*read_environment(task)}
    except Unclear:
        parts = as_parts(task.raw["environment"])
        if not all(map(is_mapping, parts)):
            return False
        names = {str(name) for one in parts for name in as_mapping(one)}
    return all(
        _NO_MEANING.fullmatch(one) or (is_alone and _OF_NETWORK.fullmatch(one)) for one in names
    )


def read_environment(task: Task) -> dict[str, str]:
    """Return the variables that a task's programs get. Raises Unclear."""
    found = dict[str, str]()
    for part in as_parts(task.raw.get("environment", {})):
        # The name of a variable alone stands for it in old files.
        is_name = isinstance(part, str) and re.fullmatch(r"[A-Za-z_]\w*", part)
        given = task.scope.evaluate(f"{{{{ {part} }}}}" if is_name else part)
        if not is_mapping(given):
            raise Unclear("its environment is not known")
        found |= {str(key): str(each) for key, each in as_mapping(given).items()}
    return found


def set_environment(task: Task) -> str:
    """Return lines that give what follows the environment of a task. Raises Unclear."""
    pairs = read_environment(task)
    for name, value in pairs.items():
        is_plain = value.isascii() and value.isprintable() and not has_mark(value)
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or not is_plain:
            raise Unclear(f"its environment has {name}, which is no plain text")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in pairs.items())

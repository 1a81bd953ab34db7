"""Lint the shell lines of a declared runbook with shellcheck, where it is installed."""

import json
import subprocess
from collections.abc import Iterator
from shutil import which
from typing import Any

from runbooks import AnyRunbook
from runbooks._declared import get_source, is_declared
from runbooks._declared_yaml import KeyPath

MISSING = (
    "its scripts were not checked, since shellcheck is not installed: install the package "
    "shellcheck"
)
_COMMAND = ("shellcheck", "--shell=sh", "--format=json", "-")
_SECONDS = 30


def has_scripts(runbook: type[AnyRunbook]) -> bool:
    """Return whether a runbook is a page with lines for a shell."""
    return any(True for _ in _iterate_scripts(runbook))


def is_installed() -> bool:
    return which(_COMMAND[0]) is not None


def lint_scripts(runbook: type[AnyRunbook]) -> Iterator[str]:
    """Yield what shellcheck finds in the scripts of a page, each with its place.

    Nothing where it is not installed.
    """
    for path, script in _iterate_scripts(runbook) if is_installed() else ():
        ran = subprocess.run(
            _COMMAND,
            input=script,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        for found in json.loads(ran.stdout or "[]"):
            yield str(get_source(runbook).page.make_error(path, _describe(found)))


def _describe(found: dict[str, Any]) -> str:
    message = str(found["message"]).rstrip(".")
    return f"line {found['line']} of this script: {message} (shellcheck SC{found['code']})"


def _iterate_scripts(runbook: type[AnyRunbook]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place of each script in its page, and its lines."""
    if not is_declared(runbook):
        return
    part = get_source(runbook).part
    for at, step in enumerate(part.steps):
        for name, command in (("do", step.do), ("undo", step.undo)):
            if command and command.script:
                yield ("steps", at, name, "script"), command.script
    if part.probation and part.probation.restore:
        yield ("probation", "restore"), part.probation.restore

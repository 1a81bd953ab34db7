"""Runbooks and dialects of an installation's own, in a directory that is laid out as Keyturn is.

    <directory>/runbooks/hugepages_set.py
    <directory>/connectors/hugepages.py

They are found as those that come with Keyturn are, and run with its keys. So nobody but root and
whoever Keyturn runs as may write there, and none of them takes the place of one of Keyturn's.
"""

import ast
import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from connectors.permissions import find_writer, find_writer_above, list_trusted_owners

# The environment's word for the directory; without it there is none.
SETTING = "KEYTURN_RUNBOOKS"
# Dialects first: what is wrong with one is told of its own file.
_PACKAGES = ("connectors", "runbooks")
# A runbook says what is to be asked and done; what it would do by itself nobody could approve.
_OUT_OF_REACH = frozenset(
    {"asyncio", "bot", "httpx2", "netmiko", "paramiko", "socket", "sqlalchemy", "subprocess"}
)
_taken: set[str] = set()


class BadOwn(ValueError):
    """What stands in the directory cannot be used, and so nothing is."""


def take_in() -> None:
    """Have them found along with Keyturn's own. Raises BadOwn."""
    named = os.environ.get(SETTING, "")
    if not named:
        return
    directory = Path(named).absolute()
    try:
        trouble = find_writer_above(directory, list_trusted_owners())
    except OSError as error:
        raise BadOwn(f"{directory}: {error.strerror}") from None
    if trouble:
        raise BadOwn(f"{trouble}, as it runs with our keys")
    files = [file for name in _PACKAGES for file in _files(directory / name)]
    if not files:
        raise BadOwn(f"{directory} holds no module in runbooks/ nor in connectors/")
    for file in files:
        _check(file)
    for name in _PACKAGES:
        package = importlib.import_module(name)
        package.__path__ = [*package.__path__[:1], str(directory / name)]
    importlib.invalidate_caches()
    _taken.update(_loaded(file).__name__ for file in files)


def is_own(module: str) -> bool:
    """Say whether a module is this installation's, and did not come with Keyturn."""
    return module in _taken


def _files(place: Path) -> Sequence[Path]:
    if not place.is_dir():
        return ()
    _check_writers(place)
    # What marks a package elsewhere says nothing here.
    return [file for file in sorted(place.glob("*.py")) if file.name != "__init__.py"]


def _check(file: Path) -> None:
    _check_writers(file)
    if not file.stem.isidentifier():
        raise BadOwn(f"{file}: name it as Python names modules, by letters, digits and _")
    package = importlib.import_module(file.parent.name)
    if (Path(package.__path__[0]) / file.name).exists():
        raise BadOwn(f"{file}: Keyturn has a module of this name: choose another")
    if file.parent.name == "runbooks":
        _check_reach(file)


def _check_writers(path: Path) -> None:
    try:
        trouble = find_writer(path, list_trusted_owners())
    except OSError as error:
        raise BadOwn(f"{path}: {error.strerror}") from None
    if trouble:
        raise BadOwn(f"{trouble}, as it runs with our keys")


def _check_reach(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), file.name)
    except (SyntaxError, ValueError) as trouble:
        raise _spoilt(file, trouble) from None
    for node in ast.walk(tree):
        for name in _imported(node):
            if name.partition(".")[0] in _OUT_OF_REACH:
                raise BadOwn(
                    f"{file}: line {getattr(node, 'lineno', 1)}: a runbook does not use {name}: "
                    "what is asked and done goes through its read and its plan"
                )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""


def _loaded(file: Path) -> ModuleType:
    try:
        return importlib.import_module(f"{file.parent.name}.{file.stem}")
    except Exception as trouble:
        raise _spoilt(file, trouble) from trouble


def _spoilt(file: Path, trouble: Exception) -> BadOwn:
    if isinstance(trouble, SyntaxError):
        return BadOwn(f"{file}: line {trouble.lineno}: {trouble.msg}")
    line = f"line {at}: " if (at := _line_in(file, trouble)) else ""
    return BadOwn(f"{file}: {line}{type(trouble).__name__}: {trouble}")


def _line_in(file: Path, trouble: Exception) -> int | None:
    """Return the line of the file at which it went wrong, if it was in there."""
    at, trace = None, trouble.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            at = trace.tb_lineno
        trace = trace.tb_next
    return at

"""Runbooks and dialects of an installation's own, in a directory that is laid out as Keyturn is.

    <directory>/runbooks/hugepages_set.py
    <directory>/connectors/hugepages.py

They are found as those that come with Keyturn are, and run with its keys. So nobody but root and
whoever Keyturn runs as may write there, and none of them takes the place of one of Keyturn's.
"""

import ast
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from connectors.permissions import find_writer, find_writer_above, list_trusted_owners

# The environment's word for the directory; without it there is none.
SETTING = "KEYTURN_RUNBOOKS"
# Dialects first: what is wrong with one is told of its own file.
_PACKAGES = ("connectors", "runbooks")
# A lint, and no barrier: nothing in Python keeps code from what the process itself can do. A
# runbook says what is to be asked and done; what it would do by itself nobody could approve.
_FORBIDDEN = frozenset(
    """
    aiohttp asyncio bot builtins concurrent ctypes ftplib http httpx httpx2 importlib
    multiprocessing netmiko os paramiko pickle psycopg pty requests runpy shutil signal smtplib
    socket socketserver sqlalchemy sqlite3 ssl subprocess sys tempfile threading urllib urllib3
    connectors.device connectors.fetcher connectors.fleet connectors.key_file connectors.password
    connectors.permissions connectors.ssh connectors.ssh_pool connectors.ssh_stream
    connectors.ssh_transport
    """.split()  # noqa: SIM905 - forty names are read more easily so
)
# What only computes, of packages that otherwise reach out.
_ALLOWED = frozenset({"http.HTTPStatus", "urllib.parse"})
_FORBIDDEN_CALLS = frozenset({"__import__", "breakpoint", "compile", "eval", "exec", "open"})
_digests: dict[str, str] = {}


class OwnRunbookError(ValueError):
    """What stands in the directory cannot be used, and so nothing is."""


def load_own_modules() -> None:
    """Have them found along with Keyturn's own. Raises OwnRunbookError."""
    named = os.environ.get(SETTING, "")
    if not named:
        return
    directory = Path(named).absolute()
    try:
        trouble = find_writer_above(directory, list_trusted_owners())
    except OSError as error:
        raise OwnRunbookError(f"{directory}: {error.strerror}") from None
    if trouble:
        raise OwnRunbookError(f"{trouble}, as it runs with our keys")
    files = [file for name in _PACKAGES for file in _list_files(directory / name)]
    if not files:
        raise OwnRunbookError(f"{directory} holds no module in runbooks/ nor in connectors/")
    for file in files:
        _check_module(file)
    for name in _PACKAGES:
        package = importlib.import_module(name)
        package.__path__ = [*package.__path__[:1], str(directory / name)]
    importlib.invalidate_caches()
    _digests.update(
        {_load_module(file).__name__: sha256(file.read_bytes()).hexdigest() for file in files}
    )


def is_own(module: str) -> bool:
    """Say whether a module is this installation's, and did not come with Keyturn."""
    return module in _digests


def list_digests() -> Mapping[str, str]:
    """Return the SHA-256 of each file, by its module."""
    return dict(_digests)


def _list_files(place: Path) -> Sequence[Path]:
    if not place.is_dir():
        return ()
    _check_writers(place)
    # What marks a package elsewhere says nothing here.
    return [file for file in sorted(place.glob("*.py")) if file.name != "__init__.py"]


def _check_module(file: Path) -> None:
    _check_writers(file)
    if not file.stem.isidentifier():
        raise OwnRunbookError(f"{file}: name it as Python names modules, by letters, digits and _")
    package = importlib.import_module(file.parent.name)
    if (Path(package.__path__[0]) / file.name).exists():
        raise OwnRunbookError(f"{file}: Keyturn has a module of this name: choose another")
    _refuse_forbidden_names(file)


def _check_writers(path: Path) -> None:
    try:
        trouble = find_writer(path, list_trusted_owners())
    except OSError as error:
        raise OwnRunbookError(f"{path}: {error.strerror}") from None
    if trouble:
        raise OwnRunbookError(f"{trouble}, as it runs with our keys")


def _refuse_forbidden_names(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), file.name)
    except (SyntaxError, ValueError) as trouble:
        raise _make_load_error(file, trouble) from None
    for node in ast.walk(tree):
        for name in (*_list_imports(node), *_list_calls(node)):
            if _is_forbidden(name):
                raise OwnRunbookError(
                    f"{file}: line {getattr(node, 'lineno', 1)}: a runbook does not use {name}: "
                    "what is asked and done goes through its read and its plan"
                )


def _is_forbidden(name: str) -> bool:
    parts = name.split(".")
    beginnings = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return bool(beginnings & _FORBIDDEN) and not beginnings & _ALLOWED


def _list_imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def _list_calls(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in _FORBIDDEN_CALLS:
            yield f"builtins.{name}"


def _load_module(file: Path) -> ModuleType:
    try:
        return importlib.import_module(f"{file.parent.name}.{file.stem}")
    except Exception as trouble:
        raise _make_load_error(file, trouble) from trouble


def _make_load_error(file: Path, trouble: Exception) -> OwnRunbookError:
    if isinstance(trouble, SyntaxError):
        return OwnRunbookError(f"{file}: line {trouble.lineno}: {trouble.msg}")
    line = f"line {at}: " if (at := _find_line(file, trouble)) else ""
    return OwnRunbookError(f"{file}: {line}{type(trouble).__name__}: {trouble}")


def _find_line(file: Path, trouble: Exception) -> int | None:
    """Return the line of the file at which it went wrong, if it was in there."""
    at, trace = None, trouble.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            at = trace.tb_lineno
        trace = trace.tb_next
    return at

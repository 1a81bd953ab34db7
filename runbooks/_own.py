"""Own runbooks and connectors of an installation, in directories with the same layout as Keyturn.

    <directory>/runbooks/hugepages_set.py
    <directory>/connectors/hugepages.py

One directory is named in KEYTURN_RUNBOOKS. Others are those of installed packages that name
themselves by an entry point:

    [project.entry-points."keyturn.runbooks"]
    acme = "acme_keyturn"

All are loaded like the modules of Keyturn, and run with its keys. So only root and Keyturn's own
user may write there, and none of them can replace one of Keyturn's.
"""

import ast
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from connectors.permissions import find_writer, find_writer_above, list_trusted_owners

# The environment variable with the directory.
SETTING = "KEYTURN_RUNBOOKS"
# The group of entry points by which packages bring runbooks.
ENTRY_POINTS = "keyturn.runbooks"
# Connectors first, so that an error in one is reported for its own file.
_PACKAGES = ("connectors", "runbooks")
# This is a check against mistakes, not a sandbox: Python code can do anything that the process
# can. A runbook describes queries and commands; what it did by itself no one could approve.
_FORBIDDEN = frozenset(
    """
    aiohttp asyncio bot builtins concurrent ctypes ftplib http httpx httpx2 importlib
    multiprocessing netmiko os paramiko pickle psycopg pty requests runpy shutil signal smtplib
    socket socketserver sqlalchemy sqlite3 ssl subprocess sys tempfile threading urllib urllib3
    connectors.device connectors.fetcher connectors.fleet connectors.key_file connectors.password
    connectors.permissions connectors.ssh connectors.ssh_pool connectors.ssh_stream
    connectors.ssh_transport
    """.split()  # noqa: SIM905 - forty names are easier to read this way
)
# Parts of forbidden packages that only compute.
_ALLOWED = frozenset({"http.HTTPStatus", "urllib.parse"})
_FORBIDDEN_CALLS = frozenset({"__import__", "breakpoint", "compile", "eval", "exec", "open"})
_digests: dict[str, str] = {}


class OwnRunbookError(ValueError):
    """A file in the directory cannot be used, so none of them is."""


def load_own_modules() -> None:
    """Load the installation's own modules beside Keyturn's. Raises OwnRunbookError."""
    directories = _list_directories()
    files = [
        file
        for name in _PACKAGES
        for directory in directories
        for file in _list_files(directory / name)
    ]
    if not files:
        return
    for file in files:
        _check_module(file)
    _refuse_same_names(files)
    for name in _PACKAGES:
        package = importlib.import_module(name)
        package.__path__ = [*package.__path__[:1], *(str(each / name) for each in directories)]
    importlib.invalidate_caches()
    _digests.update(
        {_load_module(file).__name__: sha256(file.read_bytes()).hexdigest() for file in files}
    )


def is_own(module: str) -> bool:
    """Return whether a module is the installation's own, not part of Keyturn."""
    return module in _digests


def list_digests() -> Mapping[str, str]:
    """Return the SHA-256 of each file, by its module."""
    return dict(_digests)


def list_digests_behind(module: str) -> Mapping[str, str]:
    """Return the SHA-256 of each own file that can take part in a runbook, by its module.

    These are its own file, and all of those that are no runbooks: it may use any of them.
    """
    return {
        name: digest
        for name, digest in _digests.items()
        if name == module or not name.startswith("runbooks.") or name.startswith("runbooks._")
    }


def _list_directories() -> Sequence[Path]:
    """Return the directories with own modules, that of the setting first."""
    setting = os.environ.get(SETTING, "")
    directories = [Path(setting).absolute()] if setting else []
    for entry in sorted(entry_points(group=ENTRY_POINTS)):
        spec = find_spec(entry.value) if entry.value.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise OwnRunbookError(
                f"the entry point {entry.name} names {entry.value}, which is not a package with "
                "runbooks/ and connectors/: correct it, or uninstall the package"
            )
        directories.append(Path(spec.submodule_search_locations[0]).absolute())
    for directory in directories:
        _check_directory(directory)
    return directories


def _check_directory(directory: Path) -> None:
    try:
        problem = find_writer_above(directory, list_trusted_owners())
    except OSError as error:
        raise OwnRunbookError(f"{directory}: {error.strerror}") from None
    if problem:
        raise OwnRunbookError(f"{problem}, since it runs with Keyturn's keys")
    if not any(_list_files(directory / name) for name in _PACKAGES):
        raise OwnRunbookError(f"{directory} has no module in runbooks/ or connectors/")


def _refuse_same_names(files: Sequence[Path]) -> None:
    by_name: dict[tuple[str, str], Path] = {}
    for file in files:
        other = by_name.setdefault((file.parent.name, file.name), file)
        if other != file:
            raise OwnRunbookError(f"{file}: {other} has the same name: choose another")


def _list_files(place: Path) -> Sequence[Path]:
    if not place.is_dir():
        return ()
    _check_writers(place)
    # The directory extends a package, so an __init__.py in it has no meaning.
    return [file for file in sorted(place.glob("*.py")) if file.name != "__init__.py"]


def _check_module(file: Path) -> None:
    _check_writers(file)
    if not file.stem.isidentifier():
        raise OwnRunbookError(f"{file}: use only letters, digits and _ in the name of a module")
    package = importlib.import_module(file.parent.name)
    if (Path(package.__path__[0]) / file.name).exists():
        raise OwnRunbookError(f"{file}: Keyturn has a module with this name: choose another")
    _refuse_forbidden_names(file)


def _check_writers(path: Path) -> None:
    try:
        problem = find_writer(path, list_trusted_owners())
    except OSError as error:
        raise OwnRunbookError(f"{path}: {error.strerror}") from None
    if problem:
        raise OwnRunbookError(f"{problem}, since it runs with Keyturn's keys")


def _refuse_forbidden_names(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), file.name)
    except (SyntaxError, ValueError) as error:
        raise _make_load_error(file, error) from None
    for node in ast.walk(tree):
        for name in (*_list_imports(node), *_list_calls(node)):
            if _is_forbidden(name):
                raise OwnRunbookError(
                    f"{file}: line {getattr(node, 'lineno', 1)}: a runbook may not use {name}: "
                    "use queries in its read() and commands in its plan()"
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
    except Exception as error:
        raise _make_load_error(file, error) from error


def _make_load_error(file: Path, error: Exception) -> OwnRunbookError:
    if isinstance(error, SyntaxError):
        return OwnRunbookError(f"{file}: line {error.lineno}: {error.msg}")
    line = f"line {at}: " if (at := _find_line(file, error)) else ""
    return OwnRunbookError(f"{file}: {line}{type(error).__name__}: {error}")


def _find_line(file: Path, error: Exception) -> int | None:
    """Return the line of the file that raised the error, if it was in that file."""
    at, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            at = trace.tb_lineno
        trace = trace.tb_next
    return at

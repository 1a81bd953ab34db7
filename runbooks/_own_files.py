"""Read the own runbooks and connectors of an installation, without executing any of them.

    <directory>/runbooks/swappiness_set.yaml    a page, which is data
    <directory>/runbooks/hugepages_set.py       a class, which is code
    <directory>/connectors/hugepages.py

One directory is named in KEYTURN_RUNBOOKS. Others are those of installed packages that name
themselves by an entry point:

    [project.entry-points."keyturn.runbooks"]
    acme = "acme_keyturn"

Each file is read once. The same bytes are hashed, checked and executed, so what two people have
enabled cannot be exchanged afterwards. Only root and Keyturn's own user may write any directory on
the way, and no file can replace one of Keyturn's.
"""

import ast
import importlib
import os
import stat
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from connectors.permissions import (
    list_trusted_owners,
    open_trusted_directory,
    open_trusted_entry,
)
from runbooks._declared import SUFFIX, PageSource, check_page, make_class
from runbooks._declared_yaml import PageError

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
    connectors.api_client connectors.device connectors.fleet connectors.https connectors.key_file
    connectors.password connectors.permissions connectors.ssh connectors.ssh_pool
    connectors.ssh_stream connectors.ssh_transport
    """.split()  # noqa: SIM905 - forty names are easier to read this way
)
# Parts of forbidden packages that only compute.
_ALLOWED = frozenset({"http.HTTPStatus", "urllib.parse"})
# Also those that were edited since; a page takes 10 KB.
_MAX_PAGES = 10_000
_FORBIDDEN_CALLS = frozenset({"__import__", "breakpoint", "compile", "eval", "exec", "open"})


class OwnRunbookError(ValueError):
    """A file in the directory cannot be used, so none of them is."""


@dataclass(frozen=True)
class OwnFile:
    """One file of the installation's own, as it was read."""

    path: Path
    content: bytes
    """What is hashed is what is executed."""
    words: tuple[str, ...]
    """The words of the runbooks that it defines."""
    page: PageSource | None = None
    """Of a page of YAML, which is data: what it says."""

    @property
    def module(self) -> str:
        return f"{self.path.parent.name}.{self.path.stem}"

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in 64 hex digits."""
        return sha256(self.content).hexdigest()

    def check_page(self) -> None:
        """Check all of a page. Raises OwnRunbookError."""
        try:
            if self.page:
                check_page(make_class(self.page))
        except PageError as error:
            raise OwnRunbookError(f"{self.path}: {error}") from None

    @property
    def is_shared(self) -> bool:
        """Whether each own runbook can use it: it is a connector or begins with "_"."""
        return is_shared_module(self.module)


def is_shared_module(module: str) -> bool:
    """Return whether a module is for several runbooks, such as a connector."""
    return not module.startswith("runbooks.") or module.startswith("runbooks._")


def read_own_files() -> Sequence[OwnFile]:
    """Read and check every file, and execute none. Raises OwnRunbookError."""
    directories = list(_iterate_directories())
    files = [
        file
        for package in _PACKAGES
        for directory in directories
        for file in _read_directory(directory, package)
    ]
    _refuse_same_names(files)
    _refuse_same_words(files)
    return files


def _iterate_directories() -> Iterator[Path]:
    """Yield the directories with own modules, that of the setting first."""
    setting = os.environ.get(SETTING, "")
    if setting:
        yield Path(setting).absolute()
    for entry in sorted(entry_points(group=ENTRY_POINTS)):
        # For a name without dots, nothing of the package is imported.
        spec = find_spec(entry.value) if entry.value.isidentifier() else None
        if spec is None or not spec.submodule_search_locations:
            raise OwnRunbookError(
                f"the entry point {entry.name} names {entry.value}, which is not a package with "
                "runbooks/ and connectors/: correct it, or uninstall the package"
            )
        yield Path(spec.submodule_search_locations[0]).absolute()


def _read_directory(directory: Path, package: str) -> Sequence[OwnFile]:
    """Read the modules of one package in a directory, whose writers are all trusted."""
    owners = list_trusted_owners()
    try:
        with _closing(open_trusted_directory(directory, owners)) as above:
            names = _list_names(above)
            if not names & {*_PACKAGES}:
                raise OwnRunbookError(
                    f"{directory} has no module in runbooks/ or connectors/: put your runbooks "
                    f"into {directory / 'runbooks'}, or correct {SETTING}"
                )
            if package not in names:
                return ()
            place = directory / package
            with _closing(open_trusted_entry(above, place, owners, os.O_DIRECTORY)) as here:
                modules = sorted(filter(_is_module, _list_names(here)))
                return [_read_module(here, place / name, owners) for name in modules]
    except FileNotFoundError as error:
        raise OwnRunbookError(
            f"{directory}: {error.strerror}: create it with the folder runbooks, or correct "
            f"{SETTING}"
        ) from None
    except OSError as error:
        # Our own checks say it all; the system names no file.
        if error.errno is not None:
            raise OwnRunbookError(f"{directory}: {error.strerror}") from None
        raise OwnRunbookError(f"{error}, since it runs with Keyturn's keys") from None


@contextmanager
def _closing(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _list_names(directory: int) -> frozenset[str]:
    with os.scandir(directory) as entries:
        return frozenset(entry.name for entry in entries)


def _is_module(name: str) -> bool:
    # The directory extends a package, so an __init__.py in it has no meaning.
    return name.endswith((".py", SUFFIX)) and name != "__init__.py"


def _read_module(directory: int, path: Path, owners: Collection[int]) -> OwnFile:
    descriptor = open_trusted_entry(directory, path, owners)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OwnRunbookError(f"{path} is not a file: remove it")
        content = opened.read()
    _check_name(path)
    if path.suffix == SUFFIX:
        page = _read_page(path, content)
        return OwnFile(path, content, (page.part.words,), page)
    return OwnFile(path, content, _list_words(path, content))


def _check_name(path: Path) -> None:
    if not path.stem.isidentifier():
        raise OwnRunbookError(f"{path}: use only letters, digits and _ in the name of a module")
    if path.suffix == SUFFIX and (path.parent.name != "runbooks" or path.stem.startswith("_")):
        raise OwnRunbookError(f"{path}: a page is a runbook: move it to runbooks/, without _")
    package = Path(importlib.import_module(path.parent.name).__path__[0])
    if any((package / f"{path.stem}{suffix}").exists() for suffix in ("", ".py", SUFFIX)):
        raise OwnRunbookError(f"{path}: Keyturn has a module with this name: choose another")


@lru_cache(maxsize=_MAX_PAGES)
def _read_page(path: Path, content: bytes) -> PageSource:
    """Return a page; the same one as before for the same bytes. Raises OwnRunbookError."""
    try:
        return PageSource(path, content)
    except PageError as error:
        raise OwnRunbookError(f"{path}: {error}") from None


def _list_words(path: Path, content: bytes) -> tuple[str, ...]:
    """Return the words of the runbooks in a file of Python. Raises OwnRunbookError."""
    try:
        tree = ast.parse(content, path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise make_load_error(path, error) from None
    _refuse_forbidden_names(path, tree)
    words = tuple(_iterate_words(path, tree))
    if not words and not is_shared_module(f"{path.parent.name}.{path.stem}"):
        raise OwnRunbookError(
            f'{path}: no class has words="…": add them, or begin the name of a file that runbooks '
            "share with _"
        )
    return words


def _iterate_words(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        for keyword in node.keywords if isinstance(node, ast.ClassDef) else ():
            if keyword.arg != "words":
                continue
            if not isinstance(keyword.value, ast.Constant) or type(keyword.value.value) is not str:
                raise OwnRunbookError(
                    f"{path}: line {keyword.value.lineno}: write the words as plain text: "
                    'words="mail queue check"'
                )
            yield keyword.value.value


def _refuse_same_names(files: Sequence[OwnFile]) -> None:
    by_name: dict[str, Path] = {}
    for file in files:
        other = by_name.setdefault(file.module, file.path)
        if other != file.path:
            raise OwnRunbookError(f"{file.path}: {other} has the same name: choose another")


def _refuse_same_words(files: Sequence[OwnFile]) -> None:
    by_words: dict[str, str] = {}
    for file in files:
        for words in file.words:
            refuse_same_words(words, file.module, by_words.setdefault(words, file.module))


def refuse_same_words(words: str, module: str, other: str) -> None:
    """Raise OwnRunbookError if two modules have runbooks with the same words."""
    if module != other:
        raise OwnRunbookError(
            f'{other} and {module} both have words="{words}": change one of them'
        )


def _refuse_forbidden_names(file: Path, tree: ast.Module) -> None:
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


def make_load_error(file: Path, error: Exception) -> OwnRunbookError:
    """Return an error that names the file, the line and what is wrong."""
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

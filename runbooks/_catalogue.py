"""The catalogue: all runbooks by the words of their slash command."""

import hashlib
import importlib
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

import runbooks
from runbooks import _own
from runbooks._declared import SUFFIX, get_source, is_declared, load_page, register_page
from runbooks._own import FindEnabled
from runbooks._own_files import OwnRunbookError, read_own_files, refuse_same_words
from runbooks._runbook import AnyRunbook, Change, Runbook


@cache
def load_catalogue() -> Mapping[str, type[AnyRunbook]]:
    """Return all runbooks by their words, sorted, including the installation's own.

    Of its own, those are loaded that are enabled, as `set_enabled_source` says. Raises
    OwnRunbookError if one of its own cannot be used.
    """
    own = _own.load_own_modules()
    return _load_modules((*_list_modules(), *own))


def load_usable_catalogue() -> tuple[Mapping[str, type[AnyRunbook]], str]:
    """Return all runbooks that can be used, and why the installation's own are not among them.

    The reason is "" unless one of its own cannot be used. For checks, which go on without them.
    """
    try:
        return load_catalogue(), ""
    except OwnRunbookError as error:
        return _load_modules(_list_modules()), str(error)


def set_enabled_source(find_enabled: FindEnabled) -> None:
    """Say which own runbooks `load_catalogue` may load. Those of an earlier source stay loaded."""
    is_loaded = load_catalogue.cache_info().currsize > 0
    if _own.set_enabled_source(find_enabled) and is_loaded and read_own_files():
        load_catalogue.cache_clear()


def _list_modules() -> Iterator[str]:
    """Yield the names of Keyturn's own modules with runbooks, also of declared ones."""
    for module in pkgutil.iter_modules(runbooks.__path__):
        if not module.name.startswith("_"):
            yield f"runbooks.{module.name}"
    for page in sorted(Path(runbooks.__path__[0]).glob(f"*{SUFFIX}")):
        yield register_page(load_page(page, page.read_bytes()))


def _load_modules(modules: Iterable[str]) -> Mapping[str, type[AnyRunbook]]:
    found: dict[str, type[AnyRunbook]] = {}
    for module in modules:
        for runbook in _find_runbooks(module):
            before = found.setdefault(runbook.words, runbook)
            refuse_same_words(runbook.words, runbook.__module__, before.__module__)
    return dict(sorted(found.items()))


def _find_runbooks(module_name: str) -> Iterator[type[AnyRunbook]]:
    """Yield the classes with words that the module itself defines.

    A generic base such as Change[Bond] creates a second class in the author's module, so a class
    counts only if it has words.
    """
    module = importlib.import_module(module_name)
    for value in vars(module).values():
        if _is_runbook(value) and value.__module__ == module.__name__:
            yield value


def _is_runbook(value: object) -> TypeGuard[type[AnyRunbook]]:
    return isinstance(value, type) and issubclass(value, Runbook) and bool(value.words)


def is_own(runbook: type[AnyRunbook]) -> bool:
    """Return whether it is the installation's own, not part of Keyturn."""
    return _own.is_own(runbook.__module__)


def list_own_digests() -> Mapping[str, str]:
    """Return the SHA-256 of each own file in use, by module. Raises OwnRunbookError."""
    load_catalogue()
    return _own.list_digests()


def list_pending_words() -> Collection[str]:
    """Return the words of own runbooks that are not enabled, and so not loaded."""
    load_catalogue()
    return _own.list_pending_words()


def list_own_files(runbook: type[AnyRunbook]) -> Mapping[str, str]:
    """Return the SHA-256 of each own file that can take part in a runbook; {} for Keyturn's."""
    return _own.list_digests_behind(runbook.__module__) if is_own(runbook) else {}


def get_kind(runbook: type[AnyRunbook]) -> str:
    """Return "change" or "check"."""
    return "change" if issubclass(runbook, Change) else "check"


@cache
def compute_version(runbook: type[AnyRunbook]) -> str:
    """Return the version of a runbook: 12 hex digits of the SHA-256 of its code.

    It covers the runbook's module, what runbooks share and all connectors, since all of them make
    the plan. A change of any of these files makes approved plans stale.
    """
    digest = hashlib.sha256()
    for name, file_digest in sorted(list_own_files(runbook).items()):
        digest.update(f"{name} {file_digest}\n".encode())
    if is_declared(runbook):
        digest.update(get_source(runbook).content)
    elif not is_own(runbook):
        module = importlib.import_module(runbook.__module__)
        digest.update(Path(str(module.__file__)).read_bytes())
    connectors = importlib.import_module("connectors")
    for package, pattern in ((runbooks, "_*.py"), (connectors, "*.py")):
        for path in sorted(Path(package.__path__[0]).glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]

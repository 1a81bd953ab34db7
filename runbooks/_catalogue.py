"""The catalogue: all runbooks by the words of their slash command."""

import hashlib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

import runbooks
from runbooks import _own
from runbooks._own import OwnRunbookError
from runbooks._runbook import AnyRunbook, Change, Runbook


@cache
def load_catalogue() -> Mapping[str, type[AnyRunbook]]:
    """Return all runbooks by their words, sorted, including the installation's own.

    Raises OwnRunbookError if one of its own cannot be loaded.
    """
    _own.load_own_modules()
    found: dict[str, type[AnyRunbook]] = {}
    for module in pkgutil.iter_modules(runbooks.__path__):
        if not module.name.startswith("_"):
            for runbook in _find_runbooks(module.name):
                before = found.setdefault(runbook.words, runbook)
                if before is not runbook:
                    both = f"{before.__module__} and {runbook.__module__}"
                    raise OwnRunbookError(
                        f'{both} both have words="{runbook.words}": change one of them'
                    )
    return dict(sorted(found.items()))


def _find_runbooks(module_name: str) -> Iterator[type[AnyRunbook]]:
    """Yield the classes with words that the module itself defines.

    A generic base such as Change[Bond] creates a second class in the author's module, so a class
    counts only if it has words.
    """
    module = importlib.import_module(f"runbooks.{module_name}")
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
    module = importlib.import_module(runbook.__module__)
    connectors = importlib.import_module("connectors")
    digest = hashlib.sha256(Path(str(module.__file__)).read_bytes())
    for package, pattern in ((runbooks, "_*.py"), (connectors, "*.py")):
        for place in package.__path__:
            for path in sorted(Path(place).glob(pattern)):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]

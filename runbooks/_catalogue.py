"""Finds every runbook by the words people use for it."""

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
    """Return every runbook by its words, in the order of the words.

    Those of the installation's own too. Raises OwnRunbookError where these cannot be used.
    """
    _own.load_own_modules()
    found: dict[str, type[AnyRunbook]] = {}
    for module in pkgutil.iter_modules(runbooks.__path__):
        if not module.name.startswith("_"):
            for runbook in _find_runbooks(module.name):
                before = found.setdefault(runbook.words, runbook)
                if before is not runbook:
                    both = f"{before.__module__} and {runbook.__module__}"
                    raise OwnRunbookError(f'{both} both have words="{runbook.words}"')
    return dict(sorted(found.items()))


def _find_runbooks(module_name: str) -> Iterator[type[AnyRunbook]]:
    """Yield the classes with words that the module itself defines.

    A generic base such as Change[Bond] makes a second class in the author's module, so the words
    tell, and not the mere subclass.
    """
    module = importlib.import_module(f"runbooks.{module_name}")
    for thing in vars(module).values():
        if _is_runbook(thing) and thing.__module__ == module.__name__:
            yield thing


def _is_runbook(thing: object) -> TypeGuard[type[AnyRunbook]]:
    return isinstance(thing, type) and issubclass(thing, Runbook) and bool(thing.words)


def is_own(runbook: type[AnyRunbook]) -> bool:
    """Say whether it is the installation's own, and did not come with Keyturn."""
    return _own.is_own(runbook.__module__)


def list_own_digests() -> Mapping[str, str]:
    """Return the SHA-256 of each own file that is in use. Raises OwnRunbookError."""
    load_catalogue()
    return _own.list_digests()


def get_kind(runbook: type[AnyRunbook]) -> str:
    """Return "change" or "check"."""
    return "change" if issubclass(runbook, Change) else "check"


@cache
def compute_version(runbook: type[AnyRunbook]) -> str:
    """Return the runbook's content hash: a changed file makes approved plans stale.

    12 hex digits of the SHA-256 of its module and of every dialect, since the words that a plan
    is made of live in both.
    """
    module = importlib.import_module(runbook.__module__)
    connectors = importlib.import_module("connectors")
    digest = hashlib.sha256()
    dialects = [file for place in connectors.__path__ for file in sorted(Path(place).glob("*.py"))]
    for path in (Path(str(module.__file__)), *dialects):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]

"""Load the installation's own runbooks and connectors: those that are enabled, and no others.

The process says which files are enabled, by `set_enabled_source`. Python's own way of loading
files is not used, because it prefers bytecode that lies beside them: the bytes that were read and
hashed are compiled, and no bytecode is read or written.
"""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_file_location
from types import CodeType

from runbooks._declared import make_class, register_page
from runbooks._own_files import OwnFile, is_shared_module, make_load_error, read_own_files

FindEnabled = Callable[[Mapping[str, str]], Collection[str]]
"""Returns which modules are enabled, from the SHA-256 of each file by its module."""


def _enable_none(_digests: Mapping[str, str]) -> Collection[str]:
    return ()


_source: list[FindEnabled] = [_enable_none]
# The SHA-256 of each file in use, by its module.
_digests: dict[str, str] = {}
# The words of runbooks that were found and not loaded.
_pending: set[str] = set()


class _OwnModules(MetaPathFinder, InspectLoader):
    """Finds and loads the modules whose bytes it has."""

    def __init__(self) -> None:
        self.files: dict[str, OwnFile] = {}

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        del path, target
        file = self.files.get(fullname)
        return spec_from_file_location(fullname, file.path, loader=self) if file else None

    def get_source(self, fullname: str) -> str:
        return decode_source(self.files[fullname].content)

    def get_code(self, fullname: str) -> CodeType:
        file = self.files[fullname]
        return self.source_to_code(file.content, str(file.path))


_modules = _OwnModules()


def set_enabled_source(find_enabled: FindEnabled) -> bool:
    """Say from where this process knows which own files are enabled; without it, none is.

    Returns whether it is another source than before.
    """
    before, _source[0] = _source[0], find_enabled
    return before is not find_enabled


def enable_all(digests: Mapping[str, str]) -> Collection[str]:
    """Enable every file, on the machine of an author of runbooks."""
    return digests


def load_own_modules() -> Sequence[str]:
    """Load the enabled modules, and return the names of those in runbooks/.

    Raises OwnRunbookError if a file cannot be used.
    """
    files = read_own_files()
    enabled = _source[0]({file.module: file.digest for file in files}) if files else ()
    # Any shared module can take part in any runbook, and no runbook works without those it uses.
    is_complete = all(file.module in enabled for file in files if file.is_shared)
    chosen = {file.module: file for file in files if is_complete and file.module in enabled}
    _modules.files = {module: file for module, file in chosen.items() if not file.page}
    if _modules not in sys.meta_path:
        sys.meta_path.append(_modules)
    _pending.clear()
    pending = (file for file in files if file.module not in chosen)
    _pending.update(words for file in pending for words in file.words)
    for file in chosen.values():
        _load_file(file)
    return [module for module, file in chosen.items() if file.words]


def _load_file(file: OwnFile) -> None:
    try:
        if file.page:
            register_page(make_class(file.page))
        else:
            importlib.import_module(file.module)
    except Exception as error:
        raise make_load_error(file.path, error) from error
    _digests[file.module] = file.digest


def is_own(module: str) -> bool:
    """Return whether a module is the installation's own, not part of Keyturn."""
    return module in _digests


def list_pending_words() -> Collection[str]:
    """Return the words of own runbooks that are not enabled, and so not loaded."""
    return frozenset(_pending)


def list_digests() -> Mapping[str, str]:
    """Return the SHA-256 of each file in use, by its module."""
    return dict(_digests)


def list_digests_behind(module: str) -> Mapping[str, str]:
    """Return the SHA-256 of each own file that can take part in a runbook, by its module.

    These are its own file, and all of those that are no runbooks: it may use any of them.
    """
    return {
        name: digest
        for name, digest in _digests.items()
        if name == module or is_shared_module(name)
    }

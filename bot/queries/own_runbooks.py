"""Which of the installation's own runbooks two people have enabled, by the change log.

There is no table: the signed entries say who enabled which file with which digest, so a file that
is new or was changed is not enabled. Nothing here executes a file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bot.audit import change_log, events
from bot.audit.inclusion import list_vouched_entries
from bot.db.database import Transaction
from runbooks import AnyRunbook, list_pending_words, read_own_files
from runbooks._catalogue import is_own, list_own_files

_REQUIRED_PEOPLE = 2


@dataclass(frozen=True)
class OwnRunbookState:
    """Who enabled the files of one of the installation's own runbooks."""

    words: str
    files: Mapping[str, str]
    """The SHA-256 of each file that can take part in it, by module."""
    pending: tuple[str, ...]
    """The modules that are not enabled."""
    people: tuple[str, ...]
    """Who enabled all of these files, as they are now."""

    @property
    def is_enabled(self) -> bool:
        return not self.pending


def list_states(tx: Transaction) -> list[OwnRunbookState]:
    """Return the state of every own runbook, by its words, as the files are now.

    Raises OwnRunbookError if a file cannot be used.
    """
    files = read_own_files()
    shared = {file.module: file.digest for file in files if file.is_shared}
    return [
        _build_state(tx, words, shared | {file.module: file.digest})
        for file in files
        for words in file.words
    ]


def check_pages(words: str) -> None:
    """Check all of the page of an own runbook, if it is one. Raises OwnRunbookError."""
    for file in read_own_files():
        if words in file.words:
            file.check_page()


def list_enabled_modules(tx: Transaction, digests: Mapping[str, str]) -> Collection[str]:
    """Return the modules that two people, or one alone, have enabled with these digests.

    Code is loaded by this answer, so a process without the signing key, which cannot check who
    signed an entry, raises StoreUnavailable.
    """
    assert tx.signing_key  # noqa: S101 - raises StoreUnavailable without one
    people = _list_people(tx, digests)
    return [module for module, names in people.items() if _is_enough(names)]


def find_refusal(tx: Transaction, runbook: type[AnyRunbook]) -> str:
    """Return why a runbook may not run and what to do; "" if it is enabled, or Keyturn's own."""
    if not is_own(runbook):
        return ""
    pending = _build_state(tx, runbook.words, list_own_files(runbook)).pending
    if not pending:
        return ""
    return (
        f"{', '.join(pending)} of your own runbooks is new or was changed: two people review the "
        f"file and run `keyturn runbook enable {runbook.words}`. Then request this again"
    )


def describe_pending(words: str) -> str:
    """Return why a runbook is not loaded and what to do; "" if it is not one that waits."""
    if words not in list_pending_words():
        return ""
    return (
        f"{words} of your own runbooks is not enabled: two people review its files and run "
        f"`keyturn runbook enable {words}`. Then restart Keyturn, which loads it, and request "
        "this again"
    )


def _build_state(tx: Transaction, words: str, files: Mapping[str, str]) -> OwnRunbookState:
    people = _list_people(tx, files)
    pending = sorted(module for module, names in people.items() if not _is_enough(names))
    both = set[str].intersection(*map(set, people.values())) if people else set[str]()
    return OwnRunbookState(words, files, tuple(pending), tuple(sorted(both)))


def _list_people(tx: Transaction, files: Mapping[str, str]) -> Mapping[str, Mapping[str, bool]]:
    """Return who enabled each module with this digest, and whether they did it alone."""
    entries = (
        change_log.list_entries_since(tx, events.LocalRunbookEnabled.kind, 0) if files else ()
    )
    people: dict[str, dict[str, bool]] = {module: {} for module in files}
    for entry in list_vouched_entries(tx, entries):
        event = entry.event
        if not isinstance(event, events.LocalRunbookEnabled):
            continue
        for module, digest in event.files.items():
            if files.get(module) == digest:
                was_alone = people[module].get(entry.person, False)
                people[module][entry.person] = was_alone or event.alone
    return people


def _is_enough(people: Mapping[str, bool]) -> bool:
    return len(people) >= _REQUIRED_PEOPLE or any(people.values())

"""Which of the installation's own runbooks two people have enabled, by the change log.

There is no table: the signed entries say who enabled which file with which digest, so a file that
is new or was changed is not enabled.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.audit import change_log
from bot.audit.key_history import list_vouched_entries
from bot.db.database import Transaction
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import is_own, list_own_files

ENABLED_KIND = "local runbook enabled"
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
    """Return the state of every own runbook, by its words."""
    return [get_state(tx, runbook) for runbook in load_catalogue().values() if is_own(runbook)]


def get_state(tx: Transaction, runbook: type[AnyRunbook]) -> OwnRunbookState:
    """Return the state of an own runbook; one of Keyturn's is enabled and has no files."""
    files = list_own_files(runbook)
    entries = change_log.list_entries_since(tx, ENABLED_KIND, 0) if files else ()
    people: dict[str, set[str]] = {module: set() for module in files}
    alone: set[str] = set()
    for entry in list_vouched_entries(tx, entries):
        for module, digest in entry.facts.get("files", {}).items():
            if files.get(module) == digest:
                people[module].add(entry.person)
                alone |= {module} if entry.facts.get("alone") else set()
    pending = [
        module
        for module, names in people.items()
        if len(names) < _REQUIRED_PEOPLE and module not in alone
    ]
    both = set[str].intersection(*people.values()) if people else set[str]()
    return OwnRunbookState(runbook.words, files, tuple(sorted(pending)), tuple(sorted(both)))


def find_refusal(tx: Transaction, runbook: type[AnyRunbook]) -> str:
    """Return why a runbook may not run and what to do; "" if it is enabled, or Keyturn's own."""
    if not is_own(runbook) or not (pending := get_state(tx, runbook).pending):
        return ""
    return (
        f"{', '.join(pending)} of your own runbooks is new or was changed: two people review the "
        f"file and run `keyturn runbook enable {runbook.words}`. Then request this again"
    )

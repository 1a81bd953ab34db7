"""The timeline of a run: its log entries described for people. Pure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from bot.audit.change_log import Entry
from bot.audit.event_type import NamePerson
from bot.model.times import format_utc


@dataclass(frozen=True)
class RunEvent:
    """One line of the timeline. Tone and icon are those of run_states."""

    at: int
    title: str
    detail: str
    tone: str
    icon: str
    seq: int
    """The number of the log entry."""


def build_run_events(entries: Sequence[Entry], name_person: NamePerson) -> list[RunEvent]:
    """Describe the entries of one run, oldest first. name_person: returns the name for an id."""
    found: list[RunEvent] = []
    for entry in entries:
        shown = entry.event.describe(name_person(entry.person), entry.host, name_person)
        found.append(
            RunEvent(entry.at, shown.title, shown.detail, shown.tone, shown.icon, entry.seq)
        )
    return found


def get_entry_facts(entry: Entry) -> Mapping[str, Any]:
    """Return the facts of an entry; its raw text where it was altered and has none."""
    return entry.facts or ({} if entry.body == "{}" else {"body": entry.body})


# Names of facts for people, where the name itself is not plain. One table for pages and exports.
_FACT_LABELS: Mapping[str, str] = {
    "approver_groups": "Approvals from",
    "catch_up": "Missed runs to catch up",
    "created_at": "Created",
    "cron": "Cron expression",
    "digest": "Plan digest",
    "ends_at": "Ends",
    "exit_status": "Exit status",
    "factor": "Second factor",
    "fence": "Fencing token",
    "fired_run": "Run",
    "granted_by": "Granted by",
    "granted_to": "Granted to",
    "guard_override": "Guard override",
    "healthy": "Healthy",
    "lapses_at": "Approval of the schedule ends",
    "legs": "Redundant parts",
    "on_behalf_of": "On behalf of",
    "output_sha256": "Hash of the output",
    "per_hour": "Uses per hour",
    "replaces": "Replaces schedule",
    "required_approvals": "Approvals needed",
    "spread": "Spread (minutes)",
    "undo_of": "Undo of run",
    "what": "Request",
}
_HASH_PATTERN = re.compile(r"\b[0-9a-f]{64}\b")
# Facts that are shown only when an entry is unfolded.
_UNSUMMARISED = {"mark", "approver_groups", "area", "digest", "body"}
# Facts that say what the entry is about, however long they are.
_ALWAYS_SUMMARISED = {"command", "reason", "summary"}


def format_kind(kind: str) -> str:
    """Return a kind of entries for people: `no changes`."""
    return kind.replace("_", " ")


@lru_cache(256)
def get_fact_label(name: str) -> str:
    """Return the name of a fact for people: `Approvals needed`."""
    return _FACT_LABELS.get(name, name.strip("_").replace("_", " ").capitalize())


def describe_facts(entry: Entry, name_person: NamePerson) -> list[tuple[str, str]]:
    """Return the names of the facts of an entry, each with its value for people.

    name_person: returns the name for an id.
    """
    person_facts = entry.event.person_facts
    return [
        (name, _describe_fact(name, fact, name_person if name in person_facts else None))
        for name, fact in get_entry_facts(entry).items()
        if fact not in ("", None, [], {})
    ]


def _describe_fact(name: str, fact: object, name_person: NamePerson | None) -> str:
    if name_person is not None:
        people = [fact] if isinstance(fact, str) else cast("list[object]", fact)
        return ", ".join(name_person(str(one)) for one in people)
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if name == "timing" and isinstance(fact, Mapping):
        timing = cast("Mapping[str, object]", fact)
        return "; ".join(f"{get_fact_label(key)}: {timing[key]}" for key in timing)
    return format_fact(fact)


def summarise_facts(described: Iterable[tuple[str, str]], host: str = "") -> str:
    """Return the short facts of an entry on one line; ids and plans are left out.

    described: the facts as describe_facts() returns them. host: to begin with; "" for none.
    """
    parts = [host] if host else []
    for name, text in described:
        is_short = "\n" not in text and not _HASH_PATTERN.search(text)
        if name in _ALWAYS_SUMMARISED or (is_short and name not in _UNSUMMARISED):
            parts.append(f"{get_fact_label(name)}: {text}")
    return " · ".join(parts)


def format_fact(fact: object) -> str:
    """Format one fact for people: short ones on one line, others as indented JSON."""
    if isinstance(fact, str):
        return fact
    # Microseconds since 1970, of this century; no other number in the log is as large.
    if isinstance(fact, int) and 10**15 < fact < 4 * 10**15:
        return format_utc(fact)
    if fact is None or isinstance(fact, (int, float)):
        return json.dumps(fact)
    if isinstance(fact, Mapping):
        known = cast("Mapping[str, object]", fact)
        if all(isinstance(value, (str, int)) for value in known.values()):
            return " ".join(f"{name}={value}" for name, value in known.items())
    if isinstance(fact, list):
        several = cast("list[object]", fact)
        if all(isinstance(value, (str, int)) for value in several):
            return ", ".join(map(str, several))
    return json.dumps(fact, indent=2, ensure_ascii=False)

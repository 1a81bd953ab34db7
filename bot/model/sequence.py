"""A sequence: one request of several changes, which run one after the other. Pure.

A sequence is a parent run whose runbook is `rebuild` or `undo`, and which has a child run for each
change. Its values list the changes in order, so that its plan, its approvals and the change log
name each of them: the first is `01 nas1 zfs set`, with its host and runbook, and the text of that
value is the title of its run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

REBUILD, UNDO = "rebuild", "undo"
SEQUENCES = frozenset({REBUILD, UNDO})
# The value of an undo that lists the numbers of all runs that it undoes.
UNDONE_RUNS = "undone runs"
# And the value that lists which of them cannot be undone and are left out.
NOT_UNDONE = "not undone"
# The value that says what is left out because the requester may not view some runs.
LEFT_OUT = "left out"
# Labels have two digits.
MAX_PARTS = 99
_LABEL = re.compile(r"\d\d (?P<host>\S+) (?P<runbook>.+)", re.ASCII)


def label_part(number: int, *, host: str, runbook: str) -> str:
    """Return the name of the value that describes a change. number: from 1."""
    return f"{number:02} {host} {runbook}"


def list_parts(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the label and title of each change, in order."""
    return sorted((label, title) for label, title in values.items() if _LABEL.fullmatch(label))


def find_label(values: Mapping[str, str], *, host: str, runbook: str, title: str) -> str:
    """Return the label of a change; "" if the sequence does not contain exactly one like it."""
    found = [
        label
        for label, each in list_parts(values)
        if each == title and label[3:] == f"{host} {runbook}"
    ]
    return found[0] if len(found) == 1 else ""


def group_hosts_by_runbook(values: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each runbook of the changes with its hosts, which the policy's rules decide about."""
    hosts: dict[str, list[str]] = {}
    for label in values:
        if match := _LABEL.fullmatch(label):
            hosts.setdefault(match["runbook"], []).append(match["host"])
    return [(runbook, tuple(sorted(set(names)))) for runbook, names in sorted(hosts.items())]


@dataclass(frozen=True)
class UndoSelection:
    """Which runs to undo: those of a person, or of a schedule."""

    person: str = ""
    token: str = ""
    """Only requests with this API token, by its prefix."""
    schedule: int = 0
    since: int = 0
    """Only runs that began then or later, in microseconds since 1970; 0 for a schedule means the
    runs of its last due time."""
    until: int = 0
    """Only runs that began before; 0 means now."""
    area: str = ""
    """Only on hosts of this area."""

"""The states of a value that a run has set."""

from enum import StrEnum


class DriftState(StrEnum):
    AS_SET = "as_set"
    CHANGED = "changed"  # by something other than Keyturn
    MISSING = "missing"  # the runbook refuses: what it set is not there, or cannot be set now
    UNREADABLE = "unreadable"  # the host could not be read

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    DriftState.AS_SET: "as set",
    DriftState.CHANGED: "changed outside",
    DriftState.MISSING: "missing",
    DriftState.UNREADABLE: "cannot be read",
}
# A person should know of them.
DRIFTED_STATES = frozenset({DriftState.CHANGED, DriftState.MISSING})

"""A proposal: the plan as people are asked to approve it, resolved for its hosts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from pydantic import TypeAdapter

from bot.model.canonical import Canonical, hash_canonical
from bot.model.schedule import ScheduleTiming
from connectors.command import Command, Shell, SwitchLines


@dataclass(frozen=True)
class PlannedStep:
    """One command exactly as its host will be told it, and how it would be taken back.

    fingerprint: the key that the host must show. undo: None where no_undo says why not.
    undo_title: of the step that would take it back, "" for `Undo:` and the title.
    """

    title: str
    host: str
    fingerprint: str
    do: Shell | SwitchLines
    undo: Shell | SwitchLines | None
    no_undo: str = ""
    before: str = ""
    after: str = ""
    undo_title: str = ""

    @property
    def work(self) -> Canonical:
        """What a person approves of this step. The undo may hold counters, so only its kind."""
        return {
            "host": self.host,
            "fingerprint": self.fingerprint,
            "do": _command(self.do),
            "before": self.before,
            "after": self.after,
            "undo": f"none: {self.no_undo}" if self.undo is None else "kept",
        }


@dataclass(frozen=True)
class ResolvedPlan:
    """Everything that an approval is an approval of.

    fields: the request's values. expires: microseconds since 1970, UTC: the last moment to start.
    undo_of: the run that this one takes back. timing: when a schedule would have it done; its
    steps are then what they would be now. keys: of a schedule, the key that each of its hosts must
    show, by host. lapse: microseconds for which the approval of a schedule holds.
    """

    runbook: str
    runbook_version: str
    fields: Mapping[str, str]
    asked_by: str
    expires: int
    policy_version: str
    because: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()
    undo_of: int | None = None
    timing: ScheduleTiming | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    lapse: int = 0

    @property
    def document(self) -> Canonical:
        """All that may not change between approval and start; form: how it is laid out."""
        return {
            "form": 1,
            "runbook": self.runbook,
            "runbook_version": self.runbook_version,
            "fields": self.fields,
            "asked_by": self.asked_by,
            "expires": self.expires,
            "policy_version": self.policy_version,
            "undo_of": self.undo_of,
            "timing": self.timing.document if self.timing else None,
            "keys": self.keys,
            "lapse": self.lapse,
            "steps": [step.work for step in self.steps],
        }

    @cached_property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the document."""
        return hash_canonical(self.document)

    @cached_property
    def by_host(self) -> Mapping[str, Sequence[PlannedStep]]:
        """The steps of each host, in their order."""
        found: dict[str, list[PlannedStep]] = {}
        for step in self.steps:
            found.setdefault(step.host, []).append(step)
        return found

    @property
    def facts(self) -> dict[str, Canonical]:
        """What the change log keeps of it: the document, and what was shown beside it."""
        return {
            "document": self.document,
            "because": self.because,
            "notes": self.notes,
            "titles": [step.title for step in self.steps],
            "undo": [str(step.undo or step.no_undo) for step in self.steps],
        }

    @cached_property
    def reversible(self) -> bool:
        return all(step.undo is not None for step in self.steps)

    def to_json(self) -> str:
        return _PROPOSAL.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ResolvedPlan":
        return _read(text)


_PROPOSAL = TypeAdapter(ResolvedPlan)


# The plan of a request for many hosts is looked at before each of them, and is long. Another text
# is another plan, so what somebody has altered is never taken for what stood there before.
@lru_cache(32)
def _read(text: str) -> ResolvedPlan:
    return _PROPOSAL.validate_json(text)


def _command(command: Command) -> Canonical:
    if isinstance(command, SwitchLines):
        return {"lines": command.lines}
    return {
        "argv": command.words,
        "stdin": command.stdin,
        "trouble": command.error_pattern,
        "deadline": command.deadline,
        "anew": command.new_connection,
    }

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
    command: Shell | SwitchLines
    undo: Shell | SwitchLines | None
    no_undo_reason: str = ""
    before: str = ""
    after: str = ""
    undo_title: str = ""

    @property
    def runs_command(self) -> Canonical:
        """What a person approves of this step. The undo may hold counters, so only its kind."""
        return {
            "host": self.host,
            "fingerprint": self.fingerprint,
            "do": _command_to_canonical(self.command),
            "before": self.before,
            "after": self.after,
            "undo": f"none: {self.no_undo_reason}" if self.undo is None else "kept",
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
    values: Mapping[str, str]
    requested_by: str
    expires_at: int
    policy_version: str
    current_state: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()
    undo_of: int | None = None
    timing: ScheduleTiming | None = None
    host_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    schedule_lifetime: int = 0

    @property
    def document(self) -> Canonical:
        """All that may not change between approval and start; form: how it is laid out."""
        return {
            "form": 1,
            "runbook": self.runbook,
            "runbook_version": self.runbook_version,
            "fields": self.values,
            "requested_by": self.requested_by,
            "expires": self.expires_at,
            "policy_version": self.policy_version,
            "undo_of": self.undo_of,
            "timing": self.timing.document if self.timing else None,
            "keys": self.host_keys,
            "lapse": self.schedule_lifetime,
            "steps": [step.runs_command for step in self.steps],
        }

    @cached_property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the document."""
        return hash_canonical(self.document)

    @cached_property
    def steps_by_host(self) -> Mapping[str, Sequence[PlannedStep]]:
        """The steps of each host, in their order."""
        found: dict[str, list[PlannedStep]] = {}
        for step in self.steps:
            found.setdefault(step.host, []).append(step)
        return found

    @property
    def log_facts(self) -> dict[str, Canonical]:
        """What the change log keeps of it: the document, and what was shown beside it."""
        return {
            "document": self.document,
            "because": self.current_state,
            "notes": self.notes,
            "titles": [step.title for step in self.steps],
            "undo": [str(step.undo or step.no_undo_reason) for step in self.steps],
        }

    @cached_property
    def is_reversible(self) -> bool:
        return all(step.undo is not None for step in self.steps)

    def to_json(self) -> str:
        return _PLAN_ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ResolvedPlan":
        return _parse_plan(text)


_PLAN_ADAPTER = TypeAdapter(ResolvedPlan)


# The plan of a request for many hosts is looked at before each of them, and is long. Another text
# is another plan, so what somebody has altered is never taken for what stood there before.
@lru_cache(32)
def _parse_plan(text: str) -> ResolvedPlan:
    return _PLAN_ADAPTER.validate_json(text)


def _command_to_canonical(command: Command) -> Canonical:
    if isinstance(command, SwitchLines):
        return {"lines": command.lines}
    return {
        "argv": command.words,
        "stdin": command.stdin,
        "trouble": command.error_pattern,
        "deadline": command.deadline,
        "anew": command.new_connection,
    }

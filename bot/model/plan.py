"""The plan that people approve, resolved for its hosts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from pydantic import TypeAdapter

from bot.model.canonical import Canonical, hash_canonical
from bot.model.schedule import ScheduleTiming
from bot.model.tickets import TicketAnswer
from connectors.command import ApiCall, Command, SwitchLines


@dataclass(frozen=True)
class PlannedStep:
    """One command exactly as it is sent to its host, with its undo."""

    title: str
    host: str
    fingerprint: str
    """The host key that the host must present."""
    command: Command
    undo: Command | None
    """None if *no_undo_reason* says why there is none."""
    no_undo_reason: str = ""
    before: str = ""
    after: str = ""
    undo_title: str = ""
    """The title of the undo step; "" for `Undo:` and the title."""

    @property
    def runs_command(self) -> Canonical:
        """What a person approves of this step. The undo can contain counters, so only its kind."""
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
    """Everything that an approval covers."""

    runbook: str
    runbook_version: str
    values: Mapping[str, str]
    requested_by: str
    expires_at: int
    """The last time to start, in microseconds since 1970."""
    policy_version: str
    current_state: str
    steps: Sequence[PlannedStep]
    notes: Sequence[str] = ()
    """They may refer to runs, see bot/model/references.py."""
    undo_of: int | None = None
    """The run that this one undoes."""
    timing: ScheduleTiming | None = None
    """The times of a schedule; its steps are those of a run at the time of planning."""
    host_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """For a schedule, the key that each host must present, by host."""
    schedule_lifetime: int = 0
    """How long the approval of a schedule is valid, in microseconds."""
    takes_down: Sequence[str] = ()
    """What may be down while it runs: hosts, or parts of them such as lb1/haproxy."""
    guard_override: str = ""
    """The cut set that it may take down all the same, such as `shop: lb1, lb2`."""
    ticket: TicketAnswer | None = None
    """What the ticket system said of the change ticket; None if the request names none."""
    part_steps: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a sequence, how many of the steps belong to each change, by its label."""
    policy_result: str = ""
    """A digest of what the policy says of the request and its hosts; depends on the plan."""

    @property
    def document(self) -> Canonical:
        """Everything that must not change between approval and start; form: its version."""
        return {
            "form": 1,
            "runbook": self.runbook,
            "runbook_version": self.runbook_version,
            "values": self.values,
            "requested_by": self.requested_by,
            "expires_at": self.expires_at,
            "policy_version": self.policy_version,
            "policy_result": self.policy_result,
            "undo_of": self.undo_of,
            "timing": self.timing.document if self.timing else None,
            "host_keys": self.host_keys,
            "schedule_lifetime": self.schedule_lifetime,
            "steps": [step.runs_command for step in self.steps],
            "takes_down": self.takes_down,
            "guard_override": self.guard_override,
            # Other plans keep the digest that they had before there were sequences and tickets.
            **({"part_steps": self.part_steps} if self.part_steps else {}),
            **({"ticket": self.ticket.document} if self.ticket else {}),
        }

    @cached_property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the document."""
        return hash_canonical(self.document)

    @cached_property
    def steps_by_host(self) -> Mapping[str, Sequence[PlannedStep]]:
        """The steps of each host, in order."""
        by_host: dict[str, list[PlannedStep]] = {}
        for step in self.steps:
            by_host.setdefault(step.host, []).append(step)
        return by_host

    def list_steps_of_part(self, label: str) -> Sequence[PlannedStep]:
        """Return the steps of one change of a sequence."""
        before = sum(count for other, count in self.part_steps.items() if other < label)
        return self.steps[before : before + self.part_steps.get(label, 0)]

    @property
    def log_facts(self) -> dict[str, Canonical]:
        """What the change log records: the document, and what was shown with it."""
        return {
            "document": self.document,
            "current_state": self.current_state,
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


# The plan of a request for many hosts is long and is parsed before each host. The cache key is the
# whole text, so a changed text is never mistaken for an earlier one.
@lru_cache(32)
def _parse_plan(text: str) -> ResolvedPlan:
    return _PLAN_ADAPTER.validate_json(text)


def _command_to_canonical(command: Command) -> Canonical:
    if isinstance(command, SwitchLines):
        return {"lines": command.lines}
    if isinstance(command, ApiCall):
        return {"call": str(command), "server": command.server, "deadline": command.deadline}
    return {
        "argv": command.words,
        "stdin": command.stdin,
        "error_pattern": command.error_pattern,
        "deadline": command.deadline,
        "new_connection": command.new_connection,
    }

"""Questions about a pending run, their answers, and the approver to whom it is assigned.

The change log is the only place that holds them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import runs
from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Person, Policy
from bot.queries.approval_count import count_approvals
from bot.queries.delegation_rules import list_approvers_and_delegates

_KINDS = frozenset(
    {
        events.QuestionAsked.kind,
        events.QuestionAnswered.kind,
        events.Reassigned.kind,
        events.Approved.kind,
        events.Reminded.kind,
        events.Escalated.kind,
    }
)


@dataclass(frozen=True)
class Remark:
    """A question about a run, or the answer to the questions before it."""

    entry_number: int
    """Of its entry in the change log."""
    person: str
    at: int
    text: str
    is_answer: bool

    @property
    def verb(self) -> str:
        return "answered" if self.is_answer else "asked"


@dataclass(frozen=True)
class Assignment:
    """The approver who is asked first to decide a run. Others who may decide it still can."""

    assignee: str
    assigned_by: str
    at: int
    reason: str
    is_reminded: bool = False
    """Whether the assignee was reminded; the next reminder goes to all approvers."""


@dataclass(frozen=True)
class Discussion:
    """What people asked and answered about a run, and its assignment; None if it has none."""

    remarks: Sequence[Remark] = ()
    assignment: Assignment | None = None

    @property
    def has_open_question(self) -> bool:
        return bool(self.remarks) and not self.remarks[-1].is_answer

    @property
    def assignee(self) -> str:
        """The id of the assignee; empty if there is none."""
        return self.assignment.assignee if self.assignment else ""


def get_discussion(tx: Transaction, run: int) -> Discussion:
    """Return the discussion of a run from its log entries."""
    return read_discussion(change_log.list_entries_of_run(tx, run, _KINDS))


def get_discussions(tx: Transaction, numbers: Collection[int]) -> dict[int, Discussion]:
    """Return the discussions of those of these runs that have one."""
    entries = change_log.list_entries_of_runs(tx, numbers, _KINDS)
    return {run: read_discussion(found) for run, found in entries.items()}


def read_discussion(entries: Iterable[Entry]) -> Discussion:
    """Return the discussion of a run. entries: of that run, oldest first. Pure."""
    remarks: list[Remark] = []
    assignment: Assignment | None = None
    for entry in entries:
        event = entry.event if entry.kind in _KINDS else None
        if isinstance(event, events.Reassigned):
            assignment = Assignment(event.assignee, entry.person, entry.at, event.reason)
        elif isinstance(event, events.Approved):
            if assignment and assignment.assignee == entry.person:
                assignment = None
        elif isinstance(event, events.Reminded | events.Escalated):
            # After a reminder of all approvers the assignee is one of them again.
            is_first = assignment is not None and not assignment.is_reminded
            only_assignee = assignment and event.people == (assignment.assignee,)
            assignment = (
                replace(assignment, is_reminded=True)
                if assignment and is_first and only_assignee
                else None
            )
        elif isinstance(event, events.QuestionAsked | events.QuestionAnswered):
            is_answer = isinstance(event, events.QuestionAnswered)
            remarks.append(Remark(entry.seq, entry.person, entry.at, event.text, is_answer))
    return Discussion(remarks, assignment)


def get_answerer(run: Run) -> str:
    """Return who answers questions: the requester, or the person behind an agent."""
    agent = run.origin.agent
    return agent.behalf or agent.owner if agent else run.requested_by


def list_possible_assignees(tx: Transaction, policy: Policy, run: Run) -> list[Person]:
    """Return who may view and approve the run, and has not decided it, sorted by name."""
    counted = count_approvals(tx, policy, run)
    request, ruling = counted.request, counted.ruling
    decided = {decision.person for decision in runs.list_decisions(tx, run.id)}
    return [
        one
        for one in list_approvers_and_delegates(tx, policy, request, ruling)
        if one.id not in decided and _can_view(policy, run, one.id)
    ]


def _can_view(policy: Policy, run: Run, person: str) -> bool:
    rights = policy.get_view_rights(person)
    return all(
        rights.can_view(host=host, runbook=run.runbook, kind=run.kind)
        for host in run.hosts or [run.host]
    )

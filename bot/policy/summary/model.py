"""The parts of a policy summary: people, what they may do, areas and freezes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.policy.cedar import DEFAULT_MAX_HOSTS
from bot.policy.explain import format_approvals
from bot.policy.summary import naming

AppliedRule = tuple[str, str]


@dataclass(frozen=True)
class Clause:
    """One sentence about what people may do."""

    what: str
    """The requests or the order, in words: `every change`."""
    where: str
    """The hosts, in words: `in the edge`."""
    allowed: bool = True
    required_approvals: int = 0
    approvals_from: str = ""
    """Whose approvals count, in words."""
    approvers: Mapping[str, Sequence[str]] | None = None
    """The names of the approvers, by the title of the area."""
    areas_short_of_approvers: Sequence[str] = ()
    """The titles of the areas with too few approvers."""
    rules: Sequence[AppliedRule] = ()
    """The name and the description of each rule that applies."""
    notes: Sequence[str] = ()
    """Further conditions, in words."""
    when: str = ""
    """The circumstances, in words; "" for ordinary ones."""

    @property
    def sentence(self) -> str:
        """The clause without its rules: `Every change, in the edge: 1 approval from …`."""
        text = f"{self.what}, {self.where}" if self.where else self.what
        text = f"when {self.when}: {text}" if self.when else text
        if self.required_approvals:
            text += f": {format_approvals(self.required_approvals)} from {self.approvals_from}"
        return f"{text[:1].upper()}{text[1:]}."

    @property
    def approver_names(self) -> str:
        """The names of all who can approve it; "" if no approval is needed."""
        if not self.approvers:
            return ""
        short = [title for title in self.areas_short_of_approvers if self.approvers[title]]
        warning = f" – too few in {naming.join_names(short)} under the current policy"
        return naming.name_approvers_by_area(self.approvers) + (warning if short else "")

    @property
    def has_enough_approvers(self) -> bool:
        """Whether each area has enough people who can approve it."""
        return bool(self.approvers) and not self.areas_short_of_approvers


@dataclass(frozen=True)
class PeopleSummary:
    """What a group of people with the same permissions may do."""

    people: Mapping[str, str]
    """Names by id."""
    title: str
    """Their roles and areas."""
    without_approval: Sequence[Clause]
    with_approval: Sequence[Clause]
    refused: Sequence[Clause]
    can_approve: Sequence[Clause]
    can_view: Sequence[Clause]
    """Runs of other people that they can view."""
    break_glass: Sequence[Clause]
    administration: Sequence[Clause]
    """Stop, ban and resume."""


@dataclass(frozen=True)
class AreaSummary:
    """An area with its owners and hosts."""

    name: str
    title: str
    owners: Sequence[str]
    hosts: Sequence[str]

    @property
    def description(self) -> str:
        """The number and names of the hosts."""
        if not self.hosts:
            return "no hosts yet"
        number = "1 host" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        return f"{number}: {naming.join_names(naming.truncate_names(self.hosts))}"


@dataclass(frozen=True)
class FreezeSummary:
    """An active or upcoming freeze, with its times in UTC."""

    name: str
    where: str
    begins_at: datetime
    ends_at: datetime
    is_active: bool
    recurrence: str
    exceptions: Sequence[str]

    @property
    def sentence(self) -> str:
        """What the freeze holds, when, and its exceptions."""
        repeats = f" Repeats {self.recurrence}." if self.recurrence else ""
        patterns = naming.join_names(f"“{pattern}”" for pattern in self.exceptions)
        exempt = f" Exempt: {patterns}." if self.exceptions else ""
        verb = "holds" if self.is_active else "will hold"
        span = f"from {self.begins_at:%Y-%m-%d %H:%M} UTC until {self.ends_at:%Y-%m-%d %H:%M} UTC"
        return f"{verb} {self.where} {span}.{repeats}{exempt}"


@dataclass(frozen=True)
class PolicySummary:
    """The whole policy in words."""

    version: str
    chapters: Sequence[PeopleSummary]
    areas: Sequence[AreaSummary]
    freezes: Sequence[FreezeSummary]
    checks: int
    changes: int
    irreversible_changes: Sequence[str]
    """The names of the changes without an undo."""
    depends_on_date: bool
    """Whether rules depend on the date, so that the summary can differ next week."""
    lacks_duties: bool = False
    """Whether there are on-call calendars, and no one looked up who is on duty."""
    max_hosts: int = DEFAULT_MAX_HOSTS

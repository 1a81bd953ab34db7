"""The charter itself: chapters on people, clauses on what they may do, areas and freezes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.policy.cedar import DEFAULT_MAX_HOSTS
from bot.policy.summary import naming

AppliedRule = tuple[str, str]


@dataclass(frozen=True)
class Clause:
    """One sentence about what people may do.

    what, where, whose: in words. approvals: how many keys of others it takes. approvers: by name,
    for each area by its title. short: the areas in which these are too few. rules: name and words
    of each that applies. notes: what else holds. when: under which circumstances; "" for ordinary
    ones.
    """

    what: str
    where: str
    allowed: bool = True
    required_approvals: int = 0
    approvals_from: str = ""
    approvers: Mapping[str, Sequence[str]] | None = None
    areas_short_of_approvers: Sequence[str] = ()
    rules: Sequence[AppliedRule] = ()
    notes: Sequence[str] = ()
    when: str = ""

    @property
    def sentence(self) -> str:
        """The clause without its rules: `Every change, in the edge: one approval from …`."""
        said = f"{self.what}, {self.where}" if self.where else self.what
        said = f"when {self.when}: {said}" if self.when else said
        if self.required_approvals:
            keys = (
                "one approval"
                if self.required_approvals == 1
                else f"{self.required_approvals} approvals"
            )
            said += f": {keys} from {self.approvals_from}"
        return f"{said[:1].upper()}{said[1:]}."

    @property
    def approver_names(self) -> str:
        """Who could approve it, by name; "" where nobody has to."""
        if not self.approvers:
            return ""
        short = [title for title in self.areas_short_of_approvers if self.approvers[title]]
        few = f" – too few in {naming.join_names(short)}, as the policy is now" if short else ""
        return naming.name_approvers_by_area(self.approvers) + few

    @property
    def has_enough_approvers(self) -> bool:
        """Whether there are enough people in each area to approve it."""
        return bool(self.approvers) and not self.areas_short_of_approvers


@dataclass(frozen=True)
class PeopleSummary:
    """What some people may do who may all do the same. people: name by id."""

    people: Mapping[str, str]
    title: str
    at_once: Sequence[Clause]
    asks: Sequence[Clause]
    refused: Sequence[Clause]
    approves: Sequence[Clause]
    emergency: Sequence[Clause]
    orders: Sequence[Clause]
    views: Sequence[Clause]
    """Runs of others that are shown to them."""


@dataclass(frozen=True)
class AreaSummary:
    """An area: who has the final say there, and over what."""

    name: str
    title: str
    owners: Sequence[str]
    hosts: Sequence[str]

    @property
    def description(self) -> str:
        """How many hosts, and which."""
        if not self.hosts:
            return "no hosts yet"
        number = "one host" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        return f"{number}: {naming.join_names(naming.truncate_names(self.hosts))}"


@dataclass(frozen=True)
class FreezeSummary:
    """A freeze that holds or comes: from when until when, in UTC, and how it is written down."""

    name: str
    where: str
    begins_at: datetime
    ends_at: datetime
    is_active: bool
    recurrence: str
    exceptions: Sequence[str]

    @property
    def sentence(self) -> str:
        """Say what it holds up, and when."""
        again = f" It comes back {self.recurrence}." if self.recurrence else ""
        on = naming.join_names(f"“{pattern}”" for pattern in self.exceptions)
        goes_on = f" {on} goes on." if self.exceptions else ""
        verb = "holds" if self.is_active else "will hold"
        span = f"from {self.begins_at:%Y-%m-%d %H:%M} until {self.ends_at:%Y-%m-%d %H:%M} UTC"
        return f"{verb} {self.where} {span}.{again}{goes_on}"


@dataclass(frozen=True)
class PolicySummary:
    """The whole policy in words. lasting: the changes that have no undo.

    dated: whether rules look at the date, so that another day's charter may be another.
    """

    version: str
    chapters: Sequence[PeopleSummary]
    areas: Sequence[AreaSummary]
    freezes: Sequence[FreezeSummary]
    checks: int
    changes: int
    irreversible_changes: Sequence[str]
    depends_on_date: bool
    max_hosts: int = DEFAULT_MAX_HOSTS

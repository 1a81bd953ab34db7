"""What the workflow works with, handed to it once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bot.dispatch import Dispatch
from bot.policy import NoPolicy, Policy, Request
from bot.run import Run
from bot.store.database import Database
from bot.store.safe import Safe
from bot.store.spool import Spool
from bot.workflow.pacing import Pace
from bot.workflow.worker import Worker
from connectors.command import Answer, Command, Query
from connectors.marker import Mark
from connectors.recall import Recollection
from runbooks import AnyRunbook, catalogue

T = TypeVar("T")


class Policies(Protocol):
    """Hands out the policy that holds now, or raises NoPolicy."""

    def current(self) -> Policy: ...


class Fleet(Protocol):
    """Reaches the hosts; see connectors.fleet."""

    def ask(self, host: str, query: Query[T], /) -> T: ...

    def tell(self, host: str, command: Command, /, *, fingerprint: str = "") -> Answer: ...

    def recall(self, host: str, mark: Mark, /, *, fingerprint: str = "") -> Recollection: ...

    def resolve(self, host: str, command: Command, /) -> Command: ...


@dataclass(frozen=True)
class Parts:
    database: Database
    policies: Policies
    fleet: Fleet
    dispatch: Dispatch
    runbooks: Mapping[str, type[AnyRunbook]] = field(default_factory=catalogue)
    # Takes what is known of a step while the log cannot be written.
    spool: Spool | None = None
    # Opens the second factors of people. Left out, it is a new one that opens none of them.
    safe: Safe = field(default_factory=Safe.new)
    # Microseconds that a request may wait for its approvals, and then for its turn.
    patience: int = 8 * 3600 * 1_000_000
    unused: int = 8 * 3600 * 1_000_000
    # Microseconds after which approvers are reminded, where no rule says so.
    reminder: int = 1800 * 1_000_000
    # Microseconds for which the approval of a schedule holds.
    lapse: int = 90 * 86400 * 1_000_000
    # How many hosts are read at once for one request, and how many threads there are for those
    # that one thread does not see to.
    crowd: int = 64
    # Who has runs in hand here.
    worker: Worker = field(default_factory=Worker)
    # Whose hosts this process cares for; None for all.
    sites: frozenset[str] | None = None
    # How much may be asked for within a minute; None for as much as one likes.
    pace: Pace | None = None


def site_of(parts: Parts, host: str) -> str:
    """Return the site whose workers reach the host; for one that nobody knows, any of them."""
    try:
        hosts = parts.policies.current().inventory.hosts
    except NoPolicy:
        return "main"
    known = hosts.get(host)
    return known.site if known else min((each.site for each in hosts.values()), default="main")


def request_of(run: Run, *, now: int) -> Request:
    """Return what the rules look at. now: microseconds since 1970."""
    reversible = run.proposal.reversible if run.proposal else True
    return Request(
        runbook=run.words,
        kind=run.kind,
        host=run.host,
        # Whoever asks for a schedule asks for what it will do: the rules look at that.
        door="schedule" if run.timing else run.origin.door,
        asked_by=run.asked_by,
        reversible=reversible,
        hosts=run.hosts,
        now=now,
        escalated=run.escalated is not None,
        editors=run.editors,
    )

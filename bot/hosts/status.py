"""The roll: every host as it stands, from what was done there and never by asking it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bot.db import locks, runs
from bot.db.database import Transaction
from bot.db.locks import Lock
from bot.hosts import reachability
from bot.hosts.reachability import LastContact
from bot.model.run import Run
from bot.policy import Policy
from connectors.inventory import Host


class Reachability(StrEnum):
    """How a host was met last. The value is how it is told."""

    ANSWERS = "answers"
    UNREACHABLE = "not reached"
    KEY = "shows another key"
    LOGIN = "does not let us in"
    WEAK = "speaks only weak algorithms"
    INTERRUPTED = "broke off"
    NOT_MET = "not met yet"


class HostKeyKind(StrEnum):
    """How a host is known. The value is how it is told."""

    PINNED = "pinned key"
    CA = "signed by a CA"
    CHANGED = "changed key seen"


_REACH = {
    "": Reachability.ANSWERS,
    "unreachable": Reachability.UNREACHABLE,
    "key": Reachability.KEY,
    "login": Reachability.LOGIN,
    "weak": Reachability.WEAK,
    "interrupted": Reachability.INTERRUPTED,
}


@dataclass(frozen=True)
class EnrollingHost:
    """A host that one person wants added, and that waits for another to confirm its key."""

    name: str
    address: str
    fingerprint: str
    asked_by: str


@dataclass(frozen=True)
class LoginKind:
    """One way to log in. user: its name. purpose: what it is for. by: what opens it, in words."""

    user: str
    purpose: str
    by: str


@dataclass(frozen=True)
class HostStatus:
    """One host. contact: how it was met last; None if it never was. frozen: why changes wait there
    now, "" if they do not. lock: the change on it now; holder: whose run that is. line: who waits
    for their turn, the next first.
    """

    host: Host
    area: str
    area_title: str
    owners: Sequence[str]
    contact: LastContact | None
    frozen: str
    lock: Lock | None
    holder: Run | None
    line: Sequence[Run]

    @property
    def reach(self) -> Reachability:
        return Reachability.NOT_MET if self.contact is None else _REACH[self.contact.kind]

    @property
    def pin(self) -> HostKeyKind:
        if self.reach is Reachability.KEY:
            return HostKeyKind.CHANGED
        return HostKeyKind.PINNED if self.host.host_key else HostKeyKind.CA

    @property
    def logins(self) -> Sequence[LoginKind]:
        """How we log in, without anything that opens it."""
        host = self.host
        by = "a key" if host.password_file is None else "a password"
        if host.reader is not None:
            changing = [LoginKind(host.user, "changes", by)] if host.changes else []
            return [LoginKind(host.reader.user, "reads", "a key of its own"), *changing]
        return [LoginKind(host.user, "reads and changes" if host.changes else "reads", by)]


def list_host_status(
    tx: Transaction, policy: Policy, fits: Callable[[Host], bool] = lambda _: True
) -> Iterator[HostStatus]:
    """Yield the hosts that fit, by area and name."""
    met, held = (
        reachability.list_contacts(tx),
        {lock.target: lock for lock in locks.list_locks(tx)},
    )
    holders = {run.id: run for run in runs.list_runs(tx, [lock.run for lock in held.values()])}
    lines = locks.list_queues(tx)
    titles = {area.name: area.title for area in policy.household.areas.values()}
    for host in sorted(policy.inventory, key=lambda one: (titles[one.area], one.name)):
        if fits(host):
            yield _standing(tx, policy, host, met, held, holders, lines)


def _standing(
    tx: Transaction,
    policy: Policy,
    host: Host,
    met: Mapping[str, LastContact],
    held: Mapping[str, Lock],
    holders: Mapping[int, Run],
    lines: Mapping[str, Sequence[Run]],
) -> HostStatus:
    area, lock = policy.area_of(host.name), held.get(host.name)
    return HostStatus(
        host=host,
        area=area.name,
        area_title=area.title,
        owners=area.owners,
        contact=met.get(host.name),
        frozen=policy.frozen(host=host.name, runbook="", now=tx.now),
        lock=lock,
        holder=holders.get(lock.run) if lock else None,
        line=lines.get(host.name, ()),
    )

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
    NEVER_TRIED = "not met yet"


class HostKeyKind(StrEnum):
    """How a host is known. The value is how it is told."""

    PINNED = "pinned key"
    CA = "signed by a CA"
    CHANGED = "changed key seen"


_REACHABILITY_BY_KIND = {
    "": Reachability.ANSWERS,
    "unreachable": Reachability.UNREACHABLE,
    "key": Reachability.KEY,
    "login": Reachability.LOGIN,
    "weak": Reachability.WEAK,
    "interrupted": Reachability.INTERRUPTED,
}


@dataclass(frozen=True)
class PendingHostSummary:
    """A host that one person wants added, and that waits for another to confirm its key."""

    name: str
    address: str
    fingerprint: str
    requested_by: str


@dataclass(frozen=True)
class HostLogin:
    """One way to log in. user: its name. purpose: what it is for. by: what opens it, in words."""

    user: str
    purpose: str
    authentication: str


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
    freeze: str
    lock: Lock | None
    holder: Run | None
    queue: Sequence[Run]

    @property
    def reachability(self) -> Reachability:
        return (
            Reachability.NEVER_TRIED
            if self.contact is None
            else _REACHABILITY_BY_KIND[self.contact.kind]
        )

    @property
    def host_key_kind(self) -> HostKeyKind:
        if self.reachability is Reachability.KEY:
            return HostKeyKind.CHANGED
        return HostKeyKind.PINNED if self.host.host_key else HostKeyKind.CA

    @property
    def logins(self) -> Sequence[HostLogin]:
        """How we log in, without anything that opens it."""
        host = self.host
        by = "a key" if host.password_file is None else "a password"
        if host.reader is not None:
            changing = [HostLogin(host.user, "changes", by)] if host.changes else []
            return [HostLogin(host.reader.user, "reads", "a key of its own"), *changing]
        return [HostLogin(host.user, "reads and changes" if host.changes else "reads", by)]


def list_host_statuses(
    tx: Transaction, policy: Policy, is_included: Callable[[Host], bool] = lambda _: True
) -> Iterator[HostStatus]:
    """Yield the hosts that fit, by area and name."""
    met, held = (
        reachability.list_contacts(tx),
        {lock.target: lock for lock in locks.list_locks(tx)},
    )
    holders = {run.id: run for run in runs.list_runs(tx, [lock.run for lock in held.values()])}
    lines = locks.list_queues(tx)
    titles = {area.name: area.title for area in policy.organisation.areas.values()}
    for host in sorted(policy.inventory, key=lambda one: (titles[one.area], one.name)):
        if is_included(host):
            yield _build_host_status(tx, policy, host, met, held, holders, lines)


def _build_host_status(
    tx: Transaction,
    policy: Policy,
    host: Host,
    contacts: Mapping[str, LastContact],
    locks_by_host: Mapping[str, Lock],
    holders: Mapping[int, Run],
    queues: Mapping[str, Sequence[Run]],
) -> HostStatus:
    area, lock = policy.get_area(host.name), locks_by_host.get(host.name)
    return HostStatus(
        host=host,
        area=area.name,
        area_title=area.title,
        owners=area.owners,
        contact=contacts.get(host.name),
        freeze=policy.describe_freeze(host=host.name, runbook="", now=tx.now),
        lock=lock,
        holder=holders.get(lock.run) if lock else None,
        queue=queues.get(host.name, ()),
    )

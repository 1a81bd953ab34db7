"""The status of every host, from stored contacts and locks, without connecting to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bot.db import host_contacts, locks, runs
from bot.db.database import Transaction
from bot.db.host_contacts import LastContact
from bot.db.locks import Lock
from bot.model.run import Run
from bot.policy import Policy
from connectors.inventory import Host


class Reachability(StrEnum):
    """The result of the last contact. The value is its label."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    KEY = "host key mismatch"
    LOGIN = "login refused"
    WEAK = "weak algorithms"
    INTERRUPTED = "connection interrupted"
    NEVER_TRIED = "never contacted"


class HostKeyKind(StrEnum):
    """How a host is identified. The value is its label."""

    PINNED = "pinned key"
    CA = "signed by a CA"
    SNMP = "no key: SNMP"
    CHANGED = "changed key"


_REACHABILITY_BY_KIND = {
    "": Reachability.REACHABLE,
    "unreachable": Reachability.UNREACHABLE,
    "key": Reachability.KEY,
    "login": Reachability.LOGIN,
    "weak": Reachability.WEAK,
    "interrupted": Reachability.INTERRUPTED,
}


@dataclass(frozen=True)
class PendingHostSummary:
    """A host that waits until a second person confirms its key."""

    name: str
    address: str
    fingerprint: str
    requested_by: str


@dataclass(frozen=True)
class HostLogin:
    """One login on a host."""

    user: str
    purpose: str
    """`reads`, `changes` or both."""
    authentication: str
    """How it authenticates, in words."""


@dataclass(frozen=True)
class HostStatus:
    """The status of one host."""

    host: Host
    area: str
    area_title: str
    owners: Sequence[str]
    contact: LastContact | None
    """None if it was never contacted."""
    freeze: str
    """The freeze that holds changes there now; "" without one."""
    lock: Lock | None
    holder: Run | None
    """The run that holds the lock."""
    queue: Sequence[Run]
    """The runs that wait for the lock, the next first."""

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
        if self.host.snmp is not None:
            return HostKeyKind.SNMP
        pinned = self.host.host_key or (self.host.msa and self.host.msa.certificate)
        return HostKeyKind.PINNED if pinned else HostKeyKind.CA

    @property
    def logins(self) -> Sequence[HostLogin]:
        """The logins, without secrets."""
        host = self.host
        if host.snmp is not None:
            by = "passphrases" if host.snmp.user else "a community"
            purpose = "reads and changes" if host.changes else "reads"
            return [HostLogin(host.snmp.user or "SNMP 2c", purpose, by)]
        if host.msa is not None:
            return [HostLogin(host.msa.user, "reads", "a password")]
        by = "a key" if host.password_file is None else "a password"
        if host.reader is not None:
            changing = [HostLogin(host.user, "changes", by)] if host.changes else []
            return [HostLogin(host.reader.user, "reads", "a key of its own"), *changing]
        return [HostLogin(host.user, "reads and changes" if host.changes else "reads", by)]


def list_host_statuses(
    tx: Transaction, policy: Policy, is_included: Callable[[Host], bool] = lambda _: True
) -> Iterator[HostStatus]:
    """Yield the status of the included hosts, by area and name."""
    contacts = host_contacts.list_contacts(tx)
    held = {lock.target: lock for lock in locks.list_locks(tx)}
    holders = {run.id: run for run in runs.list_runs(tx, [lock.run for lock in held.values()])}
    queues = locks.list_queues(tx)
    titles = {area.name: area.title for area in policy.organisation.areas.values()}
    for host in sorted(policy.inventory, key=lambda one: (titles[one.area], one.name)):
        if is_included(host):
            yield _build_host_status(tx, policy, host, contacts, held, holders, queues)


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
        freeze=policy.describe_freeze([host.name], runbook="", now=tx.now),
        lock=lock,
        holder=holders.get(lock.run) if lock else None,
        queue=queues.get(host.name, ()),
    )

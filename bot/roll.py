"""The roll: every host as it stands, from what was done there and never by asking it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bot.policy import Policy
from bot.run import Run
from bot.store import contacts, locks, runs
from bot.store.contacts import Contact
from bot.store.database import Transaction
from bot.store.locks import Lock
from connectors.inventory import Host


class Reach(StrEnum):
    """How a host was met last. The value is how it is told."""

    ANSWERS = "answers"
    UNREACHABLE = "not reached"
    KEY = "shows another key"
    LOGIN = "does not let us in"
    WEAK = "speaks only weak algorithms"
    INTERRUPTED = "broke off"
    NOT_MET = "not met yet"


class Pin(StrEnum):
    """How a host is known. The value is how it is told."""

    PINNED = "pinned key"
    CA = "signed by a CA"
    CHANGED = "changed key seen"


_REACH = {
    "": Reach.ANSWERS,
    "unreachable": Reach.UNREACHABLE,
    "key": Reach.KEY,
    "login": Reach.LOGIN,
    "weak": Reach.WEAK,
    "interrupted": Reach.INTERRUPTED,
}


@dataclass(frozen=True)
class Enrolling:
    """A host that one person wants added, and that waits for another to confirm its key."""

    name: str
    address: str
    fingerprint: str
    asked_by: str


@dataclass(frozen=True)
class Login:
    """One way to log in. user: its name. purpose: what it is for. by: what opens it, in words."""

    user: str
    purpose: str
    by: str


@dataclass(frozen=True)
class Standing:
    """One host. contact: how it was met last; None if it never was. frozen: why changes wait there
    now, "" if they do not. lock: the change on it now; holder: whose run that is. line: who waits
    for their turn, the next first.
    """

    host: Host
    area: str
    area_title: str
    owners: Sequence[str]
    contact: Contact | None
    frozen: str
    lock: Lock | None
    holder: Run | None
    line: Sequence[Run]

    @property
    def reach(self) -> Reach:
        return Reach.NOT_MET if self.contact is None else _REACH[self.contact.kind]

    @property
    def pin(self) -> Pin:
        if self.reach is Reach.KEY:
            return Pin.CHANGED
        return Pin.PINNED if self.host.host_key else Pin.CA

    @property
    def logins(self) -> Sequence[Login]:
        """How we log in, without anything that opens it."""
        host = self.host
        by = "a key" if host.password_file is None else "a password"
        if host.reader is not None:
            changing = [Login(host.user, "changes", by)] if host.changes else []
            return [Login(host.reader.user, "reads", "a key of its own"), *changing]
        return [Login(host.user, "reads and changes" if host.changes else "reads", by)]


def roll(
    tx: Transaction, policy: Policy, fits: Callable[[Host], bool] = lambda _: True
) -> Iterator[Standing]:
    """Yield the hosts that fit, by area and name."""
    met, held = contacts.every(tx), {lock.target: lock for lock in locks.every(tx)}
    holders = {run.id: run for run in runs.listed(tx, [lock.run for lock in held.values()])}
    lines = locks.lines(tx)
    titles = {area.name: area.title for area in policy.household.areas.values()}
    for host in sorted(policy.inventory, key=lambda one: (titles[one.area], one.name)):
        if fits(host):
            yield _standing(tx, policy, host, met, held, holders, lines)


def _standing(
    tx: Transaction,
    policy: Policy,
    host: Host,
    met: Mapping[str, Contact],
    held: Mapping[str, Lock],
    holders: Mapping[int, Run],
    lines: Mapping[str, Sequence[Run]],
) -> Standing:
    area, lock = policy.area_of(host.name), held.get(host.name)
    return Standing(
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

"""Try every way against a host, and every twin against one that lacks a protection."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.campaigns import CHAOS
from tests.guarantee.attacked_host import AttackedHost
from tests.guarantee.service_ways import (
    SERVICE_TWINS,
    ServiceTwin,
    ServiceWay,
    list_service_ways,
)
from tests.guarantee.signed_host import SignedHost
from tests.guarantee.ways import TWINS, Twin, Way, list_ways

AnyWay = TypeVar("AnyWay", Way, ServiceWay)


@dataclass(frozen=True)
class Broken:
    """A way that changed the host more often than it may."""

    way: Way
    changes: int


def select_ways(ways: Sequence[AnyWay], twins: Iterable[Twin | ServiceTwin]) -> Sequence[AnyWay]:
    """Return the first way of each kind, and what each protection is for; all in `make chaos`."""
    first = {way.kind: way.name for way in reversed(ways)}
    sample = {*first.values(), *(twin.way for twin in twins)}
    return [way for way in ways if CHAOS or way.name in sample]


def try_ways(host: SignedHost, ways: Iterable[Way]) -> Iterator[Broken | Way]:
    """Yield each way when it was tried, as Broken if it changed the host."""
    for way in ways:
        host.reset()
        way.attempt(host)
        yield Broken(way, host.changes) if host.changes > way.allowed else way
    host.reset()


def changes_without_protection(host: SignedHost, twin: Twin) -> bool:
    """Return whether the way of a twin changes a host that lacks the protection."""
    way = next(way for way in list_ways() if way.name == twin.way)
    host.reset()
    host.install(twin.replaced)
    way.attempt(host)
    changes = host.changes
    host.reset()
    return changes > way.allowed


def list_changing(attacked: AttackedHost, ways: Iterable[ServiceWay]) -> Iterator[ServiceWay]:
    """Yield each way through a stolen Keyturn that changes the host."""
    for way in ways:
        attacked.reset()
        way.attempt(attacked)
        if attacked.is_changed:
            yield way
    attacked.reset()


def service_way_changes(attacked: AttackedHost, twin: ServiceTwin) -> bool:
    """Return whether the way of a twin changes a host that lacks the protection."""
    way = next(way for way in list_service_ways() if way.name == twin.way)
    attacked.reset()
    twin.weaken(attacked)
    attacked.accept_change()
    way.attempt(attacked)
    changed = attacked.is_changed
    attacked.reset()
    return changed


def print_service_table(attacked: AttackedHost) -> bool:
    """Try every way through a stolen Keyturn, print a table, and return whether all held."""
    ways = list_service_ways()
    broken = [*list_changing(attacked, ways)]
    changed = Counter(way.kind for way in broken)
    for kind, count in Counter(way.kind for way in ways).items():
        print(f"{kind:20}{count:>8}{changed[kind]:>20}")
    for way in broken:
        print(f"CHANGED THE HOST: {way.kind}: {way.name}")
    shown = {twin: service_way_changes(attacked, twin) for twin in SERVICE_TWINS}
    for twin, changes in shown.items():
        mark = "✓" if changes else "✗"
        print(f"{mark} without “{twin.protection}”, “{twin.way}” changes the host")
    return not broken and all(shown.values())


def print_table(host: SignedHost) -> bool:
    """Try everything, print a table, and return whether all held and each twin shows why."""
    tried, broken = Counter[str](), list[Broken]()
    for one in try_ways(host, list_ways()):
        way = one.way if isinstance(one, Broken) else one
        tried[way.kind] += 1
        broken += [one] if isinstance(one, Broken) else []
    changed = Counter(one.way.kind for one in broken)
    print(f"{'':20}{'tried':>8}{'changed the host':>20}")
    for kind, count in tried.items():
        print(f"{kind:20}{count:>8}{changed[kind]:>20}")
    print(f"{'all':20}{tried.total():>8}{changed.total():>20}\n")
    for one in broken:
        print(f"CHANGED THE HOST: {one.way.kind}: {one.way.name}")
    held = True
    for twin in TWINS:
        shown = changes_without_protection(host, twin)
        held = held and shown
        print(
            f"{'✓' if shown else '✗'} without “{twin.protection}”, “{twin.way}” changes the host"
        )
    return held and not broken

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from connectors import zfs
from connectors.command import Ask, Shell
from connectors.zfs import Load, Storage
from connectors.zfs_disks import disks
from connectors.zpool import Pool, Scan, duration
from runbooks import Change, Host, Plan, PoolName, Refused, Report, Step, tagged

# In these states a scrub can only fail or hang.
_STANDSTILL = frozenset({"SUSPENDED", "UNAVAIL", "FAULTED", "OFFLINE", "REMOVED"})


@dataclass(frozen=True)
class Scrubbable:
    """A pool, its host's other pools and load, and the pools busy on the same disks."""

    pool: Pool
    storage: Storage
    load: Load
    busy_beside: Sequence[Pool] = ()

    @property
    def stop(self) -> Shell:
        words = zfs.stop_scrub if self.storage.can_pause else zfs.stop_scrub_on_fuse
        return words(self.pool.name)

    def scrubbed_within(self, minutes: int) -> bool:
        scrub = self.pool.scrub
        if scrub is None or scrub.state != "finished" or scrub.when is None:
            return False
        return self.storage.now - scrub.when < timedelta(minutes=minutes)


class _Scrub(Change[Scrubbable]):
    """Starts a scrub; what is below says when it had better not."""

    host: Host = tagged("zfs")
    pool: PoolName
    fresh: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            title="Skip if scrubbed within (min)",
            description="Minutes within which a finished scrub is enough",
        ),
    ] = 60

    def read(self, ask: Ask) -> Scrubbable:
        storage = zfs.storage(ask, self.host)
        pool = zfs.pick(self.pool, storage)
        load = ask(self.host, zfs.load())
        busy = [other for other in storage.pools if other.running and other.name != pool.name]
        mine = disks(ask, self.host, pool) if busy else frozenset[str]()
        beside = [other for other in busy if mine & disks(ask, self.host, other)]
        return Scrubbable(pool, storage, load, beside)

    def plan(self, found: Scrubbable) -> Plan:
        plan = self.plan_anyway(found)
        if plan.steps:
            self.consider(found)
        return plan

    def plan_anyway(self, found: Scrubbable) -> Plan:
        pool = found.pool
        _refuse_what_cannot_be(pool)
        if pool.running:
            return Plan(f"{pool.name} is being scrubbed already: {pool.running.story}")
        if found.scrubbed_within(self.fresh) and pool.scrub:
            return Plan(f"{pool.name} has just been scrubbed: {pool.scrub.story}")
        paused = next((scan for scan in pool.scans if scan.state == "paused"), None)
        step = self._resume(pool, paused) if paused else self._start(found)
        because = pool.scans[0].story if pool.scans else "never scrubbed"
        return Plan(f"{pool.name} is {pool.state}; {because}", [step], _notes(found, self.host))

    def refuse_undo(self, found: Scrubbable) -> None:
        pool = found.pool
        if pool.running is None or pool.running.kind != "scrub":
            story = pool.scrub.story if pool.scrub else "it is forgotten"
            raise Refused(f"the scrub of {pool.name} is not running any more ({story})")

    def follow(self, found: Scrubbable) -> Report:
        pool = found.pool
        running = pool.running is not None
        story = pool.scans[0].story if pool.scans else "its scrub is forgotten"
        findings = [] if running else pool.complaints
        scan = pool.running or pool.scrub
        if scan is not None and scan.errors:
            findings.append(f"{scan.errors:,} errors could not be repaired")
        told = pool.running.story if pool.running else story
        return Report(
            f"{pool.name}: {told}", healthy=not findings, findings=findings, running=running
        )

    def consider(self, found: Scrubbable) -> None:
        """Raise Refused where a scrub is possible and had better not be."""

    def _start(self, found: Scrubbable) -> Step:
        return Step(
            f"Start a scrub of {self.pool}",
            self.host,
            do=zfs.start_scrub(self.pool),
            undo=found.stop,
            before="not being scrubbed",
            after="being scrubbed",
        )

    def _resume(self, pool: Pool, paused: Scan) -> Step:
        if paused.kind != "scrub":
            raise Refused(f"{pool.name} has an {paused.kind} that is paused: see to that first")
        return Step(
            f"Go on with the scrub of {self.pool}",
            self.host,
            do=zfs.start_scrub(self.pool),
            undo=zfs.pause_scrub(self.pool),
            before="scrub paused",
            after="being scrubbed",
        )


class StartScrub(_Scrub, words="zfs scrub start", example="nas1 tank", undo="stops the scrub"):
    """Start a scrub, which reads all data of a ZFS pool and repairs what is damaged."""

    max_load: Annotated[
        float,
        Field(
            gt=0,
            le=10_000,
            allow_inf_nan=False,
            title="Highest load average",
            description="Refuse while the load average of 5 minutes is above this",
        ),
    ] = 8.0

    def consider(self, found: Scrubbable) -> None:
        pool = found.pool
        if pool.state != "ONLINE" or pool.broken:
            why = pool.broken or pool.action or pool.status
            raise Refused(
                f"{pool.name} is {pool.state} ({why}): replace what is broken first. Where it "
                "must be scrubbed all the same, ask for `zfs scrub force`"
            )
        if found.busy_beside:
            other = found.busy_beside[0]
            story = other.running.story if other.running else ""
            raise Refused(
                f"{other.name} is on the same disks and busy ({story}): ask again when it is done"
            )
        if found.load.five > self.max_load:
            raise Refused(
                f"the load of {self.host} is {found.load.five:g} and the limit given is "
                f"{self.max_load:g}: ask again in a calmer hour, or give a higher max_load"
            )


class ForceScrub(_Scrub, words="zfs scrub force", example="nas1 tank", undo="stops the scrub"):
    """Start a scrub although the pool is degraded, its host busy, or its disks in use beside."""


def _refuse_what_cannot_be(pool: Pool) -> None:
    if pool.state in _STANDSTILL:
        why = f" ({pool.broken})" if pool.broken else ""
        raise Refused(
            f"{pool.name} is {pool.state}{why}: a scrub would hang. Connect its disks, then "
            "`zpool clear`"
        )
    if pool.resilvering:
        raise Refused(
            f"{pool.name} is busy with a {pool.resilvering.story}: a scrub has to wait until then"
        )
    if pool.running and pool.running.kind == "error scrub":
        raise Refused(f"{pool.name} is busy with an {pool.running.story}: wait until it is done")


def _notes(found: Scrubbable, host: str) -> list[str]:
    pool = found.pool
    took = pool.scrub.took if pool.scrub and pool.scrub.state == "finished" else None
    last = f"; the last one took {duration(took)}" if took is not None else ""
    notes = [
        f"It reads all data of {pool.name} and slows its programs down meanwhile{last}.",
        f"This run ends when the scrub has started, and its end is told here; "
        f"`zfs scrub status {host} {pool.name}` tells how far it is.",
        f"The load of {host} is {found.load.five:g} (average of 5 minutes).",
    ]
    if pool.state != "ONLINE" or pool.broken:
        notes.append(
            f"{pool.name} is {pool.state} ({pool.broken or pool.action}): damage may be beyond "
            "repair now, and the strain may break the next disk. See to a backup first."
        )
    notes += [
        f"{other.name} is on the same disks and busy: both will be slow."
        for other in found.busy_beside
    ]
    notes += [f"Before it starts: {text}." for text in pool.complaints if pool.state == "ONLINE"]
    return notes

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from connectors import zfs
from connectors.command import QueryRunner, Shell
from connectors.zfs import LoadAverage, ZfsStorage
from connectors.zfs_disks import read_disks
from connectors.zpool import Pool, Scan, format_duration
from runbooks import Change, Host, Plan, PoolName, Refused, Report, Step, make_host_field

# In these states a scrub can only fail or hang.
_STANDSTILL = frozenset({"SUSPENDED", "UNAVAIL", "FAULTED", "OFFLINE", "REMOVED"})


@dataclass(frozen=True)
class ScrubState:
    """A pool, its host's other pools and load, and the pools busy on the same disks."""

    pool: Pool
    storage: ZfsStorage
    load: LoadAverage
    busy_neighbours: Sequence[Pool] = ()

    @property
    def stop_command(self) -> Shell:
        words = zfs.stop_scrub if self.storage.can_pause else zfs.stop_scrub_on_fuse
        return words(self.pool.name)

    def is_scrubbed_within(self, minutes: int) -> bool:
        scrub = self.pool.last_scrub
        if scrub is None or scrub.state != "finished" or scrub.time is None:
            return False
        return self.storage.host_time - scrub.time < timedelta(minutes=minutes)


class _Scrub(Change[ScrubState]):
    """Starts a scrub; what is below says when it had better not."""

    host: Host = make_host_field("zfs")
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

    def read(self, run_query: QueryRunner) -> ScrubState:
        storage = zfs.read_storage(run_query, self.host)
        pool = zfs.find_pool(self.pool, storage)
        load = run_query(self.host, zfs.query_load())
        busy = [other for other in storage.pools if other.running_scan and other.name != pool.name]
        mine = read_disks(run_query, self.host, pool) if busy else frozenset[str]()
        beside = [other for other in busy if mine & read_disks(run_query, self.host, other)]
        return ScrubState(pool, storage, load, beside)

    def plan(self, found: ScrubState) -> Plan:
        plan = self.plan_anyway(found)
        if plan.steps:
            self.refuse_unwise(found)
        return plan

    def plan_anyway(self, found: ScrubState) -> Plan:
        pool = found.pool
        _refuse_unusable_pool(pool)
        if pool.running_scan:
            return Plan(f"{pool.name} is being scrubbed already: {pool.running_scan.description}")
        if found.is_scrubbed_within(self.fresh) and pool.last_scrub:
            return Plan(f"{pool.name} has just been scrubbed: {pool.last_scrub.description}")
        paused = next((scan for scan in pool.scans if scan.state == "paused"), None)
        step = self._make_resume_step(pool, paused) if paused else self._make_start_step(found)
        because = pool.scans[0].description if pool.scans else "never scrubbed"
        return Plan(
            f"{pool.name} is {pool.state}; {because}", [step], _list_notes(found, self.host)
        )

    def refuse_undo(self, found: ScrubState) -> None:
        pool = found.pool
        if pool.running_scan is None or pool.running_scan.kind != "scrub":
            story = pool.last_scrub.description if pool.last_scrub else "it is forgotten"
            raise Refused(f"the scrub of {pool.name} is not running any more ({story})")

    def report_progress(self, found: ScrubState) -> Report:
        pool = found.pool
        running = pool.running_scan is not None
        story = pool.scans[0].description if pool.scans else "its scrub is forgotten"
        findings = [] if running else pool.findings
        scan = pool.running_scan or pool.last_scrub
        if scan is not None and scan.errors:
            findings.append(f"{scan.errors:,} errors could not be repaired")
        told = pool.running_scan.description if pool.running_scan else story
        return Report(
            f"{pool.name}: {told}", healthy=not findings, findings=findings, running=running
        )

    def refuse_unwise(self, found: ScrubState) -> None:
        """Raise Refused where a scrub is possible and had better not be."""

    def _make_start_step(self, found: ScrubState) -> Step:
        return Step(
            f"Start a scrub of {self.pool}",
            self.host,
            do=zfs.start_scrub(self.pool),
            undo=found.stop_command,
            before="not being scrubbed",
            after="being scrubbed",
        )

    def _make_resume_step(self, pool: Pool, paused: Scan) -> Step:
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

    def refuse_unwise(self, found: ScrubState) -> None:
        pool = found.pool
        if pool.state != "ONLINE" or pool.broken_disks:
            why = pool.broken_disks or pool.action or pool.status
            raise Refused(
                f"{pool.name} is {pool.state} ({why}): replace what is broken first. Where it "
                "must be scrubbed all the same, ask for `zfs scrub force`"
            )
        if found.busy_neighbours:
            other = found.busy_neighbours[0]
            story = other.running_scan.description if other.running_scan else ""
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


def _refuse_unusable_pool(pool: Pool) -> None:
    if pool.state in _STANDSTILL:
        why = f" ({pool.broken_disks})" if pool.broken_disks else ""
        raise Refused(
            f"{pool.name} is {pool.state}{why}: a scrub would hang. Connect its disks, then "
            "`zpool clear`"
        )
    if pool.running_resilver:
        raise Refused(
            f"{pool.name} is busy with a {pool.running_resilver.description}: a scrub has to "
            "wait until then"
        )
    if pool.running_scan and pool.running_scan.kind == "error scrub":
        raise Refused(
            f"{pool.name} is busy with an {pool.running_scan.description}: wait until it is done"
        )


def _list_notes(found: ScrubState, host: str) -> list[str]:
    pool = found.pool
    took = (
        pool.last_scrub.seconds_taken
        if pool.last_scrub and pool.last_scrub.state == "finished"
        else None
    )
    last = f"; the last one took {format_duration(took)}" if took is not None else ""
    notes = [
        f"It reads all data of {pool.name} and slows its programs down meanwhile{last}.",
        f"This run ends when the scrub has started, and its end is told here; "
        f"`zfs scrub status {host} {pool.name}` tells how far it is.",
        f"The load of {host} is {found.load.five:g} (average of 5 minutes).",
    ]
    if pool.state != "ONLINE" or pool.broken_disks:
        notes.append(
            f"{pool.name} is {pool.state} ({pool.broken_disks or pool.action}): damage may be "
            "beyond "
            "repair now, and the strain may break the next disk. See to a backup first."
        )
    notes += [
        f"{other.name} is on the same disks and busy: both will be slow."
        for other in found.busy_neighbours
    ]
    notes += [f"Before it starts: {text}." for text in pool.findings if pool.state == "ONLINE"]
    return notes

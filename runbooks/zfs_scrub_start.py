from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from connectors import zfs
from connectors.amounts import format_duration
from connectors.command import QueryRunner, Shell
from connectors.zfs import LoadAverage, ZfsStorage
from connectors.zfs_disks import read_disks
from connectors.zpool import Pool, Scan
from runbooks import Change, Host, Leg, Plan, PoolName, Refused, Report, Step, make_host_field

# In these states a scrub can only fail or hang.
_STANDSTILL = frozenset({"SUSPENDED", "UNAVAIL", "FAULTED", "OFFLINE", "REMOVED"})


@dataclass(frozen=True)
class ScrubState:
    """A pool, and the state of its host."""

    pool: Pool
    storage: ZfsStorage
    """All pools of the host."""
    load: LoadAverage
    busy_neighbours: Sequence[Pool] = ()
    """Other pools on the same disks with a running scan."""

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
    """Starts a scrub; subclasses decide when it is unwise."""

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
        disks = read_disks(run_query, self.host, pool) if busy else frozenset[str]()
        beside = [other for other in busy if disks & read_disks(run_query, self.host, other)]
        return ScrubState(pool, storage, load, beside)

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.pool)]

    def plan(self, state: ScrubState) -> Plan:
        plan = self.plan_anyway(state)
        if plan.steps:
            self.refuse_unwise(state)
        return plan

    def plan_anyway(self, state: ScrubState) -> Plan:
        pool = state.pool
        _refuse_unusable_pool(pool)
        if pool.running_scan:
            return Plan(f"{pool.name} is being scrubbed: {pool.running_scan.description}")
        if state.is_scrubbed_within(self.fresh) and pool.last_scrub:
            return Plan(f"{pool.name} has just been scrubbed: {pool.last_scrub.description}")
        paused = pool.paused_scan
        step = self._make_resume_step(pool, paused) if paused else self._make_start_step(state)
        because = pool.scans[0].description if pool.scans else "never scrubbed"
        return Plan(
            f"{pool.name} is {pool.state}; {because}", [step], _list_notes(state, self.host)
        )

    def refuse_undo(self, state: ScrubState) -> None:
        pool = state.pool
        if pool.running_scan is None or pool.running_scan.kind != "scrub":
            description = (
                pool.last_scrub.description if pool.last_scrub else "ZFS has no record of it"
            )
            raise Refused(f"the scrub of {pool.name} is not running any more ({description})")

    def report_progress(self, state: ScrubState) -> Report:
        pool = state.pool
        running = pool.running_scan is not None
        unknown = "ZFS has no record of its scrub" if pool.was_never_scanned else "state unknown"
        description = pool.scans[0].description if pool.scans else unknown
        findings = [] if running else pool.findings
        scan = pool.running_scan or pool.last_scrub
        if scan is not None and scan.errors:
            findings.append(f"{scan.errors:,} errors could not be repaired")
        progress = pool.running_scan.description if pool.running_scan else description
        return Report(
            f"{pool.name}: {progress}", healthy=not findings, findings=findings, running=running
        )

    def refuse_unwise(self, state: ScrubState) -> None:
        """Raise Refused where a scrub is possible but unwise."""

    def _make_start_step(self, state: ScrubState) -> Step:
        return Step(
            f"Start a scrub of {self.pool}",
            self.host,
            do=zfs.start_scrub(self.pool),
            undo=state.stop_command,
            before="no scrub running",
            after="scrub running",
        )

    def _make_resume_step(self, pool: Pool, paused: Scan) -> Step:
        if paused.kind != "scrub":
            raise Refused(f"{pool.name} has a paused {paused.kind}: resume or stop that first")
        return Step(
            f"Resume the scrub of {self.pool}",
            self.host,
            do=zfs.start_scrub(self.pool),
            undo=zfs.pause_scrub(self.pool),
            before="scrub paused",
            after="scrub running",
        )


class StartScrub(
    _Scrub,
    words="zfs scrub start",
    also_called=("scrub",),
    example="nas1 tank",
    undo="stops the scrub",
):
    """Start a scrub, which reads all data of a ZFS pool and repairs damage."""

    max_load: Annotated[
        float,
        Field(
            gt=0,
            le=10_000,
            allow_inf_nan=False,
            title="Highest load average",
            description="Refuse if the 5-minute load average is above this",
        ),
    ] = 8.0

    def refuse_unwise(self, state: ScrubState) -> None:
        pool = state.pool
        if pool.state != "ONLINE" or pool.broken_disks:
            reason = pool.broken_disks or pool.action or pool.status
            raise Refused(
                f"{pool.name} is {pool.state} ({reason}): replace the disk before scrubbing. To "
                "scrub it all the same, request `zfs scrub force`"
            )
        if state.busy_neighbours:
            other = state.busy_neighbours[0]
            description = other.running_scan.description if other.running_scan else ""
            raise Refused(
                f"{other.name} is on the same disks and busy ({description}): try again when it "
                "has ended"
            )
        if state.load.five > self.max_load:
            raise Refused(
                f"the load of {self.host} is {state.load.five:g}, above the limit of "
                f"{self.max_load:g}: try again later, or set a higher max_load"
            )


class ForceScrub(_Scrub, words="zfs scrub force", example="nas1 tank", undo="stops the scrub"):
    """Start a scrub even if the pool is degraded, its host busy, or its disks in use."""


def _refuse_unusable_pool(pool: Pool) -> None:
    if pool.state in _STANDSTILL:
        disks = f" ({pool.broken_disks})" if pool.broken_disks else ""
        raise Refused(
            f"{pool.name} is {pool.state}{disks}: a scrub would hang. Connect its disks, then "
            "request `zfs clear`"
        )
    if pool.running_resilver:
        raise Refused(
            f"{pool.name} is busy with a {pool.running_resilver.description}: try again when it "
            "has ended"
        )
    if pool.running_scan and pool.running_scan.kind == "error scrub":
        raise Refused(
            f"{pool.name} is busy with an {pool.running_scan.description}: try again when it has "
            "ended"
        )


def _list_notes(state: ScrubState, host: str) -> list[str]:
    pool = state.pool
    took = (
        pool.last_scrub.seconds_taken
        if pool.last_scrub and pool.last_scrub.state == "finished"
        else None
    )
    last = f"; the last one took {format_duration(took)}" if took is not None else ""
    notes = [
        f"It reads all data of {pool.name} and slows down programs meanwhile{last}.",
        f"This run ends when the scrub has started, and reports when the scrub ends; "
        f"`zfs scrub status {host} {pool.name}` shows its progress.",
        f"The load of {host} is {state.load.five:g} (average of 5 minutes).",
    ]
    if pool.state != "ONLINE" or pool.broken_disks:
        notes.append(
            f"{pool.name} is {pool.state} ({pool.broken_disks or pool.action}): damage may be "
            "beyond repair now, and the load may break the next disk. Make a backup first."
        )
    notes += [
        f"{other.name} is on the same disks and busy: both will be slow."
        for other in state.busy_neighbours
    ]
    notes += [f"Before it starts: {text}." for text in pool.findings if pool.state == "ONLINE"]
    return notes

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from connectors import disk_write
from connectors.command import QueryRunner
from connectors.disk_write import (
    DIRECTORY,
    MAX_MIB,
    MIN_MIB,
    NO_DISKS,
    SPARE_BYTES,
    SPARE_SHARE,
    DirectoryState,
)
from runbooks import Change, Clock, Host, Instant, Plan, Refused, Step

_MIB = 2**20
_GIB = 2**30
# From here on the trial would be in the way of the host's own work, and would measure that.
_WAITED = 20.0
# It may take so long: a disk that writes 5 MiB/s and the most that can be asked for.
_PATIENCE = 300


@dataclass(frozen=True)
class DirectoryReading:
    """The directory and the state of its host, and what time it is there."""

    directory: DirectoryState
    clock: Clock


class MeasureDiskWrite(
    Change[DirectoryReading],
    words="disk write test",
    example="nas1 /srv",
    undo="forgets the result; nothing else is left",
):
    """Measure how fast a disk takes data, by writing a file that is gone before it is written."""

    host: Host
    directory: Annotated[
        str,
        Field(
            pattern=f"^{DIRECTORY}$",
            description="A directory of root's on the disk that is meant, such as /srv",
        ),
    ]
    mib: Annotated[
        int,
        Field(ge=MIN_MIB, le=MAX_MIB, title="Size (MiB)", description="How much to write, in MiB"),
    ] = 64
    # A trial leaves nothing behind but its result: so the request says how old one may be.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Take a result from after this moment for the answer; now, if left empty",
    )

    def read(self, run_query: QueryRunner) -> DirectoryReading:
        place = run_query(self.host, disk_write.query_directory(self.directory))
        return DirectoryReading(place, Clock.read(place.host_time))

    def plan(self, found: DirectoryReading) -> Plan:
        place, last = found.directory, found.directory.last_result
        found.clock.refuse_future(self.since)
        asked = (self.directory, self.mib)
        if (
            last
            and (last.directory, last.mib) == asked
            and found.clock.is_since(last.ended_at, self.since)
        ):
            return Plan(str(last))
        self._refuse_unsuitable(place)
        self._refuse_full(place)
        self._refuse_busy(place)
        step = Step(
            f"Write {self.mib} MiB to {self.directory}",
            self.host,
            do=disk_write.write_test_file(self.directory, mib=self.mib, seconds=_PATIENCE),
            undo=disk_write.delete_result(),
            before="not measured",
            after="measured, and what was written is gone",
        )
        because = (
            f"{self.directory} is on {place.mount} ({place.filesystem}), which has "
            f"{place.free_bytes / _GIB:,.1f} GiB free; load {place.load:g} on {place.cpus} CPUs"
        )
        return Plan(because, [step], [*self._list_notes(place)])

    def _refuse_unsuitable(self, place: DirectoryState) -> None:
        why = NO_DISKS.get(place.filesystem)
        if why:
            raise Refused(f"{self.directory} is on {place.mount}, which {why}")
        if not place.is_root_owned:
            raise Refused(
                f"others than root may write to {self.directory}, and could lead the trial "
                "astray: name a directory on the same disk that is root's"
            )

    def _refuse_full(self, place: DirectoryState) -> None:
        spare = max(SPARE_BYTES, place.size_bytes // SPARE_SHARE)
        if place.free_bytes - self.mib * _MIB < spare:
            raise Refused(
                f"{place.mount} has {place.free_bytes / _GIB:,.1f} GiB free, and behind "
                f"{self.mib} MiB "
                f"{spare / _GIB:,.1f} GiB are to be left: make room, or ask for less"
            )

    def _refuse_busy(self, place: DirectoryState) -> None:
        if place.load >= place.cpus:
            raise Refused(
                f"{self.host} is busy (load {place.load:g} on {place.cpus} CPUs): ask again when "
                "it is calm, or the trial disturbs it and measures that"
            )
        if place.io_wait is not None and place.io_wait >= _WAITED:
            raise Refused(
                f"programs on {self.host} wait for its disks {place.io_wait:.0f} % of the time: "
                "ask again when they are calm, or see `disk io` for who is at them"
            )

    def _list_notes(self, place: DirectoryState) -> Iterator[str]:
        yield "Others who write to the same disk wait meanwhile; it is stopped after 5 minutes."
        yield "What is written is random, so that compression does not flatter the disk."
        if place.io_wait is None:
            yield "This kernel does not tell whether programs wait for disks."
        if place.last_result:
            yield f"Last time: {place.last_result}."

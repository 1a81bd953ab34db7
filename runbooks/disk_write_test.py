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
# Percent of I/O wait from which the test would disturb the host's own work, and measure that.
_WAITED = 20.0
# Seconds: enough for the largest size on a disk that writes 5 MiB/s.
_PATIENCE = 300


@dataclass(frozen=True)
class DirectoryReading:
    """The directory, and the host's clock."""

    directory: DirectoryState
    clock: Clock


class MeasureDiskWrite(
    Change[DirectoryReading],
    words="disk write test",
    example="nas1 /srv",
    undo="deletes the result; nothing else is left",
):
    """Measure how fast a disk writes, with a temporary file that is already unlinked."""

    host: Host
    directory: Annotated[
        str,
        Field(
            pattern=f"^{DIRECTORY}$",
            description="A directory on the disk that only root can write to, such as /srv",
        ),
    ]
    mib: Annotated[
        int,
        Field(ge=MIN_MIB, le=MAX_MIB, title="Size (MiB)", description="How much to write, in MiB"),
    ] = 64
    # A test leaves only its result behind, so the request says how old a result may be.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Accept a result that is newer than this time; now if left empty",
    )

    def read(self, run_query: QueryRunner) -> DirectoryReading:
        state = run_query(self.host, disk_write.query_directory(self.directory))
        return DirectoryReading(state, Clock.read(state.host_time))

    def plan(self, reading: DirectoryReading) -> Plan:
        state, last = reading.directory, reading.directory.last_result
        reading.clock.refuse_future(self.since)
        requested = (self.directory, self.mib)
        if (
            last
            and (last.directory, last.mib) == requested
            and reading.clock.is_since(last.ended_at, self.since)
        ):
            return Plan(str(last))
        self._refuse_unsuitable(state)
        self._refuse_full(state)
        self._refuse_busy(state)
        step = Step(
            f"Write {self.mib} MiB to {self.directory}",
            self.host,
            do=disk_write.write_test_file(self.directory, mib=self.mib, seconds=_PATIENCE),
            undo=disk_write.delete_result(),
            before="not measured",
            after="measured, file deleted",
        )
        because = (
            f"{self.directory} is on {state.mount} ({state.filesystem}), which has "
            f"{state.free_bytes / _GIB:,.1f} GiB free; load {state.load:g} on {state.cpus} CPUs"
        )
        return Plan(because, [step], [*self._list_notes(state)])

    def _refuse_unsuitable(self, state: DirectoryState) -> None:
        reason = NO_DISKS.get(state.filesystem)
        if reason:
            raise Refused(f"{self.directory} is on {state.mount}, which {reason}")
        if not state.is_root_owned:
            raise Refused(
                f"others than root can write to {self.directory} and could redirect the test: "
                "choose a directory on the same disk that only root can write to"
            )

    def _refuse_full(self, state: DirectoryState) -> None:
        spare = max(SPARE_BYTES, state.size_bytes // SPARE_SHARE)
        if state.free_bytes - self.mib * _MIB < spare:
            raise Refused(
                f"{state.mount} has {state.free_bytes / _GIB:,.1f} GiB free, and after writing "
                f"{self.mib} MiB, {spare / _GIB:,.1f} GiB must remain free: free some space, or "
                "request a smaller size"
            )

    def _refuse_busy(self, state: DirectoryState) -> None:
        if state.load >= state.cpus:
            raise Refused(
                f"{self.host} is busy (load {state.load:g} on {state.cpus} CPUs), and the test "
                "would disturb it and measure that: try again when it is idle"
            )
        if state.io_wait is not None and state.io_wait >= _WAITED:
            raise Refused(
                f"programs on {self.host} wait for its disks {state.io_wait:.0f} % of the time: "
                "try again when they are idle, or run `disk io` to see their use"
            )

    def _list_notes(self, state: DirectoryState) -> Iterator[str]:
        yield "Other writes to the same disk wait meanwhile; the test is stopped after 5 minutes."
        yield "The data is random, so that compression does not affect the result."
        if state.io_wait is None:
            yield "This kernel does not show whether programs wait for disks."
        if state.last_result:
            yield f"Last result: {state.last_result}."

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from connectors import perc, programs, raid, smart
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.errors import CommandError
from connectors.perc import Controller
from connectors.raid import ArrayDetail, RaidArray
from connectors.smart import DiskHealth
from runbooks import Check, Host, Report, Table

# Mirrors may differ without harm where memory changes while it is written.
_MIRRORS = ("raid1", "raid10")
_PROGRESS = "{action} at {percent:.1f} %, about {minutes_left:.0f} min left"


@dataclass(frozen=True)
class RaidState:
    """All arrays, controllers and disks of a host."""

    arrays: Sequence[RaidArray]
    """The arrays of the kernel."""
    details: Mapping[str, ArrayDetail]
    """mdadm's details of active arrays, by name."""
    mismatches: Mapping[str, int]
    """Counts of differing sectors, by array."""
    controllers: Sequence[Controller] = ()
    disks: Sequence[DiskHealth] = ()
    """Disks by SMART, where smartctl is installed."""
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


class CheckRaid(Check[RaidState], words="raid check", example="nas1"):
    """Check RAID arrays of the kernel and of PERC controllers, and disks by SMART."""

    host: Host

    def read(self, run_query: QueryRunner) -> RaidState:
        errors: list[str] = []
        try:
            controllers = self._read_controllers(run_query)
        except CommandError as error:
            controllers, errors = (), [f"the RAID controllers could not be read: {error}"]
        try:
            disks = self._read_disks(run_query)
        except CommandError as error:
            disks = ()
            errors.append(f"the disks could not be read by SMART: {error}")
        arrays = self._read_arrays(run_query)
        return replace(arrays, controllers=controllers, disks=disks, errors=errors)

    def _read_controllers(self, run_query: QueryRunner) -> Sequence[Controller]:
        if not run_query(self.host, perc.query_is_installed()):
            return ()
        return run_query(self.host, perc.query_controllers())

    def _read_disks(self, run_query: QueryRunner) -> Sequence[DiskHealth]:
        if not run_query(self.host, programs.query_installed("smartctl")):
            return ()
        disks = run_query(self.host, smart.query_disks())
        return [run_query(self.host, smart.query_health(disk)) for disk in disks]

    def _read_arrays(self, run_query: QueryRunner) -> RaidState:
        arrays = run_query(self.host, raid.query_arrays())
        if not arrays:
            return RaidState((), {}, {})
        return RaidState(
            arrays,
            {
                each.name: run_query(self.host, raid.query_detail(each.name))
                for each in arrays
                if each.is_active
            },
            run_query(self.host, raid.query_mismatches(each.name for each in arrays)),
        )

    def report(self, raid_state: RaidState) -> Report:
        rows = [
            *(_format_row(each, raid_state) for each in raid_state.arrays),
            *(row for each in raid_state.controllers for row in _list_controller_rows(each)),
            *(_format_disk_row(each) for each in raid_state.disks),
        ]
        findings = [
            *(what for each in raid_state.arrays for what in _list_findings(each, raid_state)),
            *(what for each in raid_state.controllers for what in _list_controller_findings(each)),
            *(what for each in raid_state.disks for what in _list_disk_findings(each)),
            *raid_state.errors,
        ]
        degraded = [*_list_degraded(raid_state)]
        return Report.from_findings(
            f"{self.host} {_format_counts(raid_state, degraded)}",
            findings,
            table=Table(
                ("Array or disk", "Level", "Layout", "Members", "State", "Progress", "Mismatches"),
                rows,
            ),
        )


def _list_degraded(raid_state: RaidState) -> Iterator[str]:
    for array in raid_state.arrays:
        if array.is_degraded or not array.is_active:
            yield array.name
    for controller in raid_state.controllers:
        for part in controller.arrays:
            if part.state not in perc.SOUND_ARRAYS:
                yield part.name


def _format_counts(raid_state: RaidState, degraded: Sequence[str]) -> str:
    count = len(raid_state.arrays) + sum(len(each.arrays) for each in raid_state.controllers)
    state = f"{', '.join(degraded)} degraded" if degraded else "all healthy"
    arrays = f"has {format_count(count, 'array')}, {state}" if count else "has no RAID array"
    failing = [str(each.disk) for each in raid_state.disks if each.problems]
    if not raid_state.disks:
        return arrays
    state = f"{', '.join(failing)} failing" if failing else "none failing"
    return f"{arrays}; {format_count(len(raid_state.disks), 'disk')}, {state}"


def _list_controller_findings(controller: Controller) -> Iterator[str]:
    for part in controller.arrays:
        if part.state not in perc.SOUND_ARRAYS:
            yield f"{part.name} ({part.kind}, {part.size}) is {part.state}"
    for part in controller.disks:
        if part.state not in perc.SOUND_DISKS:
            advice = "it is rebuilding" if part.state == "Rbld" else "replace it"
            yield f"{part.name} ({part.kind}, {part.size}) is {part.state}: {advice}"
    for part in controller.batteries:
        if part.state not in ("Optimal", "Optl"):
            yield (
                f"{part.name} ({part.kind}) is {part.state}: the controller may write without its "
                "cache, which is slow"
            )


def _list_controller_rows(controller: Controller) -> Iterator[tuple[str, ...]]:
    for part in controller.arrays:
        yield part.name, part.kind, controller.model, part.size, part.state, "-", "-"
    for part in (*controller.disks, *controller.batteries):
        yield part.name, "-", part.kind, part.size or "-", part.state, "-", "-"


def _list_disk_findings(health: DiskHealth) -> Iterator[str]:
    if health.problems:
        yield f"{health.disk} ({health.model}): {', '.join(health.problems)}"


def _format_disk_row(health: DiskHealth) -> tuple[str, ...]:
    warmth = "" if health.celsius is None else f", {health.celsius} °C"
    state = f"{health.state} ({health.error})" if health.error else f"{health.state}{warmth}"
    return str(health.disk), "disk", health.model or "-", "-", state, "-", "-"


def _list_findings(array: RaidArray, raid_state: RaidState) -> Iterator[str]:
    detail = raid_state.details.get(array.name)
    if detail is None:
        yield f"{array.name} is not active: run `mdadm --detail` and `dmesg` on the host"
        return
    if array.is_degraded and array.member_count and array.working_count is not None:
        yield (
            f"{array.name} is degraded: {array.working_count} of {array.member_count} members "
            "work. "
            f"{_format_remedy(array, detail)}"
        )
    faulty = [device for device, state in detail.members if "faulty" in state]
    if faulty:
        yield f"{array.name}: {', '.join(faulty)} failed; remove and replace it"
    if array.is_waiting:
        yield f"{array.name} waits for its resync: another array is first, or it is unused"
    if array.is_read_only:
        yield f"{array.name} is read-only until it is first written to or set to read-write"
    differing = raid_state.mismatches.get(array.name, 0)
    if differing:
        harmless = " (swap and mapped files can cause some)" if array.level in _MIRRORS else ""
        yield (
            f"{array.name}: {differing:,} sectors differed in the last check{harmless}; compare "
            "with backups before a `repair`, which assumes that one copy is correct"
        )


def _format_remedy(array: RaidArray, detail: ArrayDetail) -> str:
    if array.progress:
        return f"It is rebuilding: {_PROGRESS.format(**vars(array.progress))}"
    if any(state == "spare" for _, state in detail.members):
        return "It has a spare but does not rebuild: check the kernel's log"
    return "It has no spare: add a disk"


def _format_row(array: RaidArray, raid_state: RaidState) -> tuple[str, ...]:
    detail = raid_state.details.get(array.name)
    counts = (
        "-" if array.member_count is None else f"{array.working_count} of {array.member_count}"
    )
    return (
        array.name,
        detail.level if detail else array.level or "-",
        " ".join(filter(None, (detail.layout, detail.chunk))) or "-" if detail else "-",
        counts,
        detail.state if detail else "inactive",
        _PROGRESS.format(**vars(array.progress)) if array.progress else "-",
        f"{raid_state.mismatches[array.name]:,}" if array.name in raid_state.mismatches else "-",
    )

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from connectors import perc, programs, raid, smart
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.errors import HostError
from connectors.perc import Controller
from connectors.raid import ArrayDetail, RaidArray
from connectors.smart import DiskAddress, DiskHealth
from runbooks import Check, Host, Report, Table
from runbooks._parts import READ_ERRORS

T = TypeVar("T")

# Mirrors may differ without harm where memory changes while it is written.
_MIRRORS = ("raid1", "raid10")
_PROGRESS = "{action} at {percent:.1f} %, about {minutes_left:.0f} min left"

_MISSING = (
    "/proc/mdstat has no array, and no RAID program or smartctl lists a controller or a disk, so "
    "nothing was checked: install smartmontools, set raid.program in the inventory, or do not "
    "check RAID here"
)


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
    is_unread: bool = False
    """Whether the kernel's arrays could not be read."""


class CheckRaid(
    Check[RaidState],
    words="raid check",
    also_called=("smart", "broken disk", "disk failure"),
    example="nas1",
    columns=("Array or disk", "Level", "Layout", "Members", "State", "Progress", "Mismatches"),
):
    """Check RAID arrays of the kernel and of PERC controllers, and disks by SMART."""

    host: Host

    def read(self, run_query: QueryRunner) -> RaidState:
        errors: list[HostError] = []

        def read_part(what: str, read: Callable[[], T], nothing: T) -> T:
            try:
                return read()
            except READ_ERRORS as error:
                errors.append(type(error)(f"{what} could not be read: {error}"))
                return nothing

        controllers = read_part(
            "the RAID controllers", lambda: self._read_controllers(run_query), ()
        )
        disks = read_part("the disks by SMART", lambda: self._read_disks(run_query), ())
        arrays = read_part("the arrays of the kernel", lambda: self._read_arrays(run_query), None)
        if arrays is None and not controllers and not disks:
            raise errors[-1]
        return replace(
            arrays or RaidState((), {}, {}, is_unread=True),
            controllers=controllers,
            disks=disks,
            errors=[*(arrays.errors if arrays else ()), *map(str, errors)],
        )

    def _read_controllers(self, run_query: QueryRunner) -> Sequence[Controller]:
        if not run_query(self.host, perc.query_is_installed()):
            return ()
        return run_query(self.host, perc.query_controllers())

    def _read_disks(self, run_query: QueryRunner) -> Sequence[DiskHealth]:
        if not run_query(self.host, programs.query_installed("smartctl")):
            return ()
        listed = run_query(self.host, smart.query_disks())
        disks = [self._read_disk(run_query, disk) for disk in listed]
        # The disks of a volume have addresses of their own.
        has_members = any(disk.is_behind_controller for disk in listed)
        return [each for each in disks if not (each.is_volume and has_members)]

    def _read_disk(self, run_query: QueryRunner, disk: DiskAddress) -> DiskHealth:
        try:
            return run_query(self.host, smart.query_health(disk))
        except READ_ERRORS as error:  # such as a disk that does not answer any more
            return DiskHealth(disk, "", error=str(error))

    def _read_arrays(self, run_query: QueryRunner) -> RaidState:
        arrays = run_query(self.host, raid.query_arrays())
        if not arrays:
            return RaidState((), {}, {})
        details: dict[str, ArrayDetail] = {}
        errors: list[str] = []
        for each in arrays:
            try:
                if each.is_active:
                    details[each.name] = run_query(self.host, raid.query_detail(each.name))
            except READ_ERRORS as error:
                errors.append(f"the members of {each.name} could not be read: {error}")
        mismatches = run_query(self.host, raid.query_mismatches(each.name for each in arrays))
        return RaidState(arrays, details, mismatches, errors=errors)

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
            *_list_unread_controllers(raid_state),
            *([_MISSING] if not rows and not raid_state.errors else ()),
        ]
        parts = filter(None, (_format_array_counts(raid_state), _format_disk_counts(raid_state)))
        return Report.from_findings(
            f"{self.host} {'; '.join(parts)}",
            findings,
            table=Table(
                self.columns,
                rows,
            ),
        )


def _list_degraded(raid_state: RaidState) -> Iterator[str]:
    for array in raid_state.arrays:
        if array.is_degraded or array.is_broken or not array.is_active:
            yield array.name
    for controller in raid_state.controllers:
        for part in controller.arrays:
            if part.state not in perc.SOUND_ARRAYS:
                yield part.name


def _format_array_counts(raid_state: RaidState) -> str:
    count = len(raid_state.arrays) + sum(len(each.arrays) for each in raid_state.controllers)
    degraded = [*_list_degraded(raid_state)]
    state = f"{', '.join(degraded)} degraded" if degraded else "all healthy"
    unread = ", those of the kernel were not read" if raid_state.is_unread else ""
    if count:
        return f"has {format_count(count, 'array')}, {state}{unread}"
    if raid_state.is_unread or _list_disks_of_unread_controllers(raid_state):
        return "has arrays that were not read"
    return "has no RAID array"


def _format_disk_counts(raid_state: RaidState) -> str:
    if not raid_state.disks:
        return ""
    failing = [str(each.disk) for each in raid_state.disks if each.problems]
    unread = [str(each.disk) for each in raid_state.disks if each.error]
    state = f"{', '.join(failing)} failing" if failing else "none failing"
    skipped = f", {', '.join(unread)} not read" if unread else ""
    return f"{format_count(len(raid_state.disks), 'disk')}, {state}{skipped}"


def _list_unread_controllers(raid_state: RaidState) -> Iterator[str]:
    """Describe controllers that only their disks show: the state of their arrays is unknown."""
    behind = _list_disks_of_unread_controllers(raid_state)
    if raid_state.errors:  # they say why
        return
    if any(disk.type.startswith("megaraid,") for disk in behind):
        yield (
            "the arrays of the RAID controller were not read, only its disks: install perccli or "
            "storcli, and name it by raid.program in the inventory"
        )
    elif behind:
        kind = behind[0].type.partition(",")[0]
        yield (
            f"the arrays of the RAID controller ({kind}) were not read, only its disks: Keyturn "
            "cannot read them, so check them with the controller's own program"
        )


def _list_disks_of_unread_controllers(raid_state: RaidState) -> Sequence[DiskAddress]:
    disks = [each.disk for each in raid_state.disks if each.disk.is_behind_controller]
    return () if raid_state.controllers else disks


def _list_controller_findings(controller: Controller) -> Iterator[str]:
    for part in controller.arrays:
        if part.state not in perc.SOUND_ARRAYS:
            yield f"{part.name} ({part.kind}, {part.size}) is {part.state}"
    for part in controller.disks:
        if part.state not in perc.SOUND_DISKS:
            yield f"{part.name} ({part.kind}, {part.size}) is {part.state}: {_advise(part.state)}"
    for part in controller.batteries:
        if part.state not in ("Optimal", "Optl"):
            yield (
                f"{part.name} ({part.kind}) is {part.state}: the controller may write without its "
                "cache, which is slow"
            )


def _advise(disk_state: str) -> str:
    if disk_state == "Rbld":
        return "it is rebuilding"
    if disk_state in perc.BROKEN_DISKS:
        return "replace it"
    return "Keyturn does not know this state, so look it up in the controller's own program"


def _list_controller_rows(controller: Controller) -> Iterator[tuple[str, ...]]:
    for part in controller.arrays:
        yield part.name, part.kind, controller.model, part.size, part.state, "-", "-"
    for part in (*controller.disks, *controller.batteries):
        yield part.name, "-", part.kind, part.size or "-", part.state, "-", "-"


def _list_disk_findings(health: DiskHealth) -> Iterator[str]:
    if health.error:
        yield f"{health.disk} was not read, so its health is unknown: {health.error}"
    if health.problems:
        yield f"{health.disk} ({health.model}): {', '.join(health.problems)}"


def _format_disk_row(health: DiskHealth) -> tuple[str, ...]:
    warmth = "" if health.celsius is None else f", {health.celsius} °C"
    state = f"{health.state} ({health.error})" if health.error else f"{health.state}{warmth}"
    return str(health.disk), "disk", health.model or "-", "-", state, "-", "-"


def _list_findings(array: RaidArray, raid_state: RaidState) -> Iterator[str]:
    detail = raid_state.details.get(array.name)
    if not array.is_active:
        yield f"{array.name} is not active: run `mdadm --detail` and `dmesg` on the host"
        return
    if array.is_broken:
        yield (
            f"{array.name} is broken: more members failed than {array.level} can lose, and reads "
            "and writes fail. Do not write to its disks; check cables and `dmesg` first"
        )
    elif array.is_degraded and array.member_count and array.working_count is not None:
        yield (
            f"{array.name} is degraded: {array.working_count} of {array.member_count} members "
            "work. "
            f"{_format_remedy(array, detail)}"
        )
    members = detail.members if detail else ()
    faulty = [device for device, state in members if "faulty" in state]
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


def _format_remedy(array: RaidArray, detail: ArrayDetail | None) -> str:
    # A check or a resync of the others gives it no member back.
    if array.progress and array.progress.action == "recovery":
        return f"It is rebuilding: {_PROGRESS.format(**vars(array.progress))}"
    if detail is None:
        return "Run `mdadm --detail` on the host"
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
        "inactive" if not array.is_active else detail.state if detail else "unread",
        _PROGRESS.format(**vars(array.progress)) if array.progress else "-",
        f"{raid_state.mismatches[array.name]:,}" if array.name in raid_state.mismatches else "-",
    )

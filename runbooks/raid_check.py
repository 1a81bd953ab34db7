from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import raid
from connectors.command import QueryRunner
from connectors.raid import ArrayDetail, RaidArray
from runbooks import Check, Host, Report, Table

# Mirrors may differ without harm where memory changes while it is written.
_MIRRORS = ("raid1", "raid10")
_PROGRESS = "{action} at {percent:.1f} %, about {minutes_left:.0f} min left"


@dataclass(frozen=True)
class RaidState:
    """All arrays; by name, mdadm's details of active ones, and counts of differing sectors."""

    arrays: Sequence[RaidArray]
    details: Mapping[str, ArrayDetail]
    mismatches: Mapping[str, int]


class CheckRaid(Check[RaidState], words="raid check", example="nas1"):
    """Check the software RAID arrays, and show their resyncs and checks."""

    host: Host

    def read(self, run_query: QueryRunner) -> RaidState:
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
        if not raid_state.arrays:
            return Report(f"{self.host} has no software RAID")
        degraded = [
            each.name for each in raid_state.arrays if each.is_degraded or not each.is_active
        ]
        findings = [
            what for each in raid_state.arrays for what in _list_findings(each, raid_state)
        ]
        count = f"{len(raid_state.arrays)} array{'s' if len(raid_state.arrays) > 1 else ''}"
        state = f"{', '.join(degraded)} degraded" if degraded else "all healthy"
        return Report(
            f"{self.host} has {count}, {state}",
            healthy=not degraded and not findings,
            findings=findings,
            table=Table(
                ("Array", "Level", "Layout", "Members", "State", "Progress", "Mismatches"),
                [_format_row(each, raid_state) for each in raid_state.arrays],
            ),
        )


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

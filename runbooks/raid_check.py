from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import raid
from connectors.command import QueryRunner
from connectors.raid import ArrayDetail, RaidArray
from runbooks import Check, Host, Report, Table

# Mirrors of memory that is changed while it is written differ without harm.
_MIRRORS = ("raid1", "raid10")
_UNDER_WAY = "{action} at {percent:.1f} %, about {minutes_left:.0f} min to go"


@dataclass(frozen=True)
class RaidState:
    """Every array, mdadm's word on the active ones, and differing sectors, by their names."""

    arrays: Sequence[RaidArray]
    details: Mapping[str, ArrayDetail]
    mismatches: Mapping[str, int]


class CheckRaid(Check[RaidState], words="raid check", example="nas1"):
    """See whether the software RAID arrays are whole, and what runs over them."""

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

    def report(self, seen: RaidState) -> Report:
        if not seen.arrays:
            return Report(f"{self.host} has no software RAID")
        degraded = [each.name for each in seen.arrays if each.is_degraded or not each.is_active]
        findings = [what for each in seen.arrays for what in _list_findings(each, seen)]
        count = f"{len(seen.arrays)} array{'s' if len(seen.arrays) > 1 else ''}"
        state = f"{', '.join(degraded)} not whole" if degraded else "all of them whole"
        return Report(
            f"{self.host} has {count}, {state}",
            healthy=not degraded and not findings,
            findings=findings,
            table=Table(
                ("Array", "Level", "Layout", "Members", "State", "Under way", "Mismatches"),
                [_format_row(each, seen) for each in seen.arrays],
            ),
        )


def _list_findings(array: RaidArray, seen: RaidState) -> Iterator[str]:
    detail = seen.details.get(array.name)
    if detail is None:
        yield f"{array.name} is not active: `mdadm --detail` and `dmesg` on the host say why"
        return
    if array.is_degraded and array.member_count and array.working_count is not None:
        yield (
            f"{array.name} is degraded: {array.working_count} of {array.member_count} members "
            "work. "
            f"{_format_remedy(array, detail)}"
        )
    faulty = [device for device, state in detail.members if "faulty" in state]
    if faulty:
        yield f"{array.name}: {', '.join(faulty)} failed; remove and replace"
    if array.is_waiting:
        yield f"{array.name} waits to be brought in step: another array is first, or it is unused"
    if array.is_read_only:
        yield f"{array.name} is read-only, until it is first written to or set otherwise"
    differing = seen.mismatches.get(array.name, 0)
    if differing:
        harmless = " (swap and mapped files can cause some)" if array.level in _MIRRORS else ""
        yield (
            f"{array.name}: {differing:,} sectors differed in the last check{harmless}; compare "
            "with backups before a `repair`, which takes one copy for the right one"
        )


def _format_remedy(array: RaidArray, detail: ArrayDetail) -> str:
    if array.progress:
        return f"It is mending: {_UNDER_WAY.format(**vars(array.progress))}"
    if any(state == "spare" for _, state in detail.members):
        return "A spare is there and is not being filled: look at the kernel's log"
    return "Nothing mends it: add a disk"


def _format_row(array: RaidArray, seen: RaidState) -> tuple[str, ...]:
    detail = seen.details.get(array.name)
    counts = (
        "-" if array.member_count is None else f"{array.working_count} of {array.member_count}"
    )
    return (
        array.name,
        detail.level if detail else array.level or "-",
        " ".join(filter(None, (detail.layout, detail.chunk))) or "-" if detail else "-",
        counts,
        detail.state if detail else "inactive",
        _UNDER_WAY.format(**vars(array.progress)) if array.progress else "-",
        f"{seen.mismatches[array.name]:,}" if array.name in seen.mismatches else "-",
    )

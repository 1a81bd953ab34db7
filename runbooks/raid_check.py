from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import raid
from connectors.command import Ask
from connectors.raid import Array, Detail
from runbooks import Check, Host, Report, Table

# Mirrors of memory that is changed while it is written differ without harm.
_MIRRORS = ("raid1", "raid10")
_UNDER_WAY = "{action} at {percent:.1f} %, about {minutes:.0f} min to go"


@dataclass(frozen=True)
class Arrays:
    """Every array, mdadm's word on the active ones, and differing sectors, by their names."""

    arrays: Sequence[Array]
    details: Mapping[str, Detail]
    mismatches: Mapping[str, int]


class CheckRaid(Check[Arrays], words="raid check", example="nas1"):
    """See whether the software RAID arrays are whole, and what runs over them."""

    host: Host

    def read(self, ask: Ask) -> Arrays:
        arrays = ask(self.host, raid.arrays())
        if not arrays:
            return Arrays((), {}, {})
        return Arrays(
            arrays,
            {each.name: ask(self.host, raid.detail(each.name)) for each in arrays if each.active},
            ask(self.host, raid.mismatches(each.name for each in arrays)),
        )

    def report(self, seen: Arrays) -> Report:
        if not seen.arrays:
            return Report(f"{self.host} has no software RAID")
        degraded = [each.name for each in seen.arrays if each.degraded or not each.active]
        findings = [what for each in seen.arrays for what in _findings(each, seen)]
        count = f"{len(seen.arrays)} array{'s' if len(seen.arrays) > 1 else ''}"
        state = f"{', '.join(degraded)} not whole" if degraded else "all of them whole"
        return Report(
            f"{self.host} has {count}, {state}",
            healthy=not degraded and not findings,
            findings=findings,
            table=Table(
                ("Array", "Level", "Layout", "Members", "State", "Under way", "Mismatches"),
                [_row(each, seen) for each in seen.arrays],
            ),
        )


def _findings(array: Array, seen: Arrays) -> Iterator[str]:
    detail = seen.details.get(array.name)
    if detail is None:
        yield f"{array.name} is not active: `mdadm --detail` and `dmesg` on the host say why"
        return
    if array.degraded and array.wanted and array.working is not None:
        yield (
            f"{array.name} is degraded: {array.working} of {array.wanted} members work. "
            f"{_remedy(array, detail)}"
        )
    faulty = [device for device, state in detail.members if "faulty" in state]
    if faulty:
        yield f"{array.name}: {', '.join(faulty)} failed; remove and replace"
    if array.waiting:
        yield f"{array.name} waits to be brought in step: another array is first, or it is unused"
    if array.read_only:
        yield f"{array.name} is read-only, until it is first written to or set otherwise"
    differing = seen.mismatches.get(array.name, 0)
    if differing:
        harmless = " (swap and mapped files can cause some)" if array.level in _MIRRORS else ""
        yield (
            f"{array.name}: {differing:,} sectors differed in the last check{harmless}; compare "
            "with backups before a `repair`, which takes one copy for the right one"
        )


def _remedy(array: Array, detail: Detail) -> str:
    if array.progress:
        return f"It is mending: {_UNDER_WAY.format(**vars(array.progress))}"
    if any(state == "spare" for _, state in detail.members):
        return "A spare is there and is not being filled: look at the kernel's log"
    return "Nothing mends it: add a disk"


def _row(array: Array, seen: Arrays) -> tuple[str, ...]:
    detail = seen.details.get(array.name)
    counts = "-" if array.wanted is None else f"{array.working} of {array.wanted}"
    return (
        array.name,
        detail.level if detail else array.level or "-",
        " ".join(filter(None, (detail.layout, detail.chunk))) or "-" if detail else "-",
        counts,
        detail.state if detail else "inactive",
        _UNDER_WAY.format(**vars(array.progress)) if array.progress else "-",
        f"{seen.mismatches[array.name]:,}" if array.name in seen.mismatches else "-",
    )

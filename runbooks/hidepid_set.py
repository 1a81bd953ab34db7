from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from connectors import hidepid
from connectors.command import QueryRunner
from connectors.hidepid import ProcMount
from connectors.probation import Probation
from runbooks import Change, Host, Plan, Step


class SetHidepid(
    Change[ProcMount],
    words="hidepid set",
    example="web1 2",
    undo="restores the previous value, also in fstab",
    sets="hidepid",
):
    """Set whether users of a host can see the processes of others."""

    host: Host
    value: Annotated[
        Literal["0", "1", "2"],
        Field(description="0: shows all, 1: hides details of others' processes, 2: hides them"),
    ]

    def read(self, run_query: QueryRunner) -> ProcMount:
        value, gid = run_query(self.host, hidepid.query_current())
        return ProcMount(value, gid, run_query(self.host, hidepid.query_fstab()))

    def get_probation(self) -> Probation:
        return hidepid.PROBATION

    def plan(self, proc: ProcMount) -> Plan:
        wanted = int(self.value)
        boot = (
            f"fstab has {proc.hidepid_after_boot}"
            if proc.fstab_options is not None
            else "fstab has no line for /proc"
        )
        steps = [*self._make_fstab_steps(proc, wanted), *self._make_mount_steps(proc, wanted)]
        return Plan(
            f"hidepid={proc.hidepid} is in force; {boot}", steps, [*_list_notes(proc, wanted)]
        )

    def _make_mount_steps(self, proc: ProcMount, wanted: int) -> Iterator[Step]:
        if proc.hidepid != wanted:
            yield Step(
                f"Remount /proc with hidepid={wanted}",
                self.host,
                do=hidepid.remount_proc(wanted),
                undo=hidepid.remount_proc(proc.hidepid),
                before=f"hidepid={proc.hidepid}",
                after=f"hidepid={wanted}",
            )

    def _make_fstab_steps(self, proc: ProcMount, wanted: int) -> Iterator[Step]:
        """Yield the change of fstab, which comes first because a failure has no effect."""
        if proc.hidepid_after_boot == wanted:
            return
        options = hidepid.replace_hidepid(proc.fstab_options or "defaults", wanted)
        yield Step(
            f"Set hidepid={wanted} for /proc in fstab",
            self.host,
            do=hidepid.add_fstab_line(options)
            if proc.fstab_options is None
            else hidepid.set_fstab_options(options),
            undo=hidepid.remove_fstab_line(options)
            if proc.fstab_options is None
            else hidepid.set_fstab_options(proc.fstab_options),
            before=proc.fstab_options or "no line for /proc",
            after=options,
        )


def _list_notes(proc: ProcMount, wanted: int) -> Iterator[str]:
    if wanted <= proc.hidepid:
        return
    if proc.gid is None:
        yield (
            "Monitoring and services that do not run as root cannot see the processes of others "
            "any more: test them first. A group in fstab's gid= still sees all."
        )
    yield "systemd-logind and polkit must see all processes where they do not run as root."

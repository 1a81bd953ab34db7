from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from connectors import hidepid
from connectors.command import QueryRunner
from connectors.hidepid import ProcMount
from runbooks import Change, Host, Plan, Step


class SetHidepid(
    Change[ProcMount],
    words="hidepid set",
    example="web1 2",
    undo="sets what was set before, in fstab too",
):
    """Choose whether people on a host can see the processes of others."""

    host: Host
    value: Annotated[
        Literal["0", "1", "2"],
        Field(description="0: all is seen, 1: not what others run, 2: not even that they do"),
    ]

    def read(self, run_query: QueryRunner) -> ProcMount:
        value, gid = run_query(self.host, hidepid.query_current())
        return ProcMount(value, gid, run_query(self.host, hidepid.query_fstab()))

    def plan(self, proc: ProcMount) -> Plan:
        wanted = int(self.value)
        boot = (
            f"fstab says {proc.hidepid_after_boot}"
            if proc.fstab_options is not None
            else "fstab says nothing"
        )
        steps = [*self._make_fstab_steps(proc, wanted), *self._make_mount_steps(proc, wanted)]
        return Plan(
            f"hidepid={proc.hidepid} is in force, and {boot}", steps, [*_list_notes(proc, wanted)]
        )

    def _make_mount_steps(self, proc: ProcMount, wanted: int) -> Iterator[Step]:
        if proc.hidepid != wanted:
            yield Step(
                f"Mount /proc again with hidepid={wanted}",
                self.host,
                do=hidepid.remount_proc(wanted),
                undo=hidepid.remount_proc(proc.hidepid),
                before=f"hidepid={proc.hidepid}",
                after=f"hidepid={wanted}",
            )

    def _make_fstab_steps(self, proc: ProcMount, wanted: int) -> Iterator[Step]:
        """Yield the change of fstab, which comes first: it disturbs nobody if it fails."""
        if proc.hidepid_after_boot == wanted:
            return
        options = hidepid.replace_hidepid(proc.fstab_options or "defaults", wanted)
        yield Step(
            f"Have fstab mount /proc with hidepid={wanted}",
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
            "Monitoring and services that do not run as root lose sight of the processes of "
            "others: test those first. A group given as gid= in fstab would still see all."
        )
    yield "systemd-logind and polkit need to see all processes where they do not run as root."

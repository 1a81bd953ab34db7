from typing import Annotated

from pydantic import Field

from connectors import zfs_snapshot
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.zfs_snapshot import Snapshots
from runbooks import Change, DatasetName, Host, Plan, Step, make_host_field


class TakeSnapshot(
    Change[Snapshots],
    words="zfs snapshot",
    also_called=("backup dataset",),
    example="nas1 tank/home before-upgrade",
    undo="destroys that snapshot",
):
    """Take a snapshot of a ZFS dataset, which keeps its files as they are now."""

    host: Host = make_host_field("zfs")
    dataset: DatasetName
    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$",
            description="The name of the snapshot, which is written after the @",
        ),
    ]

    def read(self, run_query: QueryRunner) -> Snapshots:
        return run_query(self.host, zfs_snapshot.query_snapshots(self.dataset))

    def plan(self, state: Snapshots) -> Plan:
        snapshot = f"{self.dataset}@{self.name}"
        if self.name in state.names:
            return Plan(f"{snapshot} exists")
        step = Step(
            f"Take the snapshot {snapshot}",
            self.host,
            do=zfs_snapshot.take_snapshot(self.dataset, self.name),
            undo=zfs_snapshot.destroy_snapshot(self.dataset, self.name),
            before="no such snapshot",
            after=snapshot,
            undo_title=f"Destroy {snapshot}",
        )
        notes = [
            "It keeps the space of everything that is deleted or overwritten from now on.",
            "Children of the dataset are not included.",
            "Undo destroys this snapshot only, and ZFS refuses it while a clone or a hold depends "
            "on the snapshot.",
        ]
        count = format_count(len(state.names), "snapshot")
        return Plan(f"{self.dataset} has {count}, none of this name", [step], notes)

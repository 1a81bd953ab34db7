from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from connectors import zfs_property
from connectors.amounts import format_size
from connectors.command import QueryRunner, Shell
from connectors.zfs_property import PropertyName, ZfsProperty
from runbooks import Change, DatasetName, Host, NoUndo, Plan, Refused, Step, make_host_field


class SetProperty(
    Change[ZfsProperty],
    words="zfs set",
    example="nas1 tank/home compression lz4",
    undo="restores the old value, or inherits it again",
    sets="zfs {dataset} {property}",
):
    """Set sync, compression, NFS export, access times or quota of a ZFS dataset."""

    host: Host = make_host_field("zfs")
    dataset: DatasetName
    property: Annotated[PropertyName, Field(description="The property to set")]
    value: Annotated[
        str,
        Field(
            max_length=500,
            description="The value, such as standard, lz4, off, 500G, or rw=@192.0.2.0/24",
        ),
    ]

    @field_validator("value")
    @classmethod
    def _refuse_invalid_value(cls, value: str, given: ValidationInfo) -> str:
        name: PropertyName | None = given.data.get("property")
        return zfs_property.refuse_invalid_value(name, value) if name else value

    def read(self, run_query: QueryRunner) -> ZfsProperty:
        return run_query(self.host, zfs_property.query_property(self.dataset, self.property))

    def plan(self, was: ZfsProperty) -> Plan:
        whence = _format_source(was)
        if was.source == "none":
            raise Refused(f"{self.dataset} has no {self.property}: it is not a file system")
        if was.has_value(self.value):
            return Plan(f"{self.property} of {self.dataset} is {was.text}{whence}")
        if was.used and 0 < zfs_property.parse_limit(self.value) < was.used:
            raise Refused(
                f"{self.dataset} uses {format_size(was.used)} already: set a larger "
                f"{self.property}"
            )
        if was.source == "temporary":
            raise Refused(
                f"{self.property} of {self.dataset} is {was.value} by a mount option, which hides "
                "its own value: remount it without that option first"
            )
        step = Step(
            f"Set {self.property} of {self.dataset} to {self.value}",
            self.host,
            do=zfs_property.set_property(self.dataset, self.property, self.value),
            undo=self._make_undo(was),
            before=f"{was.text}{whence}",
            after=self.value,
        )
        because = f"{self.property} of {self.dataset} is {was.text}{whence}"
        return Plan(because, [step], self._list_notes(was))

    def _make_undo(self, was: ZfsProperty) -> Shell | NoUndo:
        try:
            if was.source == "local":
                zfs_property.refuse_invalid_value(self.property, was.value)
        except zfs_property.InvalidValueError:
            return NoUndo(f"{self.property} was {was.value}, which Keyturn cannot set")
        return zfs_property.restore_property(was)

    def _list_notes(self, was: ZfsProperty) -> list[str]:
        if self.property in zfs_property.LIMITS:
            of = "it, its snapshots and its children" if self.property == "quota" else "it alone"
            return [
                f"It limits the space of {of}: {format_size(was.used)} are used. Writes beyond it "
                "fail."
            ]
        notes = ["Child datasets that inherit it change too."]
        if self.property == "compression":
            notes.append("It applies to newly written data only.")
        if (self.property, self.value) == ("sync", "disabled"):
            notes.append(
                "Programs and NFS clients get confirmation of writes before the data is safe: "
                "after a crash the last seconds are lost without notice."
            )
        if (self.property, self.value) == ("sync", "always"):
            notes.append("Every write waits for the disks: it is slow without a fast log device.")
        if self.property == "sharenfs":
            notes += self._list_share_notes(was)
        return notes

    def _list_share_notes(self, was: ZfsProperty) -> list[str]:
        if self.value == "off":
            return ["The export ends: programs of NFS clients hang or fail immediately."]
        notes: list[str] = []
        clients = [option for option in self.value.split(",") if option.startswith(("rw=", "ro="))]
        if not clients:
            notes.append("It is exported to every host that can reach this one.")
        if "no_root_squash" in self.value.split(","):
            notes.append("Root on every client has root access to its files.")
        if was.value != "off":
            notes.append(f"Clients that only the old value ({was.value}) allows lose access.")
        return notes


def _format_source(was: ZfsProperty) -> str:
    if was.name in zfs_property.LIMITS:
        return ""
    return f" (inherited from {was.inherited_from})" if was.inherited_from else f" ({was.source})"

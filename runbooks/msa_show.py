from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from connectors import msa
from connectors.command import Query, QueryRunner
from connectors.msa_xml import MsaObject
from connectors.rows import Rows
from runbooks import Check, Host, PartReader, Report, Table, make_host_field

_Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class ArrayState:
    """What the array returned for each command."""

    system: Sequence[MsaObject]
    controllers: Sequence[MsaObject]
    disks: Sequence[MsaObject]
    volumes: Sequence[MsaObject]
    statistics: Sequence[MsaObject]
    events: Sequence[MsaObject]
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    """What could not be read, by part, as sentences."""


class ShowMsa(
    Check[ArrayState],
    words="msa show",
    example="msa1",
    verifies_tag=True,
    columns=("Part", "Name", "Health", "Details"),
):
    """Show the health of an HP MSA: controllers, disks, volumes, load and newest events."""

    host: Host = make_host_field("msa")
    newest: Annotated[int, Field(ge=1, le=100, description="How many events to show")] = 10

    def read(self, run_query: QueryRunner) -> ArrayState:
        parts = PartReader(run_query, self.host)

        def read(part: str, query: Query[Rows[MsaObject]], kind: str) -> Sequence[MsaObject]:
            return [each for each in parts.read(part, query, Rows()) if each.kind == kind]

        state = ArrayState(
            read("the system", msa.query("system"), "system"),
            read("the controllers", msa.query("controllers"), "controllers"),
            read("the disks", msa.query("disks"), "drives"),
            read("the volumes", msa.query("volumes"), "volumes"),
            read("the load", msa.query("controller-statistics"), "controller-statistics"),
            read("the events", msa.query_events(self.newest), "events"),
            parts.get_errors(),
        )
        parts.require_any()
        return state

    def report(self, state: ArrayState) -> Report:
        system = state.system[0] if state.system else MsaObject("", {})
        model = " ".join(filter(None, (system.get("vendor-name"), system.get("product-id"))))
        return Report.from_findings(
            f"{self.host} ({model or 'an array'}): health {system.get('health') or 'unknown'}, "
            f"{len(state.controllers)} controllers, {len(state.disks)} disks, "
            f"{len(state.volumes)} volumes",
            _list_findings(state),
            table=Table(self.columns, [*_list_rows(state)]),
        )


def _list_findings(state: ArrayState) -> Iterator[str]:
    yield from state.errors.values()
    if not state.system and "the system" not in state.errors:
        yield "the array returned no system, so its health is unknown: check its login's role"
    parts = {"controller": state.controllers, "disk": state.disks, "volume": state.volumes}
    for name, listed in parts.items():
        if not listed and f"the {name}s" not in state.errors:
            yield f"the array returned no {name}: compare with its own console"
    for system in state.system:
        yield from msa.list_problems("the system", system)
    for each in state.controllers:
        yield from msa.list_problems(f"controller {each.get('controller-id')}", each)
    for each in state.disks:
        yield from msa.list_problems(f"disk {each.get('location')}", each)
    for each in state.volumes:
        yield from msa.list_problems(f"volume {each.get('volume-name')}", each)


def _list_rows(state: ArrayState) -> Iterator[_Row]:
    for each in state.controllers:
        details = (
            each.get("status"),
            f"firmware {each.get('sc-fw')}" if each.get("sc-fw") else "",
        )
        yield _make_row("Controller", each.get("controller-id"), each, *details)
    for each in state.statistics:
        load = f"CPU {each.get('cpu-load')} %" if each.get("cpu-load") else ""
        iops = f"{each.get('iops')} IOPS" if each.get("iops") else ""
        rate = f"{each.get('bytes-per-second')}/s" if each.get("bytes-per-second") else ""
        yield _make_row("Load", each.get("durable-id"), each, load, iops, rate)
    for each in state.disks:
        model = " ".join(filter(None, (each.get("vendor"), each.get("model"))))
        group = each.get("disk-group", "virtual-disk")
        yield _make_row("Disk", each.get("location"), each, each.get("size"), model, group)
    for each in state.volumes:
        pool = each.get("storage-pool-name", "virtual-disk-name")
        size = each.get("total-size", "size")
        yield _make_row("Volume", each.get("volume-name"), each, size, pool)
    for each in state.events:
        yield "Event", each.get("time-stamp"), each.get("severity"), each.get("message")


def _make_row(part: str, name: str, each: MsaObject, *details: str) -> _Row:
    return part, name, each.get("health"), ", ".join(filter(None, details))

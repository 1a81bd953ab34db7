from collections.abc import Iterator, Sequence

from connectors import systemd
from connectors.command import QueryRunner, Shell
from connectors.systemd import Service
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, ServiceName, Step
from runbooks._service import format_start, refuse_unmanageable


class StopService(
    Change[Service],
    words="service stop",
    example="web1 nginx",
    undo="starts it again",
    sets="running {service}",
):
    """Stop a service, until someone starts it or the host boots."""

    host: Host
    service: ServiceName

    def read(self, run_query: QueryRunner) -> Service:
        return run_query(self.host, systemd.query_service(self.service))

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.service.removesuffix(".service"))]

    def plan(self, service: Service) -> Plan:
        refuse_unmanageable(service, "stopped", service.dependents)
        if service.active_state in ("inactive", "failed") and service.sub_state != "auto-restart":
            return Plan(f"{service.name} is {service.active_state} ({service.sub_state})")
        if service.active_state == "deactivating":
            raise Refused(f"{service.name} is stopping already: try again when it has ended")
        step = Step(
            f"Stop {service.name}",
            self.host,
            do=systemd.control_service("stop", service.name),
            undo=_make_undo(service),
            undo_title=f"Start {service.name}",
            before=service.active_state,
            after="inactive",
        )
        return Plan(
            f"{service.name} is {service.active_state} ({service.sub_state}), started: "
            f"{format_start(service)}",
            [step],
            [*_list_notes(service)],
        )


def _make_undo(service: Service) -> Shell | NoUndo:
    if service.dependents:
        return NoUndo(
            f"units that stop with it would not be started again: {', '.join(service.dependents)}"
        )
    return systemd.control_service("start", service.name)


def _list_notes(service: Service) -> Iterator[str]:
    yield "Its open connections are closed, and its clients find nothing there."
    if service.dependents:
        yield f"Stopped with it if running: {', '.join(service.dependents)}."
    if service.triggers:
        yield f"These can start it again: {', '.join(service.triggers)}."
    if service.starts_at_boot:
        yield "It starts again at the next boot."

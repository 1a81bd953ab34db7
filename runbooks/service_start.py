from collections.abc import Iterator

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import Service
from runbooks import Change, Host, Plan, Refused, ServiceName, Step
from runbooks._service import (
    ServiceState,
    list_configuration_notes,
    read_service,
    refuse_bad_configuration,
    refuse_unmanageable,
)


class StartService(
    Change[ServiceState],
    words="service start",
    example="web1 nginx",
    undo="stops it again",
    sets="running {service}",
):
    """Start a service that is stopped or has failed."""

    host: Host
    service: ServiceName

    def read(self, run_query: QueryRunner) -> ServiceState:
        return read_service(run_query, self.host, self.service)

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        refuse_unmanageable(service, "started", ())
        if service.is_running:
            return Plan(f"{service.name} is active ({service.sub_state})")
        _refuse_conflicts(service)
        if service.active_state not in ("inactive", "failed"):
            raise Refused(
                f"{service.name} is {service.active_state} ({service.sub_state}): try again when "
                "it is stopped or has failed"
            )
        refuse_bad_configuration(state, "it would not start")
        step = Step(
            f"Start {service.name}",
            self.host,
            do=systemd.control_service("start", service.name),
            undo=systemd.control_service("stop", service.name),
            undo_title=f"Stop {service.name}",
            before=service.active_state,
            after="active",
        )
        return Plan(
            f"{service.name} is {service.active_state} ({service.sub_state})",
            [step],
            [*_list_notes(state)],
        )


def _refuse_conflicts(service: Service) -> None:
    for name in service.conflicts:
        if systemd.is_protected(name):
            raise Refused(
                f"the start would stop {name}, and access to this host depends on it: do it by "
                "hand, with access that does not depend on it"
            )


def _list_notes(state: ServiceState) -> Iterator[str]:
    service = state.service
    yield from list_configuration_notes(state, "start")
    if service.conflicts:
        yield f"Stopped by its start if running: {', '.join(service.conflicts)}."
    if service.active_state == "failed":
        yield f"It has failed ({service.result}) and may fail again: read its log first."
    if service.starts_at_boot is False:
        yield "It does not start at the next boot: that needs `systemctl enable`."

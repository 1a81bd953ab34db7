from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import Service
from runbooks import Change, Host, Instant, Leg, NoUndo, Plan, Refused, ServiceName, Step
from runbooks._service import (
    ServiceState,
    format_start,
    list_configuration_notes,
    read_service,
    refuse_bad_configuration,
    refuse_unmanageable,
)


class RestartService(Change[ServiceState], words="service restart", example="web1 nginx"):
    """Restart a service, unless it has started since the request."""

    host: Host
    service: ServiceName
    # The only trace of a restart is its time, so the request says since when the service must
    # have been running to need one.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Skip the restart if the service started after this time; now if left empty",
    )

    def read(self, run_query: QueryRunner) -> ServiceState:
        return read_service(run_query, self.host, self.service)

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.service.removesuffix(".service"))]

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        _refuse_unsuitable(service)
        state.clock.refuse_future(self.since)
        started = format_start(service)
        if (
            service.is_running
            and service.started_at
            and state.clock.is_since(service.started_at, self.since)
        ):
            return Plan(f"{service.name} started at {started}, after the request")
        refuse_bad_configuration(state, "it would not start again")
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.control_service("restart", service.name),
            undo=NoUndo("the memory and connections of the old processes are lost"),
            before=f"{service.active_state}, started: {started}",
            after="active, started just now",
        )
        because = (
            f"{service.name} is {service.active_state} ({service.sub_state}), started: {started}"
        )
        return Plan(because, [step], [*_list_notes(state)])


def _refuse_unsuitable(service: Service) -> None:
    refuse_unmanageable(service, "restarted", service.dependents)
    if service.active_state == "inactive":
        raise Refused(
            f"{service.name} is stopped, and a restart would start it: find out who stopped it, "
            "or request `service start`"
        )
    if service.active_state not in ("active", "failed") and service.sub_state != "auto-restart":
        raise Refused(
            f"{service.name} is {service.active_state} ({service.sub_state}): try again when it "
            "is active or failed"
        )


def _list_notes(state: ServiceState) -> Iterator[str]:
    service = state.service
    yield from list_configuration_notes(state, "restart")
    if service.is_running:
        yield "Its open connections are closed, and its clients must reconnect."
    if service.dependents:
        yield f"Restarted with it if running: {', '.join(service.dependents)}."
    if service.active_state == "failed":
        yield f"It has failed ({service.result}) and may fail again: read its log first."

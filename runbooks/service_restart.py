import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import ConfigurationTest, Service
from runbooks import Change, Clock, Host, Instant, Leg, NoUndo, Plan, Refused, ServiceName, Step

_PROTECTED = re.compile(systemd.PROTECTED_SERVICES, re.ASCII)


@dataclass(frozen=True)
class ServiceState:
    """The service, its host's clock, and the test of its configuration."""

    service: Service
    clock: Clock
    configuration: ConfigurationTest | None = None
    """None for a service without such a test."""


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
        service = run_query(self.host, systemd.query_service(self.service))
        tested = service.name in systemd.TESTED_SERVICES and service.load_state == "loaded"
        configuration = (
            run_query(self.host, systemd.query_configuration(service.name)) if tested else None
        )
        return ServiceState(
            service, Clock.read(run_query(self.host, systemd.query_clock())), configuration
        )

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.service.removesuffix(".service"))]

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        _refuse_unsuitable(service)
        state.clock.refuse_future(self.since)
        started = f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"
        if (
            service.is_running
            and service.started_at
            and state.clock.is_since(service.started_at, self.since)
        ):
            return Plan(f"{service.name} started at {started}, after the request")
        _refuse_bad_configuration(state)
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.restart_service(service.name),
            undo=NoUndo("the memory and connections of the old processes are lost"),
            before=f"{service.active_state}, started: {started}",
            after="active, started just now",
        )
        because = (
            f"{service.name} is {service.active_state} ({service.sub_state}), started: {started}"
        )
        return Plan(because, [step], [*_list_notes(state)])


def _refuse_bad_configuration(state: ServiceState) -> None:
    if state.configuration and state.configuration.error:
        raise Refused(
            f"the configuration of {state.service.name} has errors, so it would not start again: "
            f"correct it first. Output of the test: {state.configuration.error[:600]}"
        )


def _refuse_unsuitable(service: Service) -> None:
    if service.load_state != "loaded":
        raise Refused(f"{service.name} is {service.load_state} and cannot be restarted")
    for name in (service.name, *service.dependents):
        if _PROTECTED.fullmatch(name):
            raise Refused(
                f"{name} would be restarted, and access to this host depends on it: restart it "
                "by hand, with access that does not depend on it"
            )
    if not service.is_manual:
        raise Refused(f"{service.name} is configured so that people cannot start or stop it")
    if service.active_state == "inactive":
        raise Refused(
            f"{service.name} is stopped, and a restart would start it: find out who stopped it"
        )
    if service.active_state not in ("active", "failed") and service.sub_state != "auto-restart":
        raise Refused(
            f"{service.name} is {service.active_state} ({service.sub_state}): try again when it "
            "is active or failed"
        )


def _list_notes(state: ServiceState) -> Iterator[str]:
    service, configuration = state.service, state.configuration
    if configuration and configuration.untested_reason:
        yield f"Its configuration was not tested: {configuration.untested_reason}."
    elif configuration:
        yield "Its configuration test passes, and is repeated right before the restart."
    if service.is_running:
        yield "Its open connections are closed, and its clients must reconnect."
    if service.dependents:
        yield f"Restarted with it if running: {', '.join(service.dependents)}."
    if service.needs_reload:
        yield (
            "Its unit file has changed since systemd read it: the restart uses the old one until "
            "someone runs `systemctl daemon-reload`."
        )
    if service.active_state == "failed":
        yield f"It has failed ({service.result}) and may fail again: read its log first."

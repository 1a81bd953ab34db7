"""Start, stop, restart or reload a service of systemd."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from connectors import clock, systemd
from connectors.command import QueryRunner, Shell
from connectors.systemd import ConfigurationTest, Service
from runbooks import Change, Clock, Host, Instant, Leg, NoUndo, Plan, Refused, ServiceName, Step


@dataclass(frozen=True)
class ServiceState:
    """The service, its host's clock, and the test of its configuration."""

    service: Service
    clock: Clock
    configuration: ConfigurationTest | None = None
    """None for a service without such a test."""


class _ChangeService(Change[ServiceState]):
    """Has a service read its configuration; subclasses start, restart or reload it."""

    host: Host
    service: ServiceName

    def read(self, run_query: QueryRunner) -> ServiceState:
        service = run_query(self.host, systemd.query_service(self.service))
        configuration = None
        if service.name in systemd.TESTED_SERVICES and service.load_state == "loaded":
            configuration = run_query(self.host, systemd.query_configuration(service.name))
        now = Clock.read(run_query(self.host, clock.query_clock()))
        return ServiceState(service, now, configuration)


class _ChangeServiceSince(_ChangeService):
    """Restarts or reloads a service, whose only trace is its time: so the request has a time."""

    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Nothing is done if it happened after this time; now if left empty",
    )


class StartService(
    _ChangeService,
    words="service start",
    example="web1 nginx",
    undo="stops it again",
    sets="running {service}",
):
    """Start a service that is stopped or has failed."""

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        _refuse_unmanageable(service, "started", ())
        if service.is_running:
            return Plan(f"{service.name} is {_format_state(service)}")
        for name in filter(systemd.is_protected, service.conflicts):
            raise Refused(
                f"the start would stop {name}, and access to this host depends on it: do it by "
                "hand, with access that does not depend on it"
            )
        if service.active_state not in ("inactive", "failed"):
            raise Refused(
                f"{service.name} is {_format_state(service)}: try again when it is stopped or has "
                "failed"
            )
        _refuse_bad_configuration(state, "it would not start")
        step = Step(
            f"Start {service.name}",
            self.host,
            do=systemd.control_service("start", service.name),
            undo=systemd.control_service("stop", service.name),
            undo_title=f"Stop {service.name}",
            before=service.active_state,
            after="active",
        )
        current = f"{service.name} is {_format_state(service)}"
        return Plan(current, [step], [*self._list_notes(state)])

    def _list_notes(self, state: ServiceState) -> Iterator[str]:
        service = state.service
        yield from _list_configuration_notes(state, "start")
        if service.conflicts:
            yield f"Stopped by its start if running: {', '.join(service.conflicts)}."
        if service.active_state == "failed":
            yield f"It has failed ({service.result}) and may fail again: read its log first."
        if service.starts_at_boot is False:
            yield "It does not start at the next boot: that needs `systemctl enable`."


class RestartService(
    _ChangeServiceSince, words="service restart", also_called=("bounce",), example="web1 nginx"
):
    """Restart a service, unless it has started since the request."""

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.service.removesuffix(".service"))]

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        self._refuse_unsuitable(service)
        state.clock.refuse_future(self.since)
        started = service.start_text
        if (
            service.is_running
            and service.started_at
            and state.clock.is_since(service.started_at, self.since)
        ):
            return Plan(f"{service.name} started at {started}, after the request")
        _refuse_bad_configuration(state, "it would not start again")
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.control_service("restart", service.name),
            undo=NoUndo("the memory and connections of the old processes are lost"),
            before=f"{service.active_state}, started: {started}",
            after="active, started just now",
        )
        current = f"{service.name} is {_format_state(service)}, started: {started}"
        return Plan(current, [step], [*self._list_notes(state)])

    def _refuse_unsuitable(self, service: Service) -> None:
        _refuse_unmanageable(service, "restarted", service.dependents)
        if service.active_state == "inactive":
            raise Refused(
                f"{service.name} is stopped, and a restart would start it: find out who stopped "
                "it, or request `service start`"
            )
        if (
            service.active_state not in ("active", "failed")
            and service.sub_state != "auto-restart"
        ):
            raise Refused(
                f"{service.name} is {_format_state(service)}: try again when it is active or "
                "failed"
            )

    def _list_notes(self, state: ServiceState) -> Iterator[str]:
        service = state.service
        yield from _list_configuration_notes(state, "restart")
        if service.is_running:
            yield "Its open connections are closed, and its clients must reconnect."
        if service.dependents:
            yield f"Restarted with it if running: {', '.join(service.dependents)}."
        if service.active_state == "failed":
            yield f"It has failed ({service.result}) and may fail again: read its log first."


class ReloadService(_ChangeServiceSince, words="service reload", example="web1 nginx"):
    """Have a service read its configuration again, without ending its connections."""

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        _refuse_unmanageable(service, "reloaded", ())
        state.clock.refuse_future(self.since)
        if not service.is_running:
            raise Refused(
                f"{service.name} is {_format_state(service)}: only a running service can be "
                "reloaded"
            )
        if not service.can_reload:
            raise Refused(
                f"{service.name} cannot reload its configuration: request `service restart`"
            )
        if service.changed_at is None:
            raise Refused(
                "the systemd of this host does not tell when a service was reloaded: request "
                "`service restart`"
            )
        changed = f"{service.changed_at:%Y-%m-%d %H:%M:%S UTC}"
        if state.clock.is_since(service.changed_at, self.since):
            return Plan(f"{service.name} was reloaded or started at {changed}, after the request")
        _refuse_bad_configuration(state, "it would keep the old one or fail")
        step = Step(
            f"Reload {service.name}",
            self.host,
            do=systemd.control_service("reload", service.name),
            undo=NoUndo("it uses the files as they are: restore them and reload it again"),
            before=f"last reloaded or started: {changed}",
            after="reloaded just now",
        )
        notes = [
            *_list_configuration_notes(state, "reload"),
            "The current content of its files comes into force, whether or not Keyturn wrote it.",
        ]
        current = f"{service.name} runs, last reloaded or started: {changed}"
        return Plan(current, [step], notes)


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
        _refuse_unmanageable(service, "stopped", service.dependents)
        current = f"{service.name} is {_format_state(service)}"
        if service.active_state in ("inactive", "failed") and service.sub_state != "auto-restart":
            return Plan(current)
        if service.active_state == "deactivating":
            raise Refused(f"{service.name} is stopping already: try again when it has ended")
        step = Step(
            f"Stop {service.name}",
            self.host,
            do=systemd.control_service("stop", service.name),
            undo=self._make_undo(service),
            undo_title=f"Start {service.name}",
            before=service.active_state,
            after="inactive",
        )
        current += f", started: {service.start_text}"
        return Plan(current, [step], [*self._list_notes(service)])

    def _make_undo(self, service: Service) -> Shell | NoUndo:
        if service.dependents:
            return NoUndo(
                "units that stop with it would not be started again: "
                f"{', '.join(service.dependents)}"
            )
        return systemd.control_service("start", service.name)

    def _list_notes(self, service: Service) -> Iterator[str]:
        yield "Its open connections are closed, and its clients find nothing there."
        if service.dependents:
            yield f"Stopped with it if running: {', '.join(service.dependents)}."
        if service.triggers:
            yield f"These can start it again: {', '.join(service.triggers)}."
        if service.starts_at_boot:
            yield "It starts again at the next boot."


def _format_state(service: Service) -> str:
    return f"{service.active_state} ({service.sub_state})"


def _refuse_unmanageable(service: Service, done: str, others: Sequence[str]) -> None:
    """Refuse a service that is not loaded, or on which access to the host may depend.

    Args:
        done: The participle of what is requested: restarted.
        others: Units that this happens to as well.
    """
    if service.load_state != "loaded":
        raise Refused(f"{service.name} is {service.load_state} and cannot be {done}")
    for name in (service.name, *others):
        if systemd.is_protected(name):
            raise Refused(
                f"{name} would be {done}, and access to this host depends on it: do it by hand, "
                "with access that does not depend on it"
            )
    if not service.is_manual:
        raise Refused(f"{service.name} is configured so that people cannot start or stop it")


def _refuse_bad_configuration(state: ServiceState, what: str) -> None:
    """Refuse if the configuration test fails. what: the consequence, as a clause."""
    if state.configuration and state.configuration.error:
        raise Refused(
            f"the configuration of {state.service.name} has errors, so {what}: correct it first. "
            f"Output of the test: {state.configuration.error[:600]}"
        )


def _list_configuration_notes(state: ServiceState, what: str) -> Iterator[str]:
    """Yield whether the configuration was tested. what: before which act, such as restart."""
    configuration = state.configuration
    if configuration and configuration.untested_reason:
        yield f"Its configuration was not tested: {configuration.untested_reason}."
    elif configuration:
        yield f"Its configuration test passes, and is repeated right before the {what}."
    if state.service.needs_reload:
        yield (
            f"Its unit file has changed since systemd read it: the {what} uses the old one until "
            "someone runs `systemctl daemon-reload`."
        )

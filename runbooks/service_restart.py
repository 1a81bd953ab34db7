import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import ConfigurationTest, Service
from runbooks import Change, Clock, Host, Instant, NoUndo, Plan, Refused, ServiceName, Step

_PROTECTED = re.compile(systemd.PROTECTED_SERVICES, re.ASCII)


@dataclass(frozen=True)
class ServiceState:
    """The service, what time it is on its host, and what the test of its configuration says.

    configuration: None where a service has no such test.
    """

    service: Service
    clock: Clock
    configuration: ConfigurationTest | None = None


class RestartService(Change[ServiceState], words="service restart", example="web1 nginx"):
    """Stop a service and start it again, unless it was started since the request was made."""

    host: Host
    service: ServiceName
    # A restart leaves no state behind that could be compared, but a moment: so the request says
    # before which moment the service must have come up to need one.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Leave a service alone that came up after this moment; now, if left empty",
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

    def plan(self, found: ServiceState) -> Plan:
        service = found.service
        _refuse_unsuitable(service)
        found.clock.refuse_future(self.since)
        started = f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"
        if (
            service.is_running
            and service.started_at
            and found.clock.is_since(service.started_at, self.since)
        ):
            return Plan(f"{service.name} came up at {started}, after the request")
        _refuse_bad_configuration(found)
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.restart_service(service.name),
            undo=NoUndo("what the old processes held in memory and on the wire is gone"),
            before=f"{service.active_state}, came up: {started}",
            after="active, came up just now",
        )
        because = (
            f"{service.name} is {service.active_state} ({service.sub_state}) and came up: "
            f"{started}"
        )
        return Plan(because, [step], [*_list_notes(found)])


def _refuse_bad_configuration(found: ServiceState) -> None:
    if found.configuration and found.configuration.error:
        raise Refused(
            f"the configuration of {found.service.name} has errors, and it would not come up "
            f"again: correct it first. The test returned: {found.configuration.error[:600]}"
        )


def _refuse_unsuitable(service: Service) -> None:
    if service.load_state != "loaded":
        raise Refused(f"{service.name} is {service.load_state}: there is nothing to restart")
    for name in (service.name, *service.dependents):
        if _PROTECTED.fullmatch(name):
            raise Refused(
                f"{name} would be restarted, and over it people and Keyturn reach this host: "
                "do it by hand, with a way in that does not depend on it"
            )
    if not service.is_manual:
        raise Refused(f"{service.name} is set up so that people cannot start or stop it")
    if service.active_state == "inactive":
        raise Refused(
            f"{service.name} is stopped, and a restart would start it: find out who stopped it"
        )
    if service.active_state not in ("active", "failed") and service.sub_state != "auto-restart":
        raise Refused(
            f"{service.name} is {service.active_state} ({service.sub_state}): ask again once it is"
        )


def _list_notes(found: ServiceState) -> Iterator[str]:
    service, configuration = found.service, found.configuration
    if configuration and configuration.untested_reason:
        yield f"Its configuration was not tested: {configuration.untested_reason}."
    elif configuration:
        yield "The test of its configuration passes, and is made again right before the restart."
    if service.is_running:
        yield "Its open connections are cut and its clients have to come again."
    if service.dependents:
        yield f"Restarted with it, where they run: {', '.join(service.dependents)}."
    if service.needs_reload:
        yield (
            "Its unit file was edited since systemd read it: the restart still goes by the old "
            "one, until somebody runs `systemctl daemon-reload`."
        )
    if service.active_state == "failed":
        yield f"It has failed ({service.result}) and may fail again: look at its log first."

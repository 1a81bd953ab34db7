import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import Ask
from connectors.systemd import Configuration, Service
from runbooks import Change, Clock, Host, Instant, NoUndo, Plan, Refused, ServiceName, Step

_LIFELINES = re.compile(systemd.LIFELINES, re.ASCII)


@dataclass(frozen=True)
class Found:
    """The service, what time it is on its host, and what the test of its configuration says.

    configuration: None where a service has no such test.
    """

    service: Service
    clock: Clock
    configuration: Configuration | None = None


class RestartService(Change[Found], words="service restart", example="web1 nginx"):
    """Stop a service and start it again, unless it was started since the request was made."""

    host: Host
    service: ServiceName
    # A restart leaves no state behind that could be compared, but a moment: so the request says
    # before which moment the service must have come up to need one.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Leave a service alone that came up after this moment; now, if left empty",
    )

    def read(self, ask: Ask) -> Found:
        service = ask(self.host, systemd.service(self.service))
        tested = service.name in systemd.TESTED and service.load == "loaded"
        configuration = ask(self.host, systemd.configuration(service.name)) if tested else None
        return Found(service, Clock.read(ask(self.host, systemd.clock())), configuration)

    def plan(self, found: Found) -> Plan:
        service = found.service
        _refuse_unfit(service)
        found.clock.refuse_future(self.since)
        started = f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"
        if (
            service.running
            and service.started_at
            and found.clock.is_since(service.started_at, self.since)
        ):
            return Plan(f"{service.name} came up at {started}, after the request")
        _refuse_bad_configuration(found)
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.restart(service.name),
            undo=NoUndo("what the old processes held in memory and on the wire is gone"),
            before=f"{service.active}, came up: {started}",
            after="active, came up just now",
        )
        because = f"{service.name} is {service.active} ({service.sub}) and came up: {started}"
        return Plan(because, [step], [*_notes(found)])


def _refuse_bad_configuration(found: Found) -> None:
    if found.configuration and found.configuration.trouble:
        raise Refused(
            f"the configuration of {found.service.name} has errors, and it would not come up "
            f"again: correct it first. The test returned: {found.configuration.trouble[:600]}"
        )


def _refuse_unfit(service: Service) -> None:
    if service.load != "loaded":
        raise Refused(f"{service.name} is {service.load}: there is nothing to restart")
    for name in (service.name, *service.dragged):
        if _LIFELINES.fullmatch(name):
            raise Refused(
                f"{name} would be restarted, and over it people and Keyturn reach this host: "
                "do it by hand, with a way in that does not depend on it"
            )
    if not service.by_hand:
        raise Refused(f"{service.name} is set up so that people cannot start or stop it")
    if service.active == "inactive":
        raise Refused(
            f"{service.name} is stopped, and a restart would start it: find out who stopped it"
        )
    if service.active not in ("active", "failed") and service.sub != "auto-restart":
        raise Refused(f"{service.name} is {service.active} ({service.sub}): ask again once it is")


def _notes(found: Found) -> Iterator[str]:
    service, configuration = found.service, found.configuration
    if configuration and configuration.untested:
        yield f"Its configuration was not tested: {configuration.untested}."
    elif configuration:
        yield "The test of its configuration passes, and is made again right before the restart."
    if service.running:
        yield "Its open connections are cut and its clients have to come again."
    if service.dragged:
        yield f"Restarted with it, where they run: {', '.join(service.dragged)}."
    if service.outdated:
        yield (
            "Its unit file was edited since systemd read it: the restart still goes by the old "
            "one, until somebody runs `systemctl daemon-reload`."
        )
    if service.active == "failed":
        yield f"It has failed ({service.result}) and may fail again: look at its log first."

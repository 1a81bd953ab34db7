from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import QueryRunner
from runbooks import Change, Host, Instant, NoUndo, Plan, Refused, ServiceName, Step
from runbooks._service import (
    ServiceState,
    list_configuration_notes,
    read_service,
    refuse_bad_configuration,
    refuse_unmanageable,
)


class ReloadService(Change[ServiceState], words="service reload", example="web1 nginx"):
    """Have a service read its configuration again, without ending its connections."""

    host: Host
    service: ServiceName
    # The only trace of a reload is its time, as with a restart.
    since: Instant = Field(
        default_factory=lambda: datetime.now(UTC).replace(microsecond=0),
        description="Skip the reload if the service was reloaded or started after this time; "
        "now if left empty",
    )

    def read(self, run_query: QueryRunner) -> ServiceState:
        return read_service(run_query, self.host, self.service)

    def plan(self, state: ServiceState) -> Plan:
        service = state.service
        refuse_unmanageable(service, "reloaded", ())
        state.clock.refuse_future(self.since)
        if not service.is_running:
            raise Refused(
                f"{service.name} is {service.active_state} ({service.sub_state}): only a running "
                "service can be reloaded"
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
        refuse_bad_configuration(state, "it would keep the old one or fail")
        step = Step(
            f"Reload {service.name}",
            self.host,
            do=systemd.control_service("reload", service.name),
            undo=NoUndo("it uses the files as they are: restore them and reload it again"),
            before=f"last reloaded or started: {changed}",
            after="reloaded just now",
        )
        return Plan(
            f"{service.name} runs, last reloaded or started: {changed}",
            [step],
            [*_list_notes(state)],
        )


def _list_notes(state: ServiceState) -> Iterator[str]:
    yield from list_configuration_notes(state, "reload")
    yield "The current content of its files comes into force, whether or not Keyturn wrote it."

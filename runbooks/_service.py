"""What the runbooks of services share: what they read, refuse and note."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import clock, systemd
from connectors.command import QueryRunner
from connectors.systemd import ConfigurationTest, Service
from runbooks import Clock, Refused


@dataclass(frozen=True)
class ServiceState:
    """The service, its host's clock, and the test of its configuration."""

    service: Service
    clock: Clock
    configuration: ConfigurationTest | None = None
    """None for a service without such a test."""


def read_service(run_query: QueryRunner, host: str, name: str) -> ServiceState:
    service = run_query(host, systemd.query_service(name))
    tested = service.name in systemd.TESTED_SERVICES and service.load_state == "loaded"
    configuration = run_query(host, systemd.query_configuration(service.name)) if tested else None
    return ServiceState(service, Clock.read(run_query(host, clock.query_clock())), configuration)


def refuse_unmanageable(service: Service, done: str, others: Sequence[str]) -> None:
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


def refuse_bad_configuration(state: ServiceState, what: str) -> None:
    """Refuse if the configuration test fails. what: the consequence, as a clause."""
    if state.configuration and state.configuration.error:
        raise Refused(
            f"the configuration of {state.service.name} has errors, so {what}: correct it first. "
            f"Output of the test: {state.configuration.error[:600]}"
        )


def list_configuration_notes(state: ServiceState, what: str) -> Iterator[str]:
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


def format_start(service: Service) -> str:
    return f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"

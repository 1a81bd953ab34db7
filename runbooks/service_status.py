from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import systemd
from connectors.amounts import format_count, format_size
from connectors.command import QueryRunner
from connectors.errors import CommandError
from connectors.systemd import Service
from runbooks import Check, Host, Report, ServiceName, Table

_UNKNOWN = {
    "not-found": "no such service: run `systemctl list-units --type=service` for a list",
    "masked": "it is masked: someone has disabled every way to start it",
    "bad-setting": "its unit file has a setting that systemd refuses",
    "error": "systemd could not read its unit file",
}


@dataclass(frozen=True)
class ServiceReading:
    """A service and the end of its journal."""

    service: Service
    journal: Sequence[str] = ()
    journal_error: str = ""
    """Why the journal could not be read: logins of older inventories lack its sudo rule."""


class ServiceStatus(
    Check[ServiceReading],
    words="service status",
    also_called=("is running", "down", "crashed"),
    example="web1 nginx",
    columns=("property", "value"),
    rows=(
        "description",
        "state",
        "started",
        "process",
        "memory",
        "restarts by systemd",
        "restarted with it",
        "journal",
    ),
):
    """Check whether a service runs, since when, its restarts, and its last journal lines."""

    host: Host
    service: ServiceName

    def read(self, run_query: QueryRunner) -> ServiceReading:
        service = run_query(self.host, systemd.query_service(self.service))
        if service.load_state != "loaded":
            return ServiceReading(service)
        try:
            journal = run_query(self.host, systemd.query_journal(service.name))
        except CommandError as error:
            return ServiceReading(service, journal_error=str(error))
        return ServiceReading(service, journal)

    def report(self, reading: ServiceReading) -> Report:
        service = reading.service
        findings = [*_list_findings(service)]
        if service.load_state != "loaded":
            return Report(
                f"{service.name} is {service.load_state}", healthy=False, findings=findings
            )
        since = f" since {service.start_text}" if service.is_running else ""
        if reading.journal_error:
            findings.append(f"Its journal could not be read: {reading.journal_error}")
        return Report.from_findings(
            f"{service.name} is {service.active_state} ({service.sub_state}){since}",
            findings,
            table=Table(
                self.columns,
                [*_list_rows(service), *(("journal", line) for line in reading.journal)],
            ),
        )


def _list_findings(service: Service) -> Iterator[str]:
    if service.load_state != "loaded":
        yield (
            f"{service.name}: "
            f"{_UNKNOWN.get(service.load_state, f'its load state is {service.load_state}')}"
        )
        return
    if not service.is_running:
        ended = "" if service.result == "success" else f", ended with: {service.result}"
        yield (
            f"{service.name} is not running: it is {service.active_state} "
            f"({service.sub_state}){ended}"
        )
    if service.restart_count:
        yield (
            f"{service.name} ended by itself, and systemd restarted it "
            f"{format_count(service.restart_count, 'time')} so far: read its log for the reason"
        )
    if service.needs_reload:
        yield (
            f"the unit file of {service.name} has changed, but systemd still uses the old one: "
            "run `systemctl daemon-reload`"
        )


def _list_rows(service: Service) -> Iterator[tuple[str, str]]:
    yield "description", service.description
    yield "state", f"{service.active_state} ({service.sub_state})"
    yield "started", service.start_text
    yield "process", str(service.pid or "none")
    if service.memory_bytes is not None:
        yield "memory", format_size(service.memory_bytes)
    yield "restarts by systemd", str(service.restart_count)
    yield "restarted with it", ", ".join(service.dependents) or "nothing"

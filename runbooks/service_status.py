from collections.abc import Iterator

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import Service
from runbooks import Check, Host, Report, ServiceName, Table

_UNKNOWN = {
    "not-found": "no such service: run `systemctl list-units --type=service` for a list",
    "masked": "it is masked: someone has disabled every way to start it",
    "bad-setting": "its unit file has a setting that systemd refuses",
    "error": "systemd could not read its unit file",
}


class ServiceStatus(Check[Service], words="service status", example="web1 nginx"):
    """Check whether a service runs, since when, and how often systemd restarted it."""

    host: Host
    service: ServiceName

    def read(self, run_query: QueryRunner) -> Service:
        return run_query(self.host, systemd.query_service(self.service))

    def report(self, service: Service) -> Report:
        findings = [*_list_findings(service)]
        if service.load_state != "loaded":
            return Report(
                f"{service.name} is {service.load_state}", healthy=False, findings=findings
            )
        since = f" since {_format_start(service)}" if service.is_running else ""
        return Report(
            f"{service.name} is {service.active_state} ({service.sub_state}){since}",
            healthy=not findings,
            findings=findings,
            table=Table(("property", "value"), [*_list_rows(service)]),
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
            f"{service.restart_count} times so far: read its log for the reason"
        )
    if service.needs_reload:
        yield (
            f"the unit file of {service.name} has changed, but systemd still uses the old one: "
            "run `systemctl daemon-reload`"
        )


def _list_rows(service: Service) -> Iterator[tuple[str, str]]:
    yield "description", service.description
    yield "state", f"{service.active_state} ({service.sub_state})"
    yield "started", _format_start(service)
    yield "process", str(service.pid or "none")
    if service.memory_bytes is not None:
        yield "memory", f"{service.memory_bytes / 2**20:,.0f} MiB"
    yield "restarts by systemd", str(service.restart_count)
    yield "restarted with it", ", ".join(service.dependents) or "nothing"


def _format_start(service: Service) -> str:
    return f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"

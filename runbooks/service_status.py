from collections.abc import Iterator

from connectors import systemd
from connectors.command import QueryRunner
from connectors.systemd import Service
from runbooks import Check, Host, Report, ServiceName, Table

_UNKNOWN = {
    "not-found": "there is no such service: compare with `systemctl list-units --type=service`",
    "masked": "it is masked: somebody made sure that nothing can start it",
    "bad-setting": "its unit file holds a setting that systemd does not take",
    "error": "systemd could not read its unit file",
}


class ServiceStatus(Check[Service], words="service status", example="web1 nginx"):
    """See whether a service runs, since when, and how often it had to be started again."""

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
            table=Table(("what", "is"), [*_list_rows(service)]),
        )


def _list_findings(service: Service) -> Iterator[str]:
    if service.load_state != "loaded":
        yield (
            f"{service.name}: "
            f"{_UNKNOWN.get(service.load_state, f'systemd calls it {service.load_state}')}"
        )
        return
    if not service.is_running:
        ended = "" if service.result == "success" else f", and it ended with: {service.result}"
        yield (
            f"{service.name} does not run: it is {service.active_state} "
            f"({service.sub_state}){ended}"
        )
    if service.restart_count:
        yield (
            f"{service.name} ended by itself and systemd started it again, "
            f"{service.restart_count} times so far: its log says why"
        )
    if service.needs_reload:
        yield (
            f"the unit file of {service.name} was edited and systemd still goes by the old one: "
            "`systemctl daemon-reload` has it read again"
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

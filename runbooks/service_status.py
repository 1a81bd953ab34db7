from collections.abc import Iterator

from connectors import systemd
from connectors.command import Ask
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

    def read(self, ask: Ask) -> Service:
        return ask(self.host, systemd.service(self.service))

    def report(self, service: Service) -> Report:
        findings = [*_findings(service)]
        if service.load != "loaded":
            return Report(f"{service.name} is {service.load}", healthy=False, findings=findings)
        since = f" since {_when(service)}" if service.running else ""
        return Report(
            f"{service.name} is {service.active} ({service.sub}){since}",
            healthy=not findings,
            findings=findings,
            table=Table(("what", "is"), [*_rows(service)]),
        )


def _findings(service: Service) -> Iterator[str]:
    if service.load != "loaded":
        yield f"{service.name}: {_UNKNOWN.get(service.load, f'systemd calls it {service.load}')}"
        return
    if not service.running:
        ended = "" if service.result == "success" else f", and it ended with: {service.result}"
        yield f"{service.name} does not run: it is {service.active} ({service.sub}){ended}"
    if service.restarts:
        yield (
            f"{service.name} ended by itself and systemd started it again, "
            f"{service.restarts} times so far: its log says why"
        )
    if service.outdated:
        yield (
            f"the unit file of {service.name} was edited and systemd still goes by the old one: "
            "`systemctl daemon-reload` has it read again"
        )


def _rows(service: Service) -> Iterator[tuple[str, str]]:
    yield "description", service.description
    yield "state", f"{service.active} ({service.sub})"
    yield "started", _when(service)
    yield "process", str(service.pid or "none")
    if service.memory is not None:
        yield "memory", f"{service.memory / 2**20:,.0f} MiB"
    yield "restarts by systemd", str(service.restarts)
    yield "restarted with it", ", ".join(service.dragged) or "nothing"


def _when(service: Service) -> str:
    return f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import Field

from connectors import systemd
from connectors.command import Ask
from connectors.systemd import Service
from runbooks import Change, Host, Instant, NoUndo, Plan, Refused, ServiceName, Step

# Without these a host may be out of reach, or nobody can log in any more: Keyturn neither.
_LIFELINES = re.compile(
    r"(ssh|sshd|dropbear|network|networking|NetworkManager|systemd-(networkd|resolved|logind|"
    r"udevd|journald)|dbus|dbus-broker|wpa_supplicant|dhcpcd|dhclient|iptables|ip6tables|nftables|"
    r"netfilter-persistent|firewalld|ufw|shorewall|csf|lfd|tailscaled|wg-quick|openvpn|strongswan|"
    r"sssd|nslcd|winbind)([@-].*)?\.service",
    re.ASCII,
)


@dataclass(frozen=True)
class Found:
    """The service, and what time it is on its host."""

    service: Service
    now: datetime


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
        return Found(service, ask(self.host, systemd.clock()))

    def plan(self, found: Found) -> Plan:
        service = found.service
        _refuse_unfit(service)
        self._refuse_time_travel(found.now)
        started = f"{service.started_at:%Y-%m-%d %H:%M:%S UTC}" if service.started_at else "never"
        if service.running and service.started_at and service.started_at >= self.since:
            return Plan(f"{service.name} came up at {started}, after the request")
        step = Step(
            f"Restart {service.name}",
            self.host,
            do=systemd.restart(service.name),
            undo=NoUndo("what the old processes held in memory and on the wire is gone"),
            before=f"{service.active}, came up: {started}",
            after="active, came up just now",
        )
        because = f"{service.name} is {service.active} ({service.sub}) and came up: {started}"
        return Plan(because, [step], [*_notes(service)])

    def _refuse_time_travel(self, now: datetime) -> None:
        if now < self.since:
            behind = round((self.since - now).total_seconds())
            raise Refused(
                f"the clock of {self.host} is {behind} s behind the request, so that no restart "
                "could be told from an earlier one: set it right, or ask with an earlier since"
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


def _notes(service: Service) -> Iterator[str]:
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

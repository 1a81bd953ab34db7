import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from pydantic import Field

from connectors import access_log
from connectors.access_log import MOST_HOURS, MOST_ROWS, Client, Traffic
from connectors.command import Ask
from runbooks import Check, Host, Report, Table

# Whom an agent says it is, and how the addresses of the real one are called: so their makers say.
_ENGINES = {
    "Googlebot": (".googlebot.com", ".google.com"),
    "bingbot": (".search.msn.com",),
    "YandexBot": (".yandex.ru", ".yandex.net", ".yandex.com"),
    "Applebot": (".applebot.apple.com",),
    "Baiduspider": (".baidu.com", ".baidu.jp"),
}
# Requests in the busiest hour, about three each second; nobody clicks that fast.
_FAST = 10_000


@dataclass(frozen=True)
class Seen:
    """The busiest clients. real: whether an address is the search engine that it says it is."""

    traffic: Traffic
    real: Mapping[str, bool]


class BotsTop(Check[Seen], words="bots top", example="web1 3"):
    """See who asks a host's web server for most, and which search engines are real."""

    host: Host
    hours: Annotated[
        int,
        Field(ge=1, le=MOST_HOURS, description="Hours to look back on, the one going on included"),
    ] = 2

    def read(self, ask: Ask) -> Seen:
        traffic = ask(self.host, access_log.traffic(hours=self.hours, most=MOST_ROWS))
        claims = {
            client.address: _ENGINES[engine]
            for client in traffic.clients
            if (engine := _claimed(client)) and _is_address(client.address)
        }
        return Seen(traffic, {each: self._is_real(ask, each, of) for each, of in claims.items()})

    def _is_real(self, ask: Ask, address: str, domains: tuple[str, ...]) -> bool:
        """Tell whether the address has a name of the engine, and that name this address.

        Anybody may call an own address as he likes; the way back is the owner's of the name.
        """
        named = [name for name in ask(self.host, access_log.names_of(address)) if _NAME(name)]
        return any(
            name.endswith(domains)
            and str(ip_address(address)) in ask(self.host, access_log.addresses_of(name))
            for name in named[:3]
        )

    def report(self, seen: Seen) -> Report:
        traffic = seen.traffic
        refused = sum(client.refused for client in traffic.clients)
        findings = [*_findings(seen)]
        return Report(
            f"{self.host} answered {traffic.requests:,} requests in {self.hours} hours; of its "
            f"{len(traffic.clients)} busiest clients it refused {refused:,} with 503",
            healthy=not findings,
            findings=findings,
            table=Table(
                ("address", "requests", "busiest hour", "503", "is", "agent"),
                [
                    (
                        client.address,
                        f"{client.requests:,}",
                        f"{client.busiest:,}",
                        f"{client.refused / client.requests:.0%}",
                        _who(client, seen.real),
                        client.agent[:80],
                    )
                    for client in traffic.clients
                ],
            ),
        )


_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,250}[a-z0-9_])?", re.ASCII).fullmatch


def _findings(seen: Seen) -> Iterator[str]:
    traffic = seen.traffic
    for client in traffic.clients:
        if _claimed(client) and not seen.real.get(client.address, False):
            yield (
                f"{client.address} says it is {_claimed(client)} and is not: its name in the DNS "
                "is another's"
            )
        elif client.busiest >= _FAST:
            yield (
                f"{client.address} asked {client.busiest:,} times in one hour: {client.agent[:80]}"
            )
    if traffic.odd:
        yield (
            f"{traffic.odd:,} lines are of another format than `combined` or HAProxy's, and were "
            "not counted"
        )


def _claimed(client: Client) -> str | None:
    agent = client.agent.lower()
    return next((engine for engine in _ENGINES if engine.lower() in agent), None)


def _who(client: Client, real: Mapping[str, bool]) -> str:
    engine = _claimed(client)
    if engine is None:
        return "-"
    return f"{engine}, verified" if real.get(client.address) else f"not {engine}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True

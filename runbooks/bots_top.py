import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from pydantic import Field

from connectors import access_log
from connectors.access_log import MAX_HOURS, MAX_ROWS, AgentTraffic, WebTraffic
from connectors.command import QueryRunner
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
class BotTraffic:
    """The busiest clients. real: whether an address is the search engine that it says it is."""

    traffic: WebTraffic
    verified: Mapping[str, bool]


class BotsTop(Check[BotTraffic], words="bots top", example="web1 3"):
    """See who asks a host's web server for most, and which search engines are real."""

    host: Host
    hours: Annotated[
        int,
        Field(ge=1, le=MAX_HOURS, description="Hours to look back on, the one going on included"),
    ] = 2

    def read(self, run_query: QueryRunner) -> BotTraffic:
        traffic = run_query(
            self.host, access_log.query_traffic(hours=self.hours, max_rows=MAX_ROWS)
        )
        claims = {
            client.address: _ENGINES[engine]
            for client in traffic.clients
            if (engine := _find_claimed_engine(client)) and _is_address(client.address)
        }
        return BotTraffic(
            traffic,
            {each: self._verify_address(run_query, each, of) for each, of in claims.items()},
        )

    def _verify_address(
        self, run_query: QueryRunner, address: str, domains: tuple[str, ...]
    ) -> bool:
        """Tell whether the address has a name of the engine, and that name this address.

        Anybody may call an own address as he likes; the way back is the owner's of the name.
        """
        named = [
            name for name in run_query(self.host, access_log.query_names(address)) if _NAME(name)
        ]
        return any(
            name.endswith(domains)
            and str(ip_address(address)) in run_query(self.host, access_log.query_addresses(name))
            for name in named[:3]
        )

    def report(self, seen: BotTraffic) -> Report:
        traffic = seen.traffic
        refused = sum(client.refused_requests for client in traffic.clients)
        findings = [*_list_findings(seen)]
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
                        f"{client.peak_requests:,}",
                        f"{client.refused_requests / client.requests:.0%}",
                        _format_identity(client, seen.verified),
                        client.agent[:80],
                    )
                    for client in traffic.clients
                ],
            ),
        )


_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,250}[a-z0-9_])?", re.ASCII).fullmatch


def _list_findings(seen: BotTraffic) -> Iterator[str]:
    traffic = seen.traffic
    for client in traffic.clients:
        if _find_claimed_engine(client) and not seen.verified.get(client.address, False):
            yield (
                f"{client.address} says it is {_find_claimed_engine(client)} and is not: its "
                "name in the DNS "
                "is another's"
            )
        elif client.peak_requests >= _FAST:
            yield (
                f"{client.address} asked {client.peak_requests:,} times in one hour: "
                f"{client.agent[:80]}"
            )
    if traffic.unparsed_lines:
        yield (
            f"{traffic.unparsed_lines:,} lines are of another format than `combined` or "
            "HAProxy's, and were "
            "not counted"
        )


def _find_claimed_engine(client: AgentTraffic) -> str | None:
    agent = client.agent.lower()
    return next((engine for engine in _ENGINES if engine.lower() in agent), None)


def _format_identity(client: AgentTraffic, real: Mapping[str, bool]) -> str:
    engine = _find_claimed_engine(client)
    if engine is None:
        return "-"
    return f"{engine}, verified" if real.get(client.address) else f"not {engine}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True

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

# Search engines by user agent, with the domains of their real addresses, as documented by each.
_ENGINES = {
    "Googlebot": (".googlebot.com", ".google.com"),
    "bingbot": (".search.msn.com",),
    "YandexBot": (".yandex.ru", ".yandex.net", ".yandex.com"),
    "Applebot": (".applebot.apple.com",),
    "Baiduspider": (".baidu.com", ".baidu.jp"),
}
# Requests in the busiest hour, about three each second: no person is that fast.
_FAST = 10_000


@dataclass(frozen=True)
class BotTraffic:
    """The busiest clients."""

    traffic: WebTraffic
    verified: Mapping[str, bool]
    """By address, whether it belongs to the search engine in its user agent."""


class BotsTop(
    Check[BotTraffic],
    words="bots top",
    also_called=("crawlers", "traffic spike", "attack"),
    example="web1 3",
    columns=("address", "requests", "busiest hour", "503", "identity", "agent"),
):
    """List the busiest clients of a host's web server, and verify search engines."""

    host: Host
    hours: Annotated[
        int,
        Field(ge=1, le=MAX_HOURS, description="Hours to look back, including the current one"),
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
            {
                address: self._verify_address(run_query, address, domains)
                for address, domains in claims.items()
            },
        )

    def _verify_address(
        self, run_query: QueryRunner, address: str, domains: tuple[str, ...]
    ) -> bool:
        """Return whether the address has a name in these domains that resolves to the address.

        Anyone can choose the name of their own address; only a domain's owner can point a name
        of it to an address.
        """
        named = [
            name for name in run_query(self.host, access_log.query_names(address)) if _NAME(name)
        ]
        return any(
            name.endswith(domains)
            and str(ip_address(address)) in run_query(self.host, access_log.query_addresses(name))
            for name in named[:3]
        )

    def report(self, bots: BotTraffic) -> Report:
        traffic = bots.traffic
        refused = sum(client.refused_requests for client in traffic.clients)
        return Report.from_findings(
            f"{self.host} answered {traffic.requests:,} requests in {self.hours} h, and refused "
            f"{refused:,} of the requests of its {len(traffic.clients)} busiest clients with 503",
            _list_findings(bots),
            table=Table(
                self.columns,
                [
                    (
                        client.address,
                        f"{client.requests:,}",
                        f"{client.peak_requests:,}",
                        f"{client.refused_requests / client.requests:.0%}",
                        _format_identity(client, bots.verified),
                        client.agent[:80],
                    )
                    for client in traffic.clients
                ],
            ),
        )


_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,250}[a-z0-9_])?", re.ASCII).fullmatch


def _list_findings(bots: BotTraffic) -> Iterator[str]:
    traffic = bots.traffic
    for client in traffic.clients:
        if _find_claimed_engine(client) and not bots.verified.get(client.address, False):
            yield (
                f"{client.address} claims to be {_find_claimed_engine(client)} and is not: its "
                "DNS name does not belong to that search engine"
            )
        elif client.peak_requests >= _FAST:
            yield (
                f"{client.address} sent {client.peak_requests:,} requests in one hour: "
                f"{client.agent[:80]}"
            )
    if traffic.unparsed_lines:
        yield (
            f"{traffic.unparsed_lines:,} lines were not counted: their format is neither "
            "`combined`, `vhost_combined` nor HAProxy's"
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

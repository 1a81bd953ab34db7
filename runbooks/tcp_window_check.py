from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import tcp_window
from connectors.amounts import format_size
from connectors.command import QueryRunner
from connectors.tcp_window import PeerRoute, TcpSettings
from runbooks import Address, Check, Host, Refused, Report, Table

# The assumed speed of a network card that does not show one.
_USUAL_MBITS = 1000
_KEY = {"receive": "net.ipv4.tcp_rmem", "send": "net.ipv4.tcp_wmem"}
_OLD = ("reno", "westwood")


@dataclass(frozen=True)
class PeerConnection:
    """TCP's settings, and the path to the peer."""

    settings: TcpSettings
    route: PeerRoute
    round_trip: float
    """Seconds."""


class TcpWindowCheck(
    Check[PeerConnection],
    words="tcp window check",
    example="web1 198.51.100.7 rtt=80",
    columns=("property", "value"),
    rows=("line", "round trip", "in flight to fill it", "receive at most", "send at most"),
):
    """Check whether one TCP connection to a peer can use the full bandwidth of the line."""

    host: Host
    peer: Address
    rtt: Annotated[
        int | None,
        Field(
            ge=1,
            le=5000,
            title="Round-trip time (ms)",
            description="Round trip to the peer in ms; measured with ping if left empty",
        ),
    ] = None

    def read(self, run_query: QueryRunner) -> PeerConnection:
        settings = run_query(self.host, tcp_window.query_settings())
        link = run_query(self.host, tcp_window.query_route(str(self.peer)))
        if self.rtt is not None:
            return PeerConnection(settings, link, self.rtt / 1000)
        seconds = run_query(self.host, tcp_window.query_round_trip(str(self.peer)))
        if seconds is None:
            raise Refused(
                f"{self.peer} does not answer pings from {self.host}: set rtt in milliseconds"
            )
        return PeerConnection(settings, link, seconds)

    def report(self, way: PeerConnection) -> Report:
        line = (way.route.speed_mbits or _USUAL_MBITS) * 1e6
        needed = int(line / 8 * way.round_trip)
        rates = {
            "receive": way.settings.receive_window * 8 / way.round_trip,
            "send": way.settings.send_window * 8 / way.round_trip,
        }
        findings = [
            *_list_window_findings(way.settings, rates, line, needed),
            *_list_setting_findings(way.settings),
        ]
        least = min(*rates.values(), line)
        rows = [("line", _format_rate(line)), ("round trip", f"{way.round_trip * 1000:.1f} ms")]
        rows.append(("in flight to fill it", format_size(needed)))
        rows += [
            (f"{name} at most", _format_rate(min(rate, line))) for name, rate in rates.items()
        ]
        return Report.from_findings(
            f"One connection between {self.host} and {self.peer} gets at most "
            f"{_format_rate(least)} of {_format_line(way.route)}",
            findings,
            table=Table(self.columns, rows),
        )


def _list_window_findings(
    settings: TcpSettings, rates: dict[str, float], line: float, needed: int
) -> Iterator[str]:
    for name, rate in rates.items():
        if rate < line and settings.scaling:
            yield (
                f"to {name}, the largest buffer allows {_format_rate(rate)}: the line and its "
                f"delay need {format_size(needed)} in flight, so set the third number of "
                f"{_KEY[name]} to {2 * needed} bytes"
            )


def _list_setting_findings(settings: TcpSettings) -> Iterator[str]:
    if not settings.scaling:
        yield (
            "window scaling is off, so at most 64 KiB can be in flight: set "
            "net.ipv4.tcp_window_scaling to 1"
        )
    if not settings.moderation:
        yield ("buffers do not grow with a connection: set net.ipv4.tcp_moderate_rcvbuf to 1")
    if not settings.timestamps:
        yield (
            "timestamps are off, so round trips are imprecise and sequence numbers may wrap: set "
            "net.ipv4.tcp_timestamps to 1"
        )
    if settings.congestion in _OLD:
        yield f"{settings.congestion} recovers slowly from loss on long lines: use cubic or bbr"


def _format_line(link: PeerRoute) -> str:
    if link.speed_mbits is None:
        return (
            f"{_format_rate(_USUAL_MBITS * 1e6)} (assumed: the speed of {link.interface} is "
            "unknown)"
        )
    return f"{_format_rate(link.speed_mbits * 1e6)} of {link.interface}"


def _format_rate(bits: float) -> str:
    return f"{bits / 1e9:,.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:,.1f} Mbit/s"

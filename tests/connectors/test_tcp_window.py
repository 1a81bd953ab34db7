from pathlib import Path

import pytest

from connectors.errors import ParseError
from connectors.tcp_window import (
    PeerRoute,
    TcpSettings,
    parse_round_trip,
    parse_route,
    parse_settings,
)

ANSWERS = Path(__file__).parent / "answers" / "tcp_window"
SETTINGS = (ANSWERS / "settings.txt").read_text()


def test_tcp_settings_are_parsed():
    assert parse_settings(SETTINGS) == TcpSettings(
        scaling=True,
        moderation=True,
        timestamps=True,
        congestion="bbr",
        receive_buffer=33554432,
        send_buffer=4194304,
    )


def test_tcp_window_is_half_of_the_buffer_or_64_kib_without_scaling():
    scaled = parse_settings(SETTINGS)
    assert (scaled.receive_window, scaled.send_window) == (16777216, 2097152)
    plain = parse_settings(SETTINGS.replace("window_scaling = 1", "window_scaling = 0"))
    assert (plain.receive_window, plain.send_window) == (65535, 65535)


def test_network_card_without_a_link_speed_is_parsed():
    assert parse_route((ANSWERS / "link-loopback.txt").read_text()) == PeerRoute("lo", None)
    assert parse_route("eth0\n10000\n") == PeerRoute("eth0", 10000)
    assert parse_route("eth0\n4294967295\n") == PeerRoute("eth0", None)


@pytest.mark.parametrize(
    "summary",
    [
        "round-trip min/avg/max = 0.050/0.066/0.083 ms\n",  # busybox
        "round-trip min/avg/max/stddev = 0.050/0.066/0.083/0.010 ms\n",  # FreeBSD, inetutils
        "rtt min/avg/max/mdev = 0.050/0.066/0.083/0.010 ms, pipe 2\n",
    ],
)
def test_round_trip_of_each_ping_is_parsed(summary: str):
    assert parse_round_trip(summary) == pytest.approx(50e-6)
    lost = "5 packets transmitted, 0 packets received, 100% packet loss\n"
    assert parse_round_trip(lost) is None


def test_shortest_round_trip_of_ping_is_parsed():
    assert parse_round_trip((ANSWERS / "ping.txt").read_text()) == pytest.approx(33e-6)
    assert parse_round_trip((ANSWERS / "ping-no-answer.txt").read_text()) is None
    assert parse_round_trip("rtt min/avg/max/mdev = 0.000/0.000/0.000/0.000 ms\n") == 1e-6


@pytest.mark.parametrize(
    ("parse", "answer"),
    [
        (parse_settings, ""),
        (parse_settings, SETTINGS.replace("tcp_rmem", "tcp_other")),
        (parse_settings, SETTINGS.replace("window_scaling = 1", "window_scaling = yes")),
        (parse_settings, SETTINGS.replace("4096\t131072\t33554432", "4096")),
        (parse_route, ""),
        (parse_route, "eth0\n"),
        (parse_route, "\n1000\n"),
        (parse_route, "eth0\nfast\n"),
        (parse_round_trip, ""),
        (parse_round_trip, "5 packets transmitted, 3 received\n"),
    ],
)
def test_invalid_tcp_settings_and_routes_are_a_parse_error(parse: object, answer: str):
    assert callable(parse)
    with pytest.raises(ParseError):
        parse(answer)

from dataclasses import replace

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from connectors import tcp_window
from connectors.tcp_window import PeerRoute, TcpSettings, parse_settings
from runbooks import Refused
from tests.connectors.test_tcp_window import ANSWERS, SETTINGS
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

TcpWindowCheck = load_check("tcp window check")
PEER = {"host": "web1", "peer": "198.51.100.7"}
CHECK = TcpWindowCheck.model_validate(PEER)
GIGABIT = PeerRoute("eth0", 1000)
# Enough for a gigabit over 80 ms (10 MB under way), and for no more than that.
LARGE = replace(parse_settings(SETTINGS), send_buffer=33_554_432)


def make_connection(
    settings: TcpSettings = LARGE, link: PeerRoute = GIGABIT, seconds: float = 0.08
) -> tuple[TcpSettings, PeerRoute, float]:
    return settings, link, seconds


def test_tcp_buffers_that_fill_the_link_are_healthy():
    report = CHECK.report(make_connection())
    assert report.healthy
    assert report.summary == (
        "One connection between web1 and 198.51.100.7 gets at most 1.0 Gbit/s of "
        "1.0 Gbit/s of eth0"
    )
    assert report.table is not None
    assert ("in flight to fill it", "9.54 MiB") in report.table.rows


def test_tcp_buffer_that_is_too_small_is_a_finding_with_the_needed_size():
    report = CHECK.report(make_connection(parse_settings(SETTINGS)))
    (finding,) = report.findings
    assert "to send, the largest buffer allows 209.7 Mbit/s" in finding
    assert "net.ipv4.tcp_smem" not in finding
    assert "net.ipv4.tcp_wmem to 20000000 bytes" in finding
    assert report.summary.startswith(
        "One connection between web1 and 198.51.100.7 gets at most 209.7"
    )


def test_tcp_buffers_that_are_too_small_far_away_are_enough_nearby():
    assert CHECK.report(make_connection(parse_settings(SETTINGS), seconds=0.001)).healthy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (replace(LARGE, scaling=False), "at most 64 KiB"),
        (replace(LARGE, moderation=False), "tcp_moderate_rcvbuf"),
        (replace(LARGE, timestamps=False), "timestamps are off"),
        (replace(LARGE, congestion="reno"), "reno recovers slowly"),
    ],
)
def test_tcp_setting_that_is_off_is_a_finding(settings: TcpSettings, message: str):
    report = CHECK.report(make_connection(settings))
    assert len(report.findings) == 1
    assert message in report.findings[0]


def test_tcp_without_window_scaling_limits_a_distant_peer():
    report = CHECK.report(make_connection(replace(LARGE, scaling=False)))
    assert "gets at most 6.6 Mbit/s" in report.summary


def test_network_card_without_a_speed_is_reported_as_unknown():
    report = CHECK.report(make_connection(link=PeerRoute("virtio0", None)))
    assert "the speed of virtio0 is unknown" in report.summary


def test_tcp_window_check_measures_the_round_trip_unless_given():
    fleet = ScriptedFleet(
        {
            ("web1", tcp_window.query_settings().command): SETTINGS,
            ("web1", tcp_window.query_route("198.51.100.7").command): "eth0\n1000\n",
        }
    )
    given = TcpWindowCheck.model_validate(PEER | {"rtt": "80"})
    state = given.read(fleet.run_query)
    assert state == (parse_settings(SETTINGS), GIGABIT, None)
    assert given.report(state) == CHECK.report(make_connection(parse_settings(SETTINGS)))
    ping = tcp_window.query_round_trip("198.51.100.7").command
    fleet.script("web1", ping, (ANSWERS / "ping.txt").read_text())
    assert CHECK.read(fleet.run_query)[2] == pytest.approx(33e-6)
    fleet.script("web1", ping, (ANSWERS / "ping-no-answer.txt").read_text())
    with pytest.raises(Refused, match="set rtt"):
        CHECK.read(fleet.run_query)


@pytest.mark.parametrize("peer", HOSTILE_ADDRESSES)
def test_tcp_window_check_refuses_an_invalid_peer_before_any_query(peer: object):
    with pytest.raises(ValidationError):
        TcpWindowCheck.model_validate({"host": "web1", "peer": peer})


@pytest.mark.parametrize(
    "rtt", [0, -1, 5001, "", "80ms", "80; id", "1e9", "-x", "８０ms", [80], "0x50", "80\n", 0.5]
)
def test_tcp_window_check_refuses_an_invalid_round_trip(rtt: object):
    with pytest.raises(ValidationError):
        TcpWindowCheck.model_validate(PEER | {"rtt": rtt})

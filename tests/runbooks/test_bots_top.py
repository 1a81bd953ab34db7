import pytest
from pydantic import ValidationError

from connectors import access_log
from connectors.access_log import AgentTraffic, WebTraffic
from runbooks.bots_top import BotsTop, BotTraffic
from tests.connectors.test_access_log import COUNTED
from tests.scripted_fleet import ScriptedFleet

LOOK = BotsTop.model_validate({"host": "web1"})
AGENT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GOOGLE = AgentTraffic("66.249.66.1", AGENT, 100, 60, 25)
REAL = "crawl-66-249-66-1.googlebot.com"


def make_traffic(client: AgentTraffic, names: str, addresses: str = "") -> BotTraffic:
    """Return the traffic of a client; its address resolves to *names*, and they to *addresses*."""
    refused = client.refused_requests
    counted = f"{client.requests}\t0\n{client.requests}\t{client.peak_requests}\t{refused}\t"
    lines = f"{client.address} {names}\n" if names else ""
    fleet = ScriptedFleet(
        {
            ("web1", access_log.query_traffic(hours=2, max_rows=25).command): (
                f"{counted}{client.address}\t{client.agent}\n"
            ),
            ("web1", access_log.query_names(client.address).command): lines,
        }
    )
    for name in names.split():
        back = "".join(f"{each} STREAM {name}\n" for each in addresses.split())
        fleet.script("web1", access_log.query_addresses(name).command, back)
    return LOOK.read(fleet.run_query)


def test_search_engine_with_matching_reverse_dns_is_verified():
    report = LOOK.report(make_traffic(GOOGLE, REAL, "66.249.66.1"))
    assert report.healthy
    assert report.table is not None
    assert report.table.rows[0][:5] == (
        "66.249.66.1",
        "100",
        "60",
        "25%",
        "Googlebot, verified",
    )


@pytest.mark.parametrize(
    ("names", "addresses"),
    [
        ("", ""),
        ("host.example.net", "66.249.66.1"),
        # Anybody can give an own address such a name; it does not lead back.
        (REAL, "192.0.2.1"),
        ("crawl.googlebot.com.example.net", "66.249.66.1"),
        ("evilgooglebot.com", "66.249.66.1"),
    ],
)
def test_search_engine_without_matching_reverse_dns_is_a_finding(names: str, addresses: str):
    report = LOOK.report(make_traffic(GOOGLE, names, addresses))
    assert not report.healthy
    assert report.findings[0].startswith("66.249.66.1 claims to be Googlebot and is not")


def test_bots_top_resolves_only_names_of_search_engines():
    fleet = ScriptedFleet(
        {
            ("web1", access_log.query_traffic(hours=2, max_rows=25).command): COUNTED.replace(
                "Googlebot", "x"
            )
        }
    )
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert len(fleet.asked) == 1
    assert report.summary.startswith("web1 answered 7 requests in 2 h")
    assert report.findings == [
        "1 lines were not counted: their format is neither `combined`, `vhost_combined` nor "
        "HAProxy's"
    ]


def test_bots_top_reports_a_client_with_too_many_requests_an_hour():
    fast = AgentTraffic("203.0.113.9", "python-requests/2.31", 30_000, 12_000, 0)
    (finding,) = LOOK.report(BotTraffic(WebTraffic(30_000, 0, (fast,)), {})).findings
    assert finding == "203.0.113.9 sent 12,000 requests in one hour: python-requests/2.31"


def test_client_logged_by_name_is_not_verified():
    named = AgentTraffic("crawler.example.net", AGENT, 5, 5, 0)
    seen = make_traffic(named, "")
    assert seen.verified == {}
    assert not LOOK.report(seen).healthy


@pytest.mark.parametrize(
    "hours", [0, -1, 49, "", "2; id", "-x", "1e1", "two", "2\n", [2], "0x2", 1.5, "２ h"]
)
def test_bots_top_refuses_an_invalid_number_of_hours(hours: object):
    with pytest.raises(ValidationError):
        BotsTop.model_validate({"host": "web1", "hours": hours})

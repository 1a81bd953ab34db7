"""Pingdom's feed is understood, or refused as a whole."""

import random
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from pathlib import Path

import pytest

from connectors import pingdom
from connectors.command import Fetch
from connectors.public import is_public
from connectors.trouble import BadSetting, NotUnderstood
from tests.feeds import BAD_FEEDS, FOURS, SIXES, feed, item, rss, with_one

ALL = frozenset(map(ip_address, (*FOURS, *SIXES)))
RECORDED = Path(__file__).parent / "answers" / "pingdom-feed.txt"


def test_a_recorded_feed_is_understood():
    """It is the beginning of the feed of March 2014, when there was no IPv6 in it."""
    found = pingdom.parse(RECORDED.read_text())
    assert len(found.addresses) == 11
    assert IPv4Address("95.141.32.46") in found.addresses
    assert IPv4Address("174.34.224.167") not in found.addresses
    assert found.inactive == 1
    assert found.built == "Thu, 20 Mar 2014 22:19:32 +0100"


def test_active_probes_count_with_their_addresses_of_both_kinds():
    assert pingdom.parse(feed()).addresses == ALL


def test_probes_that_are_not_active_are_counted_and_not_taken():
    found = pingdom.parse(
        feed(FOURS, SIXES, item("5.172.9.9", ipv6="2a01:7e00::99", state="Inactive"))
    )
    assert found.addresses == ALL
    assert found.inactive == 1


@pytest.mark.parametrize("ipv6", [None, "", "NULL"])
def test_a_probe_without_ipv6_has_none(ipv6: str | None):
    found = pingdom.parse(feed(FOURS, SIXES, item("5.172.9.9", ipv6=ipv6)))
    assert found.addresses == ALL | {IPv4Address("5.172.9.9")}


def test_a_probe_may_have_ipv6_alone():
    found = pingdom.parse(feed(FOURS, SIXES, item("NULL", ipv6="2a01:7e00::99")))
    assert found.addresses == ALL | {IPv6Address("2a01:7e00::99")}


def test_order_repetition_case_and_spelling_make_no_difference():
    shuffled = [
        item(four, ipv6=six, state=state)
        for four, six, state in zip(
            FOURS * 2,
            [*(IPv6Address(six).exploded.upper() for six in SIXES), *["NULL"] * 160],
            ["ACTIVE", "active"] * 100,
            strict=True,
        )
    ]
    random.Random(7).shuffle(shuffled)  # noqa: S311 - to be repeated, not secret
    assert pingdom.parse(rss(shuffled)) == pingdom.parse(feed())


def test_a_plain_list_is_understood():
    lines = "\n".join((*FOURS, *SIXES))
    assert pingdom.parse(lines).addresses == ALL
    assert pingdom.parse(f"{lines}\n").addresses == ALL
    assert pingdom.parse(lines.replace("\n", "\r\n") + "\r\n").addresses == ALL


def test_there_are_at_least_forty_ways_to_be_wrong():
    assert len(BAD_FEEDS) >= 40


@pytest.mark.parametrize("bad", BAD_FEEDS.values(), ids=BAD_FEEDS.keys())
def test_a_feed_with_anything_wrong_is_refused_as_a_whole(bad: str):
    with pytest.raises(NotUnderstood, match="refused as a whole, and hosts keep the list"):
        pingdom.parse(bad)


def test_without_what_is_wrong_the_same_feed_is_taken():
    assert pingdom.parse(with_one("5.172.9.9")).addresses == ALL | {IPv4Address("5.172.9.9")}


def test_random_networks_are_never_taken_and_addresses_only_if_public():
    chance = random.Random(11)  # noqa: S311 - to be repeated, not secret
    for _ in range(3000):
        number, bits = chance.getrandbits(32), chance.randint(0, 32)
        network = IPv4Network((number, bits), strict=False)
        with pytest.raises(NotUnderstood):
            pingdom.parse("\n".join([*FOURS[:10], str(network)]))
        address = IPv4Address(number)
        if is_public(address):
            assert address in pingdom.parse("\n".join([*FOURS[:10], str(address)])).addresses
        else:
            with pytest.raises(NotUnderstood):
                pingdom.parse("\n".join([*FOURS[:10], str(address)]))


def test_what_the_feed_says_of_its_age_is_repeated_only_if_it_is_a_date():
    odd = feed().replace("Thu, 20 Mar 2014", "&lt;!channel&gt;")
    assert pingdom.parse(odd).built == ""


# The peak of this program's own memory in MiB. getrusage would tell that of the process which
# forked it, if that was larger.
_MEASURE = """
import re, sys
from pathlib import Path
from connectors import pingdom
from connectors.trouble import NotUnderstood
text = sys.stdin.read()
try:
    pingdom.parse(text)
except NotUnderstood:
    print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.parametrize(
    "bad",
    [
        "<rss>" + "<a>" * 1_700_000,
        "<rss><channel>" + "<a/>" * 1_300_000,
        "<rss><channel><item>" + "<a b='1'/>" * 500_000,
        "<rss a='" + "1" * 5_000_000 + "'>",
        "1\n" * 2_500_000,
        BAD_FEEDS["a billion laughs"],
    ],
    ids=["deep", "wide", "wider", "one attribute", "lines", "laughs"],
)
def test_the_largest_document_takes_little_memory(bad: str):
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE], input=bad, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 150


def test_where_the_feed_is_comes_from_the_inventory():
    query = pingdom.feed()
    assert isinstance(query.command, Fetch)
    assert query.command.resolved({}).url == "https://my.pingdom.com/probes/feed"
    mirror = {
        "pingdom.feed": "https://mirror.example/pingdom",
        "pingdom.feed_networks": "10.0.0.0/8,fd00::/8",
        "pingdom.feed_authority": "keys/ca.pem",
    }
    told = query.command.resolved(mirror)
    assert (told.url, told.networks, told.authority) == tuple(mirror.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pingdom.feed", "http://my.pingdom.com/probes/feed"),
        ("pingdom.feed", "file:///etc/passwd"),
        ("pingdom.feed", "https://my.pingdom.com/probes feed"),
        ("pingdom.feed_networks", "all"),
        ("pingdom.feed_authority", "/etc/ssl/cert.pem"),
        ("pingdom.feed_authority", "../ca.pem"),
    ],
)
def test_an_inventory_that_names_something_else_is_told_so(name: str, value: str):
    command = pingdom.feed().command
    assert isinstance(command, Fetch)
    with pytest.raises(BadSetting):
        command.resolved({name: value})

"""Pingdom's feed is parsed, with single invalid items skipped, or refused as a whole."""

import random
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from pathlib import Path

import pytest

from connectors import pingdom
from connectors.command import Fetch
from connectors.errors import ParseError, SettingError
from connectors.public_addresses import is_public
from tests.pingdom_feeds import (
    BAD_FEEDS,
    FOURS,
    ODD_ITEMS,
    SIXES,
    build_feed,
    build_feed_item,
    build_rss,
    with_one,
)

ALL = frozenset(map(ip_address, (*FOURS, *SIXES)))
RECORDED = Path(__file__).parent / "answers" / "pingdom-feed.txt"


def test_recorded_pingdom_feed_is_parsed():
    """The beginning of the feed of March 2014, which had no IPv6."""
    probes = pingdom.parse_feed(RECORDED.read_text())
    assert len(probes.addresses) == 11
    assert IPv4Address("95.141.32.46") in probes.addresses
    assert IPv4Address("174.34.224.167") not in probes.addresses
    assert probes.inactive_count == 1
    assert probes.built_at == "Thu, 20 Mar 2014 22:19:32 +0100"


def test_active_pingdom_probes_are_parsed_with_ipv4_and_ipv6_addresses():
    assert pingdom.parse_feed(build_feed()).addresses == ALL


def test_inactive_pingdom_probes_are_counted_and_left_out():
    probes = pingdom.parse_feed(
        build_feed(
            FOURS, SIXES, build_feed_item("5.172.9.9", ipv6="2a01:7e00::99", state="Inactive")
        )
    )
    assert probes.addresses == ALL
    assert probes.inactive_count == 1


@pytest.mark.parametrize("ipv6", [None, "", "NULL"])
def test_pingdom_probe_without_ipv6_has_only_ipv4(ipv6: str | None):
    probes = pingdom.parse_feed(build_feed(FOURS, SIXES, build_feed_item("5.172.9.9", ipv6=ipv6)))
    assert probes.addresses == ALL | {IPv4Address("5.172.9.9")}


def test_pingdom_probe_with_only_ipv6_is_parsed():
    probes = pingdom.parse_feed(
        build_feed(FOURS, SIXES, build_feed_item("NULL", ipv6="2a01:7e00::99"))
    )
    assert probes.addresses == ALL | {IPv6Address("2a01:7e00::99")}


def test_pingdom_feed_is_independent_of_order_repetition_and_case():
    shuffled = [
        build_feed_item(four, ipv6=six, state=state)
        for four, six, state in zip(
            FOURS * 2,
            [*(IPv6Address(six).exploded.upper() for six in SIXES), *["NULL"] * 160],
            ["ACTIVE", "active"] * 100,
            strict=True,
        )
    ]
    random.Random(7).shuffle(shuffled)  # noqa: S311 - to be repeated, not secret
    assert pingdom.parse_feed(build_rss(shuffled)) == pingdom.parse_feed(build_feed())


def test_pingdom_plain_list_is_parsed():
    lines = "\n".join((*FOURS, *SIXES))
    assert pingdom.parse_feed(lines).addresses == ALL
    assert pingdom.parse_feed(f"{lines}\n").addresses == ALL
    assert pingdom.parse_feed(lines.replace("\n", "\r\n") + "\r\n").addresses == ALL


def test_at_least_forty_bad_pingdom_feeds_are_tested():
    assert len(BAD_FEEDS) >= 40


@pytest.mark.parametrize("bad", BAD_FEEDS.values(), ids=BAD_FEEDS.keys())
def test_bad_pingdom_feed_is_refused_as_a_whole(bad: str):
    with pytest.raises(ParseError, match="refused, and hosts keep their current list"):
        pingdom.parse_feed(bad)


@pytest.mark.parametrize("odd", ODD_ITEMS.values(), ids=ODD_ITEMS.keys())
def test_invalid_pingdom_item_is_skipped_and_named(odd: str):
    probes = pingdom.parse_feed(build_feed(FOURS, SIXES, odd))
    assert probes.addresses == ALL
    assert len(probes.skip_reasons) == 1
    assert probes.skip_reasons[0].startswith("probe 101 ")
    assert probes.skip_reasons[0].isprintable()


@pytest.mark.parametrize(
    ("good", "odd", "refused"),
    [
        (10, 2, False),
        (10, 3, True),
        (56, 3, True),
        (57, 3, False),
        (95, 5, False),
        (94, 5, True),
    ],
)
def test_pingdom_feed_with_too_many_invalid_items_is_refused(good: int, odd: int, refused: bool):
    text = build_feed(FOURS[:good], (), *[build_feed_item("10.0.0.1")] * odd)
    lines = "\n".join((*FOURS[:good], *["10.0.0.1"] * odd))
    if refused:
        for spoilt in (text, lines):
            with pytest.raises(ParseError, match=f"{odd} of its {good + odd} items are invalid"):
                pingdom.parse_feed(spoilt)
    else:
        assert (
            len(pingdom.parse_feed(text).skip_reasons)
            == len(pingdom.parse_feed(lines).skip_reasons)
            == odd
        )
        assert len(pingdom.parse_feed(text).addresses) == good


GONE4, GONE6 = IPv4Address("5.172.9.9"), IPv6Address("2a01:7e00::99")


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        # Its addresses can be read: they stay, and others go.
        (build_feed_item("5.172.9.9", ipv6="2a01:7e00::99", state="Resting"), {GONE4, GONE6}),
        (build_feed_item("5.172.9.10", state="Resting"), set[object]()),
        # They cannot be read: it may have been any of their version.
        (build_feed_item("5.172.9"), {GONE4}),
        (build_feed_item("5.172.9.10", ipv6="5.172.9.9"), {GONE4, GONE6}),
        (build_feed_item("5.172.9.10", ipv6="null"), {GONE6}),
        (build_feed_item(""), {GONE4, GONE6}),
        # A probe that is not active does not keep an address.
        (build_feed_item("5.172.9", state="Inactive"), set[object]()),
    ],
)
def test_addresses_of_invalid_pingdom_items_stay_on_the_current_list(odd: str, kept: set[object]):
    probes = pingdom.parse_feed(build_feed(FOURS, SIXES, odd))
    assert probes.list_kept_addresses([*ALL, GONE4, GONE6]) == kept
    assert probes.list_kept_addresses([]) == frozenset()


def test_invalid_line_of_a_pingdom_plain_list_keeps_all_addresses():
    probes = pingdom.parse_feed("\n".join((*FOURS, "5.172.9")))
    assert probes.list_kept_addresses([GONE4, GONE6]) == {GONE4, GONE6}
    assert probes.skip_reasons == ["line 101 has '5.172.9', which is not an address"]


def test_pingdom_feed_of_the_bad_feeds_is_valid_without_the_bad_item():
    assert pingdom.parse_feed(with_one("5.172.9.9")).addresses == ALL | {IPv4Address("5.172.9.9")}


def test_pingdom_list_accepts_public_addresses_and_no_networks():
    chance = random.Random(11)  # noqa: S311 - to be repeated, not secret
    for _ in range(1000):
        number, bits = chance.getrandbits(32), chance.randint(0, 32)
        network = IPv4Network((number, bits), strict=False)
        plain = frozenset(map(ip_address, FOURS[:10]))
        assert pingdom.parse_feed("\n".join([*FOURS[:10], str(network)])).addresses == plain
        address = IPv4Address(number)
        taken = {address} if is_public(address) else frozenset[IPv4Address]()
        assert (
            pingdom.parse_feed("\n".join([*FOURS[:10], str(address)])).addresses == plain | taken
        )


def test_pingdom_build_time_is_shown_only_when_it_is_a_date():
    odd = build_feed().replace("Thu, 20 Mar 2014", "&lt;!channel&gt;")
    assert pingdom.parse_feed(odd).built_at == ""


# The peak of this program's own memory in MiB. getrusage would tell that of the process which
# forked it, if that was larger.
_MEASURE = """
import re, sys
from pathlib import Path
from connectors import pingdom
from connectors.errors import ParseError
text = sys.stdin.read()
try:
    pingdom.parse_feed(text)
except ParseError:
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
def test_largest_pingdom_document_uses_little_memory(bad: str):
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE], input=bad, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 150


def test_pingdom_feed_settings_are_read_from_the_inventory():
    query = pingdom.query_feed()
    assert isinstance(query.command, Fetch)
    assert query.command.resolve({}).url == "https://my.pingdom.com/probes/feed"
    mirror = {
        "pingdom.feed": "https://mirror.example/pingdom",
        "pingdom.feed_networks": "10.0.0.0/8,fd00::/8",
        "pingdom.feed_authority": "keys/ca.pem",
        "pingdom.feed_proxy": "http://proxy.example:3128",
    }
    command = query.command.resolve(mirror)
    assert (command.url, command.networks, command.authority, command.proxy) == tuple(
        mirror.values()
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pingdom.feed", "http://my.pingdom.com/probes/feed"),
        ("pingdom.feed", "file:///etc/passwd"),
        ("pingdom.feed", "https://my.pingdom.com/probes feed"),
        ("pingdom.feed_networks", "all"),
        ("pingdom.feed_authority", "/etc/ssl/cert.pem"),
        ("pingdom.feed_authority", "../ca.pem"),
        ("pingdom.feed_proxy", "https://proxy.example:3128"),
        ("pingdom.feed_proxy", "http://name:secret@proxy.example:3128"),
        ("pingdom.feed_proxy", "proxy.example:3128"),
    ],
)
def test_invalid_pingdom_settings_in_the_inventory_are_refused(name: str, value: str):
    command = pingdom.query_feed().command
    assert isinstance(command, Fetch)
    with pytest.raises(SettingError):
        command.resolve({name: value})

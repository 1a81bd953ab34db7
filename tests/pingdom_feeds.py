"""A valid Pingdom feed, and forty invalid ones."""

from collections.abc import Iterable, Sequence

# The head of the feed and the shape of its items are those of a recorded one.
_HEAD = """\
<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0"
    xmlns:atom="http://www.w3.org/2005/Atom"
    xmlns:pingdom="http://www.pingdom.com/ns/PingdomRSSNamespace">
    <channel>
        <title>Probe servers</title>
        <link>http://www.pingdom.com</link>
        <description>These are the servers that we use to check your site.</description>
        <language>en</language>
        <lastBuildDate>Thu, 20 Mar 2014 22:19:32 +0100</lastBuildDate>
        <docs>http://cyber.law.harvard.edu/rss/rss.html</docs>
        <atom:link href="https://my.pingdom.com/probes/feed" rel="self"/>
"""
_TAIL = "    </channel>\n</rss>\n"

FOURS = tuple(f"5.172.{n // 200}.{n % 200 + 1}" for n in range(100))
SIXES = tuple(f"2a01:7e00::{n:x}" for n in range(1, 41))


def build_feed_item(ip: str = "", *, ipv6: str | None = None, state: str = "Active") -> str:
    six = "" if ipv6 is None else f"\n                <pingdom:ipv6>{ipv6}</pingdom:ipv6>"
    return f"""
            <item>
                <guid isPermaLink="false">pingdom-probe-86</guid>
                <title>Milan 2, Italy</title>
                <description>IP: {ip}; Hostname: s470.pingdom.com; State: {state}</description>
                <pingdom:ip>{ip}</pingdom:ip>{six}
                <pingdom:hostname>s470.pingdom.com</pingdom:hostname>
                <pingdom:country code="IT">Italy</pingdom:country>
                <pingdom:city>Milan</pingdom:city>
                <pingdom:state>{state}</pingdom:state>
            </item>
"""


def build_rss(items: Iterable[str]) -> str:
    return _HEAD + "".join(items) + _TAIL


def build_feed(fours: Sequence[str] = FOURS, sixes: Sequence[str] = SIXES, *more: str) -> str:
    """Return a feed of active probes; those that have no IPv6 address carry the literal NULL."""
    filled = [*sixes, *["NULL"] * (len(fours) - len(sixes))]
    probes = [build_feed_item(four, ipv6=six) for four, six in zip(fours, filled, strict=True)]
    return build_rss([*probes, *more])


def with_one(bad: str) -> str:
    return build_feed(FOURS, SIXES, build_feed_item(bad))


def with_many(bad: str) -> str:
    """Return a feed of which 6 of 106 items are bad: more than is skipped."""
    return build_feed(FOURS, SIXES, *[bad] * 6)


_GOOD = build_feed()
_BOMB = (
    '<!DOCTYPE rss [<!ENTITY a "5.172.9.9">'
    + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)

# Items that are skipped, by what is wrong with them.
ODD_ITEMS: dict[str, str] = {
    **{
        f"it lists {bad}": build_feed_item(bad)
        for bad in (
            *("0.0.0.0/0", "::/0", "8.0.0.0/7", "5.172.0.0/16", "5.172.9.9/32", "5.172.9.9/8"),
            *("10.0.0.1", "172.16.3.4", "192.168.1.1", "127.0.0.1", "169.254.169.254"),
            *("100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "0.0.0.1"),
            *("192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.88.99.1"),
            *("010.0.0.1", "5.172.9", "5.172.9.256", "0x05ac0909", "1", "s470.pingdom.com"),
            *("5.172.9.9 # x", "tcp|in|d=22|s=5.172.9.9", "5.172.9.9\nInclude /etc/passwd"),
            *("2a01:7e00::1:1", "５.172.9.9", "5.172.9.9%eth0", "NULL", ""),
        )
    },
    **{
        f"it lists {bad} as IPv6": build_feed_item("5.172.9.9", ipv6=bad)
        for bad in (
            *("::1", "fe80::1", "fc00::1", "ff02::1", "2001:db8::1", "64:ff9b::a00:1"),
            *("2002:a00:1::", "::ffff:10.0.0.1", "2001:0:1::1", "2a01:7e00::/32", "fe80::1%eth0"),
            *("5.172.9.9", "null"),
        )
    },
    "a probe without address": build_feed_item(ipv6="NULL"),
    "an inactive probe with a bad address": build_feed_item("10.0.0.1", state="Inactive"),
    "a state that nobody knows": build_feed_item("5.172.9.9", state="Resting"),
    "no state": build_feed_item("5.172.9.9").replace("<pingdom:state>Active</pingdom:state>", ""),
    "two addresses in one": build_feed_item("5.172.9.9").replace(
        "</pingdom:ip>", "</pingdom:ip><pingdom:ip>5.172.9.10</pingdom:ip>"
    ),
}

# By what is wrong with them. All but the last few are well-formed.
BAD_FEEDS: dict[str, str] = {
    **{f"six times {name}": with_many(bad) for name, bad in ODD_ITEMS.items()},
    "elements within an address": with_one("<b>5.172.9.9</b>"),
    "no probes": build_rss([]),
    "too few probes": build_feed(FOURS[:9], ()),
    "none of them active": build_rss([build_feed_item(four, state="Inactive") for four in FOURS]),
    "too many probes": build_rss(
        [build_feed_item(f"5.172.{n // 200}.{n % 200 + 1}") for n in range(1001)]
    ),
    "the namespace of somebody else": _GOOD.replace("PingdomRSSNamespace", "Other"),
    "no namespace": _GOOD.replace("<pingdom:", "<").replace("</pingdom:", "</"),
    "items that lie elsewhere": _GOOD.replace("<channel>", "<channel><a>").replace(
        "</channel>", "</a></channel>"
    ),
    "another kind of document": "<html><body>Service unavailable</body></html>",
    "a page of an error": "<!DOCTYPE html><html><body>Sorry</body></html>",
    "a document type": _GOOD.replace("<rss", "<!DOCTYPE rss><rss", 1),
    "an entity of its own": _GOOD.replace(
        "<rss", '<!DOCTYPE rss [<!ENTITY a "5.172.9.9">]><rss', 1
    ),
    "an entity from a file": _GOOD.replace(
        "<rss", '<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss', 1
    ),
    "a billion laughs": _GOOD.replace("<rss", _BOMB + "<rss", 1).replace(FOURS[0], "&i;"),
    "elements a million deep": "<rss>" * 1_000_000,
    "a long address": with_one("1" * 4_000_000),
    "only the beginning of it": _GOOD[: len(_GOOD) // 2],
    "something behind its end": _GOOD + "<rss/>",
    "a control character": with_one("5.172.9.9\0"),
    "nothing": "",
    "an empty line": "\n",
    "words": "The service is not available.\n",
    "JSON": '{"probes": []}\n',
    "a plain list with networks": "\n".join([*FOURS, *["0.0.0.0/0"] * 6]) + "\n",
    "a plain list with private addresses": "\n".join([*FOURS, *["10.0.0.1"] * 6]) + "\n",
    "a plain list with empty lines": "\n".join([*FOURS, *[""] * 6, "5.172.9.9"]) + "\n",
    "a plain list with comments": "\n".join([*["# probes"] * 6, *FOURS]) + "\n",
    "a plain list that is much too long": "5.172.9.9\n" * 1001,
    "a short plain list": "\n".join(FOURS[:9]) + "\n",
}

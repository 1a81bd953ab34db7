"""Requests of a host's web server by client, from its access logs. No I/O.

The host counts, so its logs stay there. Formats: the `combined` and `common` logs of nginx and
Apache (the address first, the agent last), also with the virtual host before the address, as in
Debian's other_vhosts_access.log (`vhost_combined`), with more fields at the end, or with ISO
times (`$time_iso8601`); HAProxy's `option httplog` as syslog writes it (its manual, section
8.2.3), where the agent is known if the header is captured. Rotated files may be gzipped.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

# One or several patterns of file names, separated by blanks. The shell expands them.
_FILES = Setting(
    "access_log.files",
    "/var/log/nginx/*access.log* /var/log/apache2/*access.log* /var/log/httpd/*access_log* "
    "/var/log/haproxy*.log*",
    pattern=r"(/[\w.*?-]+)+( (/[\w.*?-]+)+)*",
)

MAX_HOURS, MAX_ROWS = 48, 25
_SCRIPT = load_script("access-log", argument_count=3)
_HINTS = (
    Hint(
        r"no access log was written to",
        "no access log in the usual places was written in this time: set access_log.files in the "
        "inventory",
    ),
    Hint(r"[Pp]ermission denied", "only root can read these logs: add the login's sudo rule"),
)


@dataclass(frozen=True)
class AgentTraffic:
    """The requests of one client address with one user agent."""

    address: str
    agent: str
    requests: int
    peak_requests: int
    """Requests in its busiest hour."""
    refused_requests: int
    """Requests answered with status 503."""


@dataclass(frozen=True)
class WebTraffic:
    """All requests in a time, and the busiest clients."""

    requests: int
    """All requests that were counted."""
    unparsed_lines: int
    """Log lines in another format."""
    clients: tuple[AgentTraffic, ...]
    """The busiest first."""


def query_traffic(*, hours: int, max_rows: int) -> Query[WebTraffic]:
    """Query the clients with the most requests in the current hour and those before it."""
    words = (_SCRIPT, str(hours), str(max_rows), _FILES)
    return Query(Shell(words, root=True, hints=_HINTS, deadline=300), parse_traffic)


def query_names(address: str) -> Query[tuple[str, ...]]:
    """Query the DNS names of an address; it may have none."""
    words = ("getent", "hosts", "--", address)
    return Query(Shell(words), parse_names, frozenset({0, 2}))


def query_addresses(name: str) -> Query[tuple[str, ...]]:
    """Query the addresses of a name; it may have none."""
    return Query(Shell(("getent", "ahosts", "--", name)), parse_addresses, frozenset({0, 2}))


def parse_traffic(answer: str) -> WebTraffic:
    head, *lines = answer.splitlines() or [""]
    counts = re.fullmatch(r"(\d+)\t(\d+)", head, re.ASCII)
    if counts is None:
        raise ParseError(f"the access log script printed {answer[:200]!r} instead of counts")
    return WebTraffic(int(counts[1]), int(counts[2]), parse_each(lines, _parse_client))


def _parse_client(line: str) -> AgentTraffic:
    # An agent may hold anything, tabs too.
    words = line.split("\t", 4)
    requests, busiest, refused = (int(word) for word in words[:3])
    return AgentTraffic(words[3], words[4], requests, busiest, refused)


def parse_names(answer: str) -> Rows[str]:
    lines = parse_each(filter(str.strip, answer.splitlines()), _split_names)
    return Rows((name for names in lines for name in names), lines.odd)


def _split_names(line: str) -> tuple[str, ...]:
    address, *names = line.split()
    if not names:
        raise ParseError("it has no name")
    ip_address(address.partition("%")[0])
    return tuple(name.lower().rstrip(".") for name in names)


def parse_addresses(answer: str) -> Rows[str]:
    found = parse_each(
        filter(str.strip, answer.splitlines()),
        lambda line: str(ip_address(line.split()[0].partition("%")[0])),
    )
    return Rows(dict.fromkeys(found), found.odd)


SUDO = (
    SudoRule(
        *(
            _SCRIPT,
            WordPattern(make_range_pattern(1, MAX_HOURS)),
            WordPattern(make_range_pattern(1, MAX_ROWS)),
            _FILES,
        ),
        read_only=True,
    ),
)

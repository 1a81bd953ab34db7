"""nginx's limits of request rates, and how many requests they affected. No I/O.

Formats: ngx_http_limit_req_module; `nginx -T` prints the complete configuration, and the error log
has a line for each request that was delayed or refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import NamedRows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule

_CONFIGURATION = Setting("nginx.config", "/etc/nginx/nginx.conf", pattern=r"/[\w./-]+")
_LOGS = Setting(
    "nginx.error_logs", "/var/log/nginx/*error.log*", pattern=r"(/[\w.*?-]+)+( (/[\w.*?-]+)+)*"
)

_SHOWN = ("-T", "-q", "-c")

_SCRIPT = load_script("rate-limit", argument_count=1)
_HINTS = (
    Hint(r"nginx: .*not found", "this host has no nginx"),
    Hint(
        r"open\(\) .* failed \(2: No such file",
        "a configuration file is missing: check nginx.config in the inventory",
    ),
    Hint(r"\[emerg\]", "nginx refuses its own configuration: fix it before the next restart"),
    Hint(r"[Pp]ermission denied", "this requires root: add the login's sudo rule"),
)


@dataclass(frozen=True)
class RateZone:
    """A limit_req_zone of nginx."""

    name: str
    key: str
    """What is counted, such as $binary_remote_addr."""
    size: str
    """As in 10m."""
    rate: str
    """As in 10r/s."""


@dataclass(frozen=True)
class ZoneUse:
    """A limit_req of nginx, which applies a zone."""

    zone: str
    burst: int
    """Further requests that wait, or with nodelay pass immediately."""
    nodelay: bool


@dataclass(frozen=True)
class RateLimits:
    """nginx's request limits."""

    zones: tuple[RateZone, ...]
    uses: tuple[ZoneUse, ...]
    status: int
    """The HTTP status of refused requests."""
    dry_run: bool


@dataclass(frozen=True)
class LimitCounts:
    """Requests by zone, in logs that were written in the last 24 hours."""

    refused: Mapping[str, int]
    delayed: Mapping[str, int]
    """nginx logs these one level below the refused ones, and by default not at all."""
    is_logged: bool = True
    """Whether a log was written."""


def query_limits() -> Query[RateLimits]:
    shell = Shell(("nginx", *_SHOWN, _CONFIGURATION), root=True, hints=_HINTS)
    return Query(shell, parse_limits)


def query_counts() -> Query[LimitCounts]:
    """Query the requests that were limited."""
    shell = Shell((_SCRIPT, _LOGS), root=True, hints=_HINTS, deadline=120)
    return Query(shell, parse_counts)


def parse_limits(answer: str) -> RateLimits:
    if not answer.startswith("# configuration file "):
        raise ParseError(f"nginx printed {answer[:200]!r} instead of its configuration")
    text = re.sub(r"(?m)^\s*#.*$", "", answer)
    statuses = re.findall(r"(?m)[\s;{]limit_req_status\s+(\d+)\s*;", text)
    return RateLimits(
        zones=parse_each(_find_directives(text, "limit_req_zone"), _parse_zone),
        uses=parse_each(_find_directives(text, "limit_req"), _parse_use),
        status=int(statuses[-1]) if statuses else 503,
        dry_run=bool(re.search(r"[\s;{]limit_req_dry_run\s+on\s*;", text)),
    )


def _find_directives(text: str, name: str) -> list[str]:
    return [" ".join(found.split()) for found in re.findall(rf"[\s;{{]{name}\s+([^;]+);", text)]


def _parse_zone(parameters: str) -> RateZone:
    words = parameters.split()
    given = _parse_parameters(words)
    name, _, size = given.get("zone", "").partition(":")
    if not name or "rate" not in given:
        raise ParseError("it is no limit_req_zone")
    key = words[0].strip("\"'")
    return RateZone(name, key, size, given["rate"])


def _parse_use(parameters: str) -> ZoneUse:
    words = parameters.split()
    given = _parse_parameters(words)
    if "zone" not in given:
        raise ParseError("it is no limit_req")
    burst = given.get("burst", "0")
    return ZoneUse(given["zone"], int(burst) if burst.isdecimal() else 0, "nodelay" in words)


def _parse_parameters(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def parse_counts(answer: str) -> LimitCounts:
    head, *lines = answer.splitlines() or [""]
    if head == "none" and not lines:
        return LimitCounts({}, {}, is_logged=False)
    if head != "some":
        raise ParseError(f"the log script printed {answer[:200]!r} instead of counts")
    counts = parse_each(lines, _parse_count)
    refused, delayed = (
        NamedRows((zone, count) for count, kind, zone in counts if kind == wanted)
        for wanted in ("limiting requests", "delaying request")
    )
    return LimitCounts(NamedRows(refused.items(), counts.odd), delayed)


def _parse_count(line: str) -> tuple[int, str, str]:
    found = re.fullmatch(r"\s*(\d+) (limiting requests|delaying request) by zone (.*)", line)
    if found is None:
        raise ParseError("it is no count of a zone")
    return int(found[1]), found[2], found[3]


SUDO = (
    SudoRule("/usr/sbin/nginx", *_SHOWN, _CONFIGURATION, read_only=True),
    SudoRule(_SCRIPT, _LOGS, read_only=True),
)

"""How nginx limits the rate of requests, and how often it did. No I/O.

Formats: ngx_http_limit_req_module; `nginx -T` prints the whole configuration as it is read, and
its error log has a line for each request that was delayed or refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.script import Script
from connectors.sudo import SudoRule

_CONFIGURATION = Setting("nginx.config", "/etc/nginx/nginx.conf", pattern=r"/[\w./-]+")
_LOGS = Setting(
    "nginx.error_logs", "/var/log/nginx/*error.log*", pattern=r"(/[\w.*?-]+)+( (/[\w.*?-]+)+)*"
)

_SHOWN = ("-T", "-q", "-c")

# $1: files of the last day. Each line ends as "  7 limiting requests by zone one".
_SCRIPT = Script(
    "rate-limit",
    "files=$(find $1 -type f -mmin -1440); "
    '[ -n "$files" ] || { echo none; exit 0; }; echo some; '
    "zcat -f $files | grep -oE '(limiting requests|delaying request)(, dry run)?, excess: [0-9.]+,"
    '? by zone "[^"]*"\' | sed -E \'s/(, dry run)?, excess: [0-9.]+,?//; s/"//g\' | sort | '
    "uniq -c; true",
    argument_count=1,
)
_HINTS = (
    Hint(r"nginx: .*not found", "this host has no nginx"),
    Hint(
        r"open\(\) .* failed \(2: No such file",
        "a file of the configuration is not there: compare nginx.config in the inventory",
    ),
    Hint(r"\[emerg\]", "nginx does not take its own configuration: mend it before it restarts"),
    Hint(r"[Pp]ermission denied", "only root may do this: the login's sudo rule is missing"),
)


@dataclass(frozen=True)
class RateZone:
    """key: what is counted, such as $binary_remote_addr. rate: as in 10r/s. size: as in 10m."""

    name: str
    key: str
    size: str
    rate: str


@dataclass(frozen=True)
class ZoneUse:
    """Where a zone is applied. burst: requests more that are let wait, or through at once."""

    zone: str
    burst: int
    nodelay: bool


@dataclass(frozen=True)
class RateLimits:
    zones: tuple[RateZone, ...]
    uses: tuple[ZoneUse, ...]
    status: int
    dry_run: bool


@dataclass(frozen=True)
class LimitCounts:
    """Requests by zone, in logs that were written to in the last 24 hours.

    delayed: nginx tells these one level below the refused ones, and by default not at all.
    """

    refused: Mapping[str, int]
    delayed: Mapping[str, int]


def query_limits() -> Query[RateLimits]:
    shell = Shell(("nginx", *_SHOWN, _CONFIGURATION), root=True, hints=_HINTS)
    return Query(shell, parse_limits)


def query_counts() -> Query[LimitCounts | None]:
    """Query how often it limited; None if no log was written to."""
    shell = Shell((_SCRIPT, _LOGS), root=True, hints=_HINTS, deadline=120)
    return Query(shell, parse_counts)


def parse_limits(answer: str) -> RateLimits:
    if not answer.startswith("# configuration file "):
        raise ParseError(f"nginx answered {answer[:200]!r} instead of its configuration")
    text = re.sub(r"(?m)^\s*#.*$", "", answer)
    statuses = re.findall(r"(?m)[\s;{]limit_req_status\s+(\d+)\s*;", text)
    return RateLimits(
        zones=tuple(_parse_zone(words) for words in _find_directives(text, "limit_req_zone")),
        uses=tuple(_parse_use(words) for words in _find_directives(text, "limit_req")),
        status=int(statuses[-1]) if statuses else 503,
        dry_run=bool(re.search(r"[\s;{]limit_req_dry_run\s+on\s*;", text)),
    )


def _find_directives(text: str, name: str) -> list[list[str]]:
    return [found.split() for found in re.findall(rf"[\s;{{]{name}\s+([^;]+);", text)]


def _parse_zone(words: list[str]) -> RateZone:
    given = _parse_parameters(words)
    name, _, size = given.get("zone", "").partition(":")
    if not name or "rate" not in given:
        raise ParseError(f"nginx has a limit_req_zone {' '.join(words)[:120]!r}")
    key = words[0].strip("\"'")
    return RateZone(name, key, size, given["rate"])


def _parse_use(words: list[str]) -> ZoneUse:
    given = _parse_parameters(words)
    if "zone" not in given:
        raise ParseError(f"nginx has a limit_req {' '.join(words)[:120]!r}")
    burst = given.get("burst", "0")
    return ZoneUse(given["zone"], int(burst) if burst.isdecimal() else 0, "nodelay" in words)


def _parse_parameters(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def parse_counts(answer: str) -> LimitCounts | None:
    head, *lines = answer.splitlines() or [""]
    if head == "none" and not lines:
        return None
    if head != "some":
        raise ParseError(f"the host answered {answer[:200]!r} instead of counts")
    told: dict[str, dict[str, int]] = {"limiting requests": {}, "delaying request": {}}
    for line in lines:
        found = re.fullmatch(r"\s*(\d+) (limiting requests|delaying request) by zone (.*)", line)
        if found is None:
            raise ParseError(f"the host counted {line[:120]!r}")
        told[found[2]][found[3]] = int(found[1])
    return LimitCounts(told["limiting requests"], told["delaying request"])


SUDO = (
    SudoRule("/usr/sbin/nginx", *_SHOWN, _CONFIGURATION, read_only=True),
    SudoRule(_SCRIPT, _LOGS, read_only=True),
)

"""Limits of stick table counters in haproxy.cfg. No I/O.

The runtime API returns counters and not their limits. Those are in conditions such as
`acl conn_rate_abuse sc1_conn_rate gt 42` (HAProxy's configuration manual, section 7.3.3, the
fetches sc_*, src_* and table_*).
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.command import Hint, Query, QueryRunner, Setting, Shell
from connectors.errors import CommandError
from connectors.stick_table import Rate, TableEntry

_CONFIG = Setting("haproxy.config", "/etc/haproxy/haproxy.cfg", pattern=r"/[\w./-]+")

_SECTIONS = (
    "global|defaults|frontend|backend|listen|peers|resolvers|userlist|mailers|program|cache|ring"
    "|http-errors|fcgi-app|log-forward|log-profile|crt-store|traces|acme"
)

# Only these lines leave the host, since the file may contain passwords. Sections begin a line.
_LINES = (
    rf"^[[:space:]]*({_SECTIONS})([[:space:]]|$)"
    r"|^[[:space:]]*(stick-)?table[[:space:]].*expire|track-sc[0-9]|(sc[0-9]*|src|table)_[a-z0-9_]*(gpc|gpt|rate|cnt|cur|kbytes)"
)

# A time of HAProxy's configuration; without a unit, it is in milliseconds.
_TIME = re.compile(r"(\d+)(us|ms|s|m|h|d)?", re.ASCII)
_UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400}

_TRACK = re.compile(r"track-sc(\d+)")
_FETCH = re.compile(r"(?:(sc)(\d*)_|(src)_|.+,(table)_)(?:get_)?([a-z]\w*)(?:\(([^()]*)\))?")
_KEPT = re.compile(
    r"gp[ct]\d?|gpc\d?_rate|(?:conn|sess|http_req|http_err|http_fail|bytes_in|bytes_out|glitch)"
    r"_(?:rate|cnt|cur)|kbytes_(?:in|out)"
)

_HINTS = (
    Hint(r"Permission denied", "the login cannot read HAProxy's configuration"),
    Hint(r"No such file", "set haproxy.config in the inventory to HAProxy's configuration file"),
)

_THINGS = {
    "conn_rate": "connections",
    "conn_cnt": "connections",
    "conn_cur": "open connections",
    "sess_rate": "sessions",
    "sess_cnt": "sessions",
    "http_req_rate": "requests",
    "http_req_cnt": "requests",
    "http_err_rate": "faulty requests",
    "http_err_cnt": "faulty requests",
    "http_fail_rate": "failed answers",
    "http_fail_cnt": "failed answers",
    "bytes_in_rate": "bytes in",
    "bytes_in_cnt": "bytes in",
    "bytes_out_rate": "bytes out",
    "bytes_out_cnt": "bytes out",
}


@dataclass(frozen=True)
class TableLimit:
    """One condition of haproxy.cfg that a high counter meets."""

    table: str
    counter: str
    """The counter's name as the table prints it."""
    threshold: int
    """The lowest value that meets the condition."""
    section: str
    """The section with the condition, such as `backend www`."""

    @property
    def maximum(self) -> int:
        """The highest value that does not meet the condition."""
        return self.threshold - 1


@dataclass(frozen=True)
class TableLimits:
    """All limits of a configuration."""

    limits: tuple[TableLimit, ...] = ()
    error: str = ""
    """Why they could not be read; "" if they could."""
    expiries: Mapping[str, int] = field(default_factory=dict[str, int])
    """How long an entry lasts after its client's last request, in seconds, by table."""

    def list_limits(self, table: str, counter: str) -> tuple[TableLimit, ...]:
        return tuple(
            each for each in self.limits if (each.table, each.counter) == (table, counter)
        )

    def get_mark(self, table: str, counter: str) -> int:
        """Return the value at which a counter marks its client: the lowest limit, or else 1."""
        return min((each.threshold for each in self.list_limits(table, counter)), default=1)

    def list_tables(self) -> frozenset[str]:
        return frozenset(each.table for each in self.limits)

    def list_excesses(self, table: str, entry: TableEntry) -> tuple["Excess", ...]:
        """Return the counters of an entry that are above a limit of its table, each once."""
        lowest: dict[str, Excess] = {}
        for limit in sorted(self.limits, key=lambda each: -each.threshold):
            amount = entry.get_amount(limit.counter)
            if limit.table == table and amount is not None and amount >= limit.threshold:
                lowest[limit.counter] = Excess(limit, format_amount(entry, limit.counter))
        return tuple(lowest[name] for name in sorted(lowest))


@dataclass(frozen=True)
class Excess:
    """A counter above its limit."""

    limit: TableLimit
    amount: str
    """The counter's value, such as `43 connections in 100 s`."""

    def __str__(self) -> str:
        return f"{self.amount} at {self.limit.table} (limit {_format_number(self.limit.maximum)})"


def read_limits(run_query: QueryRunner, host: str) -> TableLimits:
    """Read the limits of a host; `error` says why if the login cannot read the configuration."""
    try:
        return run_query(host, query_limits())
    except CommandError as failed:
        return TableLimits(error=str(failed))


def query_limits() -> Query[TableLimits]:
    """Query the limits and expiries in HAProxy's configuration, a file or a directory of files.

    grep exits with status 1 if there is none.
    """
    shell = Shell(("grep", "-rhE", "-e", _LINES, "--", _CONFIG), hints=_HINTS)
    return Query(shell, parse_config, statuses=frozenset({0, 1}))


def parse_config(config: str) -> TableLimits:
    return TableLimits(parse_limits(config), expiries=dict(_parse_expiries(config)))


def _parse_expiries(config: str) -> Iterator[tuple[str, int]]:
    """Yield each table with the seconds of its `expire`, if it has one that can be read.

    A `table` of a section `peers` is named peers/table.
    """
    for line in _parse_sections(config):
        kind, *rest = line.words
        if kind in ("stick-table", "table") and "expire" in rest[:-1]:
            name = line.section if kind == "stick-table" else f"{line.section}/{rest[0]}"
            if time := _TIME.fullmatch(rest[rest.index("expire") + 1]):
                yield name, int(int(time[1]) * _UNIT_SECONDS[time[2] or "ms"])


def format_amount(entry: TableEntry, counter: str) -> str:
    """Return a counter's value as text, such as `43 connections in 100 s`."""
    thing = _THINGS.get(counter, counter)
    rate = entry.rates.get(counter)
    if isinstance(rate, Rate):
        return f"{_format_number(rate.amount)} {thing} in {_format_seconds(rate.period_ms)}"
    return f"{_format_number(entry.counters.get(counter, 0))} {thing}"


def _format_number(number: int) -> str:
    return f"{number:,}"


def _format_seconds(period_ms: int) -> str:
    return f"{period_ms / 1000:g} s"


def parse_limits(config: str) -> tuple[TableLimit, ...]:
    """Parse a configuration, or only its relevant lines, and return its limits in order."""
    lines = list(_parse_sections(config))
    tracked = [each for line in lines for each in _parse_tracks(line)]
    found = (limit for line in lines for limit in _parse_line_limits(line, tracked))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class _Line:
    kind: str
    section: str
    words: Sequence[str]

    @property
    def own_table(self) -> str:
        """The table of rules that name none; rules of `defaults` have no table."""
        return "" if self.kind == "defaults" else self.section


@dataclass(frozen=True)
class _Track:
    """A rule that counts in *table* and tracks as sc0, sc1, …"""

    section: str
    number: str
    table: str


def _parse_sections(config: str) -> Iterator[_Line]:
    kind = section = ""
    for text in config.splitlines():
        words = _split_words(text)
        if words and re.fullmatch(_SECTIONS, words[0]):
            kind, section = words[0], words[1] if len(words) > 1 else ""
        elif words and kind:
            yield _Line(kind, section, words)


def _split_words(line: str) -> list[str]:
    """Split as HAProxy does: blanks, quotes, backslashes, and comments that begin with #."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote without an end
        return line.split()


def _parse_tracks(line: _Line) -> Iterator[_Track]:
    for place, word in enumerate(line.words):
        rule = _TRACK.fullmatch(word)
        if rule:
            rest = list(_take_until_condition(line.words[place + 1 :]))
            named = rest[rest.index("table") + 1 :] if "table" in rest else []
            table = (named or [line.own_table])[0]
            yield _Track(line.section, rule[1], table)


def _take_until_condition(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word in ("if", "unless"):
            return
        yield word


def _parse_line_limits(line: _Line, tracked: Iterable[_Track]) -> Iterator[TableLimit]:
    for place, word in enumerate(line.words):
        fetch = _FETCH.fullmatch(word)
        reached = _parse_threshold(line.words[place + 1 :]) if fetch else None
        if fetch is None or reached is None or not _KEPT.fullmatch(fetch[5]):
            continue
        parsed = _parse_fetch(fetch)
        if parsed is None:
            continue
        counter, number, table = parsed
        counter, reached = _convert_to_bytes(counter, reached)
        for name in filter(None, _list_fetch_tables(line, number, table, tracked)):
            yield TableLimit(name, counter, reached, f"{line.kind} {line.section}".strip())


def _parse_fetch(fetch: re.Match[str]) -> tuple[str, str, str] | None:
    """Return the counter as tables print it, the number of the tracking rule, and the table.

    The arguments are `sc_get_gpc(index,number,table)`, `sc_conn_rate(number,table)`,
    `sc0_conn_rate(table)` and `src_conn_rate(table)`, where the table may be left out.
    """
    by_rule, number, _, _, counter, parameters = fetch.groups()
    arguments = [part.strip() for part in (parameters or "").split(",")]
    array = re.fullmatch(r"(gp[ct])(_rate)?", counter)
    if array:
        index = arguments.pop(0)
        if not index.isdecimal():
            return None
        counter = f"{array[1]}{int(index)}{array[2] or ''}"
    if by_rule and not number:
        number = arguments.pop(0) if arguments else ""
        if not number.isdecimal():
            return None
    return counter, number or "", arguments[0] if arguments else ""


def _parse_threshold(words: Sequence[str]) -> int | None:
    """Return the lowest value that meets the condition; None if 0 meets it, or if it is unknown.

    Flags such as `-m int` follow a fetch, then `gt 42`, `ge 43`, `eq 1`, or `43:`.
    """
    rest = list(words)
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "-m" else 1]
    condition = " ".join(rest[:2])
    found = re.match(r"(gt|ge|eq) (\d+)$|()(\d+):", condition, re.ASCII)
    if found is None:
        return None
    reached = int(found[2] or found[4]) + (found[1] == "gt")
    return reached if reached > 0 else None


def _convert_to_bytes(counter: str, reached: int) -> tuple[str, int]:
    kilobytes = re.fullmatch(r"kbytes_(in|out)", counter)
    return (f"bytes_{kilobytes[1]}_cnt", reached * 1024) if kilobytes else (counter, reached)


def _list_fetch_tables(
    line: _Line, number: str, table: str, tracked: Iterable[_Track]
) -> Iterable[str]:
    """Return the tables that a fetch reads.

    A backend can read a counter that a frontend tracks.
    """
    if table:
        return [table]
    if not number:
        return [line.own_table]
    rules = [rule for rule in tracked if rule.number == number]
    own = [rule for rule in rules if rule.section == line.section]
    return dict.fromkeys(rule.table for rule in own or rules)

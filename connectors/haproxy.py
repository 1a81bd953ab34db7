"""HAProxy's runtime API: read and change stick tables. No I/O.

Commands go through `socat` to a Unix socket on the host, one command for each connection. Give
the login a socket of its own with only the rights it needs, in the `global` section:

    stats socket /run/haproxy/keyturn.sock mode 660 group keyturn level operator

A host that checks signatures lets no login open such a socket: there a script of root reads.

HAProxy returns errors as text, and socat exits with status 0 all the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network

from connectors.command import Hint, Query, QueryRunner, Setting, Shell
from connectors.errors import CommandError, ParseError
from connectors.haproxy_peers import Peer, parse_peers
from connectors.script import load_script
from connectors.stick_table import (
    NEEDS_OPERATOR,
    NO_ANSWER,
    Key,
    StickTable,
    TableEntry,
    TableHead,
    format_key,
    parse_entry,
    parse_heads,
    parse_table,
)
from connectors.sudo import SudoRule
from connectors.visible_text import quote_text

# Without UNIX-CONNECT socat would open any file, and write to it. socat splits addresses at
# commas, exclamation marks and colons.
_SOCKET = Setting(
    "haproxy.socket", "/run/haproxy/admin.sock", prefix="UNIX-CONNECT:", pattern=r"/[\w./-]+"
)

# Addresses and networks, with commas between them, such as monitoring and proxies of one's own.
_NEVER_MARK = Setting("haproxy.never_mark", "", pattern=r"[0-9A-Fa-f.:/,]*")

# Seconds that socat waits for the rest of an answer after it has sent everything.
_PATIENCE = "-t5"

# To HAProxy a semicolon is a newline, a backslash is an escape, and `<<` begins a payload. It has
# no quotes.
_WORD = re.compile(r"(?:(?![;\\<])[!-~])+", re.ASCII)

_HINTS = (
    Hint(
        r"socat\[\d+\] E connect\(.*Permission denied",
        "the login may not open HAProxy's socket: give it one of its own, in haproxy.cfg "
        "`stats socket /run/haproxy/keyturn.sock mode 660 group keyturn level operator`, "
        "and name it as haproxy.socket in the inventory",
    ),
    Hint(
        r"socat\[\d+\] E connect\(.*No such file",
        "HAProxy has no such socket: compare haproxy.socket in the inventory with "
        "`stats socket` in haproxy.cfg",
    ),
    Hint(
        r"socat\[\d+\] E connect\(.*Connection refused",
        "nothing listens at HAProxy's socket: HAProxy is stopped",
    ),
    Hint(r"failed to run command .socat|socat.*not found", "install socat on the host"),
    Hint(
        r"contents not dumped due to insufficient privileges",
        NEEDS_OPERATOR,
    ),
    Hint(
        r"Permission denied",
        "this socket is read-only: set haproxy.socket to a socket with `level operator`",
    ),
    Hint(r"No such table", "HAProxy has no such table"),
    Hint(r"Invalid key", "HAProxy does not accept this as a key of the table"),
    Hint(
        r"Entry currently in use",
        "a connection of this client is open, and HAProxy keeps its entry until it ends: "
        "try again then",
    ),
    Hint(r"Data type not stored|Unknown data type", "the table has no such counter"),
    Hint(r"Unknown command", "this is not the runtime socket of a supported HAProxy"),
    Hint(r"\A\Z", NO_ANSWER),
)

# HAProxy answers a successful change with one empty line. Any text is an error, and so is no
# answer at all. The answer of a query begins with "#" or with an entry's address.
_REFUSED_CHANGE = r"\S|\A\Z"
_REFUSED_QUERY = r"(?m)^(?!#|0x)\s*\S|^# contents not dumped|\A\Z"
_REFUSED_PEERS = r"(?m)^(?!0x| )\S|\A\Z"
_NOT_KEPT = re.compile(r"Unknown data type|Data type not stored in this table")

# The highest value of a filter: no entry is above it, so only the head is returned.
_MAX_VALUE = "9223372036854775807"

_SHOW = load_script("haproxy-show", argument_count=1)
SUDO = (SudoRule(_SHOW, _SOCKET, read_only=True, enrolled=True),)


class UnsafeWordError(ValueError):
    """A word has characters with a special meaning to HAProxy."""


class MissingCounterError(ValueError):
    """The table has no such counter."""


def query_tables() -> Query[tuple[TableHead, ...]]:
    return Query(_make_command("show", "table"), parse_heads)


def query_table_head(name: str) -> Query[TableHead]:
    """Query the head of one table. Raises CommandError, naming the others, if it is missing."""
    return Query(
        _make_command("show", "table"),
        lambda answer: find_table_head(name, parse_heads(answer)),
    )


def find_table_head(name: str, heads: Sequence[TableHead]) -> TableHead:
    """Return the head with this name, or raise CommandError, naming the others."""
    found = next((head for head in heads if head.name == name), None)
    if found is None:
        others = ", ".join(sorted(head.name for head in heads)) or "none"
        raise CommandError(f"HAProxy has no table {name}; its tables: {others}")
    return found


def query_table(name: str) -> Query[StickTable]:
    """Query a whole table: about 60 bytes for each entry."""
    return Query(_make_command("show", "table", name), parse_table)


def query_entry(head: TableHead, key: Key) -> Query[TableEntry | None]:
    """Query one entry. Raises InvalidKeyError for a key that this table cannot hold."""
    fit = format_key(head, key)
    return Query(
        _make_command("show", "table", head.name, "key", fit), partial(parse_entry, key=fit)
    )


def query_entries_at_least(name: str, data_type: str, value: int) -> Query[StickTable]:
    """Query the entries whose counter has at least this value; HAProxy filters them.

    data_type: the counter in HAProxy's spelling, see `read_counter_names`.
    """
    return Query(
        _make_command("show", "table", name, f"data.{data_type}", "ge", str(value)),
        parse_table,
    )


def read_entries_at_least(
    run_query: QueryRunner, host: str, name: str, counter: str, least: int
) -> tuple[TableEntry, ...]:
    """Return the entries whose counter, named as `show table` prints it, is at least *least*.

    HAProxy filters them; where it has no name for the counter, all entries are read.
    Raises MissingCounterError.
    """
    spelling = read_counter_names(run_query, host, name, [counter]).get(counter)
    if spelling:
        return run_query(host, query_entries_at_least(name, spelling, least)).entries
    entries = run_query(host, query_table(name)).entries
    if not entries and not _has_array(run_query, host, name, counter):
        raise MissingCounterError(f"{name} has no {counter} to mark abusers with")
    if entries and entries[0].get_amount(counter) is None:
        kept = ", ".join([*entries[0].counters, *entries[0].rates]) or "no counters"
        raise MissingCounterError(f"{name} has no {counter} to mark abusers with: it has {kept}")
    return tuple(entry for entry in entries if (entry.get_amount(counter) or 0) >= least)


def query_protected_networks() -> Query[tuple[IPv4Network | IPv6Network, ...]]:
    """Read the networks of the inventory's haproxy.never_mark. Raises ParseError."""
    return Query(_NEVER_MARK, _parse_networks)


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(map(ip_network, filter(None, text.split(","))))
    except ValueError as error:
        raise ParseError(f"the inventory sets haproxy.never_mark to {text}: {error}") from None


def query_peers() -> Query[tuple[Peer, ...]]:
    """Query the peers that have copies of tables; there may be none."""
    return Query(_make_command("show", "peers", refused=_REFUSED_PEERS), parse_peers)


def query_has_counter(name: str, data_type: str) -> Query[bool]:
    """Query whether the table has this counter, in HAProxy's spelling."""
    words = ("show", "table", name, f"data.{data_type}", "gt", _MAX_VALUE)
    refused = rf"(?m)^(?!#|0x|.*(?:{_NOT_KEPT.pattern}))\s*\S|^# contents not dumped|\A\Z"
    return Query(_make_command(*words, refused=refused), _parse_has_counter)


def read_counter_names(
    run_query: QueryRunner, host: str, table: str, counters: Iterable[str]
) -> Mapping[str, str]:
    """Return the spelling of each counter for setting and filtering; others are left out.

    The printed gpc0 may be a counter of its own or the first of an array. Only HAProxy 3 can name
    the counters of an array; older versions reach the first one by the array's name.
    """
    found = {name: _read_counter_name(run_query, host, table, name) for name in counters}
    return {name: spelling for name, spelling in found.items() if spelling}


def _read_counter_name(run_query: QueryRunner, host: str, table: str, name: str) -> str | None:
    number = re.fullmatch(r"(gp[ct])(\d+)", name)
    if number is None:
        return name
    array, index = number.groups()
    tries = [f"{array}[{index}]", *([array] if index == "0" else [])]
    if name in ("gpc0", "gpc1", "gpt0"):
        tries.insert(0, name)
    return next((word for word in tries if run_query(host, query_has_counter(table, word))), None)


def _has_array(run_query: QueryRunner, host: str, table: str, name: str) -> bool:
    """Return whether a counter may be in an array that this HAProxy names only as a whole."""
    found = re.fullmatch(r"(gp[ct])[1-9]\d*", name)
    return found is not None and run_query(host, query_has_counter(table, found[1]))


def list_restorable_counters(entry: TableEntry) -> Mapping[str, int]:
    """Return the counters of past traffic, which can be restored.

    Rates are excluded, though HAProxy can set them: they measure current traffic, and an old value
    would claim traffic that does not exist. So is conn_cur, the number of open connections.
    """
    return {name: value for name, value in entry.counters.items() if value and name != "conn_cur"}


def clear_entry(head: TableHead, key: Key) -> Shell:
    """Delete one entry. The key is required: without one HAProxy would empty the table."""
    return _make_change_command("clear", "table", head.name, "key", format_key(head, key))


def empty_table(head: TableHead) -> Shell:
    """Delete every entry, except those that an open connection uses: HAProxy skips them."""
    return _make_change_command("clear", "table", head.name)


def restore_entry(head: TableHead, entry: TableEntry, spelling: Mapping[str, str]) -> Shell:
    """Restore an entry with the counters that can be set. Its expiry and its rates start over.

    spelling: see `read_counter_names`; counters without a spelling are not restored.
    """
    counters = [
        word
        for name, value in list_restorable_counters(entry).items()
        if name in spelling
        for word in (f"data.{spelling[name]}", str(value))
    ]
    return _make_change_command(
        "set", "table", head.name, "key", format_key(head, entry.key), *counters
    )


def mark_entry(head: TableHead, key: Key, data_type: str, value: int) -> Shell:
    """Set one counter of an entry, which is created if it does not exist."""
    words = ("key", format_key(head, key), f"data.{data_type}", str(value))
    return _make_change_command("set", "table", head.name, *words)


def _make_change_command(*words: str) -> Shell:
    return _make_command(*words, refused=_REFUSED_CHANGE)


def _make_command(*words: str, refused: str = _REFUSED_QUERY) -> Shell:
    return Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_format_line(*words),
        error_pattern=refused,
        hints=_HINTS,
        enrolled_argv=(_SHOW, _SOCKET) if words[0] == "show" else (),
    )


def _format_line(*words: str) -> str:
    """Return one command. HAProxy silently drops a line without a newline at its end."""
    for word in words:
        if not _WORD.fullmatch(word):
            raise UnsafeWordError(
                f"{quote_text(word)} has characters with a special meaning to HAProxy"
            )
    return " ".join(words) + "\n"


def _parse_has_counter(answer: str) -> bool:
    if _NOT_KEPT.search(answer):
        return False
    if not answer.startswith("# table: "):
        raise ParseError(f"HAProxy returned {answer[:200]!r} instead of a table")
    return True

"""What can be said to HAProxy's runtime API about its stick tables. No I/O.

It is reached through `socat` at a Unix socket of the host, one command for each connection. Grant
the login a socket of its own that can do no more than is needed here, in the `global` section:

    stats socket /run/haproxy/keyturn.sock mode 660 group keyturn level operator

HAProxy answers errors as text, and socat ends with status 0 all the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from connectors.command import Hint, Query, QueryRunner, Setting, Shell, quote_text
from connectors.errors import CommandError, ParseError
from connectors.haproxy_peers import Peer, parse_peers
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

# Without UNIX-CONNECT socat would open any file, and write to it. It splits addresses at commas,
# exclamation marks and colons.
_SOCKET = Setting(
    "haproxy.socket", "/run/haproxy/admin.sock", prefix="UNIX-CONNECT:", pattern=r"/[\w./-]+"
)

# socat waits this many seconds for the rest of an answer once it has said all.
_PATIENCE = "-t5"

# HAProxy acts on a semicolon as on a newline, takes a backslash for an escape and `<<` for the
# beginning of a payload; it knows no quotes.
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
        "nobody listens at HAProxy's socket: HAProxy is stopped",
    ),
    Hint(r"failed to run command .socat|socat.*not found", "install socat on the host"),
    Hint(
        r"contents not dumped due to insufficient privileges",
        NEEDS_OPERATOR,
    ),
    Hint(
        r"Permission denied",
        "this socket may only look: set haproxy.socket to a socket with `level operator`",
    ),
    Hint(r"No such table", "HAProxy has no such table"),
    Hint(r"Invalid key", "HAProxy does not take this for a key of the table"),
    Hint(
        r"Entry currently in use",
        "a connection of this client is open, and HAProxy keeps its entry until it ends: "
        "ask again then",
    ),
    Hint(r"Data type not stored|Unknown data type", "the table keeps no such counter"),
    Hint(r"Unknown command", "this is not the runtime socket of a HAProxy that we know"),
    Hint(r"\A\Z", NO_ANSWER),
)

# A change that was done is answered with one empty line: words mean that it was not, and so does
# no answer at all. What was asked for begins with "#" or with an entry's address.
_REFUSED_CHANGE = r"\S|\A\Z"
_REFUSED_QUERY = r"(?m)^(?!#|0x)\s*\S|^# contents not dumped|\A\Z"
_REFUSED_PEERS = r"(?m)^(?!0x| )\S|\A\Z"
_NOT_KEPT = re.compile(r"Unknown data type|Data type not stored in this table")

# The highest value that a filter takes: no entry is beyond it, so only the head is answered.
_NOBODY = "9223372036854775807"


class UnsafeWordError(ValueError):
    """A word holds what HAProxy would not take for a part of it."""


class MissingCounterError(ValueError):
    """The table keeps no such counter."""


def query_tables() -> Query[tuple[TableHead, ...]]:
    return Query(_make_query_command("show", "table"), parse_heads)


def query_table_head(name: str) -> Query[TableHead]:
    """Query what one table holds. Raises CommandError, naming the others, if there is none."""
    return Query(
        _make_query_command("show", "table"),
        lambda answer: find_table_head(name, parse_heads(answer)),
    )


def find_table_head(name: str, heads: Sequence[TableHead]) -> TableHead:
    """Return the head with this name, or raise CommandError naming those that there are."""
    found = next((head for head in heads if head.name == name), None)
    if found is None:
        others = ", ".join(sorted(head.name for head in heads)) or "none"
        raise CommandError(f"HAProxy has no table {name}; its tables: {others}")
    return found


def query_table(name: str) -> Query[StickTable]:
    """Query a whole table: about 60 bytes for each entry."""
    return Query(_make_query_command("show", "table", name), parse_table)


def query_entry(head: TableHead, key: Key) -> Query[TableEntry | None]:
    """Query one entry. Raises InvalidKeyError for what this table cannot hold."""
    fit = format_key(head, key)
    return Query(
        _make_query_command("show", "table", head.name, "key", fit), partial(parse_entry, key=fit)
    )


def query_entries_at_least(name: str, data_type: str, value: int) -> Query[StickTable]:
    """Query the entries whose counter is this high; HAProxy picks them.

    data_type: as HAProxy wants it spelled, see `spelled`.
    """
    return Query(
        _make_query_command("show", "table", name, f"data.{data_type}", "ge", str(value)),
        parse_table,
    )


def read_entries_at_least(
    run_query: QueryRunner, host: str, name: str, counter: str, least: int
) -> tuple[TableEntry, ...]:
    """Find the entries whose counter, named as `show table` prints it, is this high.

    HAProxy picks them; where it has no word for the counter, all are read.
    Raises MissingCounterError.
    """
    spelling = read_counter_names(run_query, host, name, [counter]).get(counter)
    if spelling:
        return run_query(host, query_entries_at_least(name, spelling, least)).entries
    entries = run_query(host, query_table(name)).entries
    if not entries and not _has_array(run_query, host, name, counter):
        raise MissingCounterError(f"{name} keeps no {counter} to mark abusers with")
    if entries and entries[0].get_amount(counter) is None:
        kept = ", ".join([*entries[0].counters, *entries[0].rates]) or "no counters"
        raise MissingCounterError(
            f"{name} keeps no {counter} to mark abusers with: it keeps {kept}"
        )
    return tuple(entry for entry in entries if (entry.get_amount(counter) or 0) >= least)


def query_peers() -> Query[tuple[Peer, ...]]:
    """Query who else has a copy of which table; nobody is an answer."""
    shell = Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_format_line("show", "peers"),
        error_pattern=_REFUSED_PEERS,
        hints=_HINTS,
    )
    return Query(shell, parse_peers)


def query_has_counter(name: str, data_type: str) -> Query[bool]:
    """Query whether the table keeps such a counter and HAProxy knows it by this spelling."""
    shell = Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_format_line("show", "table", name, f"data.{data_type}", "gt", _NOBODY),
        error_pattern=rf"(?m)^(?!#|0x|.*(?:{_NOT_KEPT.pattern}))\s*\S|^# contents not dumped|\A\Z",
        hints=_HINTS,
    )
    return Query(shell, _parse_has_counter)


def read_counter_names(
    run_query: QueryRunner, host: str, table: str, counters: Iterable[str]
) -> Mapping[str, str]:
    """Find how each counter is spelled when it is set or filtered by; leave out what cannot be.

    The printed gpc0 may be a counter of its own or the first of an array. Those of an array can
    be named on HAProxy 3 only; older ones reach the first by the array's name alone.
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
    """Tell whether a counter may be in an array that this HAProxy names only as a whole."""
    found = re.fullmatch(r"(gp[ct])[1-9]\d*", name)
    return found is not None and run_query(host, query_has_counter(table, found[1]))


def list_restorable_counters(entry: TableEntry) -> Mapping[str, int]:
    """Return the counters that say something about the past and that can be set.

    Rates are left out, though HAProxy would take them: they tell of traffic that is going on, and
    setting an old one would claim traffic that there was none of. So is conn_cur, the number of
    connections that are open now.
    """
    return {name: value for name, value in entry.counters.items() if value and name != "conn_cur"}


def clear_entry(head: TableHead, key: Key) -> Shell:
    """Forget one entry. Never without a key: that would empty the table."""
    return _make_change_command("clear", "table", head.name, "key", format_key(head, key))


def empty_table(head: TableHead) -> Shell:
    """Forget every entry but those that an open connection holds: HAProxy passes them over."""
    return _make_change_command("clear", "table", head.name)


def restore_entry(head: TableHead, entry: TableEntry, spelling: Mapping[str, str]) -> Shell:
    """Put an entry back with its settable counters. Its expiry and its rates begin anew.

    spelling: see `spelled`; counters that it leaves out are not restored.
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
    """Set one counter of an entry, which is made if there is none."""
    words = ("key", format_key(head, key), f"data.{data_type}", str(value))
    return _make_change_command("set", "table", head.name, *words)


def _make_query_command(*words: str) -> Shell:
    return Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_format_line(*words),
        error_pattern=_REFUSED_QUERY,
        hints=_HINTS,
    )


def _make_change_command(*words: str) -> Shell:
    return Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_format_line(*words),
        error_pattern=_REFUSED_CHANGE,
        hints=_HINTS,
    )


def _format_line(*words: str) -> str:
    """Return one command. HAProxy silently drops a line that does not end with a newline."""
    for word in words:
        if not _WORD.fullmatch(word):
            raise UnsafeWordError(
                f"{quote_text(word)} cannot be said to HAProxy, which may act on parts of it"
            )
    return " ".join(words) + "\n"


def _parse_has_counter(answer: str) -> bool:
    if _NOT_KEPT.search(answer):
        return False
    if not answer.startswith("# table: "):
        raise ParseError(f"HAProxy answered {answer[:200]!r} instead of a table")
    return True

"""What can be said to HAProxy's runtime API about its stick tables. No I/O.

It is reached through `socat` at a Unix socket of the host, one command for each connection. Grant
the login a socket of its own that can do no more than is needed here, in the `global` section:

    stats socket /run/haproxy/keyturn.sock mode 660 group keyturn level operator

HAProxy answers errors as text, and socat ends with status 0 all the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from connectors.command import Ask, Hint, Query, Setting, Shell, quote_text
from connectors.haproxy_peers import Peer, parse_peers
from connectors.stick_table import (
    NEEDS_OPERATOR,
    NO_ANSWER,
    Entry,
    Key,
    StickTable,
    TableHead,
    fit_key,
    parse_entry,
    parse_heads,
    parse_table,
)
from connectors.trouble import CommandFailed, NotUnderstood

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


class Unsayable(ValueError):
    """A word holds what HAProxy would not take for a part of it."""


class NotKept(ValueError):
    """The table keeps no such counter."""


def tables() -> Query[tuple[TableHead, ...]]:
    return Query(_asked("show", "table"), parse_heads)


def head(name: str) -> Query[TableHead]:
    """Ask what one table holds. Raises CommandFailed, naming the others, if there is none."""
    return Query(_asked("show", "table"), lambda answer: pick(name, parse_heads(answer)))


def pick(name: str, heads: Sequence[TableHead]) -> TableHead:
    """Return the head with this name, or raise CommandFailed naming those that there are."""
    found = next((head for head in heads if head.name == name), None)
    if found is None:
        others = ", ".join(sorted(head.name for head in heads)) or "none"
        raise CommandFailed(f"HAProxy has no table {name}; its tables: {others}")
    return found


def table(name: str) -> Query[StickTable]:
    """Ask for a whole table: about 60 bytes for each entry."""
    return Query(_asked("show", "table", name), parse_table)


def entry(head: TableHead, key: Key) -> Query[Entry | None]:
    """Ask for one entry. Raises UnfitKey for what this table cannot hold."""
    fit = fit_key(head, key)
    return Query(_asked("show", "table", head.name, "key", fit), partial(parse_entry, key=fit))


def at_least(name: str, data_type: str, value: int) -> Query[StickTable]:
    """Ask for the entries whose counter is this high; HAProxy picks them.

    data_type: as HAProxy wants it spelled, see `spelled`.
    """
    return Query(_asked("show", "table", name, f"data.{data_type}", "ge", str(value)), parse_table)


def reaching(ask: Ask, host: str, name: str, counter: str, least: int) -> tuple[Entry, ...]:
    """Find the entries whose counter, named as `show table` prints it, is this high.

    HAProxy picks them; where it has no word for the counter, all are read. Raises NotKept.
    """
    spelling = spelled(ask, host, name, [counter]).get(counter)
    if spelling:
        return ask(host, at_least(name, spelling, least)).entries
    entries = ask(host, table(name)).entries
    if not entries and not _keeps_array(ask, host, name, counter):
        raise NotKept(f"{name} keeps no {counter} to mark abusers with")
    if entries and entries[0].amount(counter) is None:
        kept = ", ".join([*entries[0].counters, *entries[0].rates]) or "no counters"
        raise NotKept(f"{name} keeps no {counter} to mark abusers with: it keeps {kept}")
    return tuple(entry for entry in entries if (entry.amount(counter) or 0) >= least)


def peers() -> Query[tuple[Peer, ...]]:
    """Ask who else has a copy of which table; nobody is an answer."""
    shell = Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_line("show", "peers"),
        trouble=_REFUSED_PEERS,
        hints=_HINTS,
    )
    return Query(shell, parse_peers)


def keeps(name: str, data_type: str) -> Query[bool]:
    """Ask whether the table keeps such a counter and HAProxy knows it by this spelling."""
    shell = Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_line("show", "table", name, f"data.{data_type}", "gt", _NOBODY),
        trouble=rf"(?m)^(?!#|0x|.*(?:{_NOT_KEPT.pattern}))\s*\S|^# contents not dumped|\A\Z",
        hints=_HINTS,
    )
    return Query(shell, _is_kept)


def spelled(ask: Ask, host: str, table: str, counters: Iterable[str]) -> Mapping[str, str]:
    """Find how each counter is spelled when it is set or filtered by; leave out what cannot be.

    The printed gpc0 may be a counter of its own or the first of an array. Those of an array can
    be named on HAProxy 3 only; older ones reach the first by the array's name alone.
    """
    found = {name: _spelling(ask, host, table, name) for name in counters}
    return {name: spelling for name, spelling in found.items() if spelling}


def _spelling(ask: Ask, host: str, table: str, name: str) -> str | None:
    number = re.fullmatch(r"(gp[ct])(\d+)", name)
    if number is None:
        return name
    array, index = number.groups()
    tries = [f"{array}[{index}]", *([array] if index == "0" else [])]
    if name in ("gpc0", "gpc1", "gpt0"):
        tries.insert(0, name)
    return next((word for word in tries if ask(host, keeps(table, word))), None)


def _keeps_array(ask: Ask, host: str, table: str, name: str) -> bool:
    """Tell whether a counter may be in an array that this HAProxy names only as a whole."""
    found = re.fullmatch(r"(gp[ct])[1-9]\d*", name)
    return found is not None and ask(host, keeps(table, found[1]))


def settable(entry: Entry) -> Mapping[str, int]:
    """Return the counters that say something about the past and that can be set.

    Rates are left out, though HAProxy would take them: they tell of traffic that is going on, and
    setting an old one would claim traffic that there was none of. So is conn_cur, the number of
    connections that are open now.
    """
    return {name: value for name, value in entry.counters.items() if value and name != "conn_cur"}


def clear_entry(head: TableHead, key: Key) -> Shell:
    """Forget one entry. Never without a key: that would empty the table."""
    return _told("clear", "table", head.name, "key", fit_key(head, key))


def empty(head: TableHead) -> Shell:
    """Forget every entry but those that an open connection holds: HAProxy passes them over."""
    return _told("clear", "table", head.name)


def restore_entry(head: TableHead, entry: Entry, spelling: Mapping[str, str]) -> Shell:
    """Put an entry back with its settable counters. Its expiry and its rates begin anew.

    spelling: see `spelled`; counters that it leaves out are not restored.
    """
    counters = [
        word
        for name, value in settable(entry).items()
        if name in spelling
        for word in (f"data.{spelling[name]}", str(value))
    ]
    return _told("set", "table", head.name, "key", fit_key(head, entry.key), *counters)


def mark_entry(head: TableHead, key: Key, data_type: str, value: int) -> Shell:
    """Set one counter of an entry, which is made if there is none."""
    words = ("key", fit_key(head, key), f"data.{data_type}", str(value))
    return _told("set", "table", head.name, *words)


def _asked(*words: str) -> Shell:
    return Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_line(*words),
        trouble=_REFUSED_QUERY,
        hints=_HINTS,
    )


def _told(*words: str) -> Shell:
    return Shell(
        ("socat", _PATIENCE, "stdio", _SOCKET),
        stdin=_line(*words),
        trouble=_REFUSED_CHANGE,
        hints=_HINTS,
    )


def _line(*words: str) -> str:
    """Return one command. HAProxy silently drops a line that does not end with a newline."""
    for word in words:
        if not _WORD.fullmatch(word):
            raise Unsayable(
                f"{quote_text(word)} cannot be said to HAProxy, which may act on parts of it"
            )
    return " ".join(words) + "\n"


def _is_kept(answer: str) -> bool:
    if _NOT_KEPT.search(answer):
        return False
    if not answer.startswith("# table: "):
        raise NotUnderstood(f"HAProxy answered {answer[:200]!r} instead of a table")
    return True

"""Keyturn's own list of addresses that csf lets in, and how it is replaced safely. No I/O.

The list is the file `keyturn.allow` in /etc/csf. Keyturn never writes csf.allow, where people make
entries by hand; one of them puts the line `Include /etc/csf/keyturn.allow` there.

The file is replaced all at once: written beside it, compared with its SHA-256, brought to the
disk, renamed. A list is on probation at first: unless it is kept in time, over a connection that
was opened after it was loaded, the host by itself puts the list and the rules of before back.
"""

import hashlib
import re
from collections.abc import Collection
from ipaddress import ip_address

from connectors.command import Hint, Setting, Shell
from connectors.errors import ParseError
from connectors.public_addresses import Address
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

# csf skips comments, and every line with the word for including other files in it.
_HEADER = "# Kept by Keyturn, which replaces all of it: entries of your own belong into csf.allow."
_ENTRY = re.compile(r"([0-9a-f.:]+) # [a-z]+")

_DIRECTORY = Setting("csf.directory", "/etc/csf", pattern=r"/[\w./-]+")
_PROGRAM = Setting("csf.program", "/usr/sbin/csf", pattern=r"/[\w./-]+")
# Seconds: enough for loading the list, and for Keyturn to come back.
_PROBATION = Setting("csf.probation", "180", pattern=r"[1-9][0-9]{0,3}")
# Seconds. It takes one or two; with long block lists many more.
_LOADING = 120

_HINTS = (
    Hint(r"can't cd to|cd: .*No such file", "csf's files are not where csf.directory says"),
    Hint(r"(?i)have been \S*disabled", "csf is disabled: enable it with csf -e first"),
    Hint(r"csf is being restarted", "csf is just being restarted: ask again in a minute"),
    Hint(
        r"nothing is on probation",
        "the time to keep the new list ran out, and the host has put the one of before back: see "
        "what took so long, or whether the firewall kept us out, and ask again",
    ),
    Hint(r"on probation already", "a list is on probation already: ask again in some minutes"),
    Hint(r"did NOT match", "it is not the list that was approved, and was not used: ask again"),
)
# csf ends with 0 after these, having loaded less than it should.
_TROUBLE = r"(?m)^\*?Error|^ip6?tables[^\n]*: |^ipset v[^\n]*: "


_WATCHED = (
    "watched() { pid=$(cat keyturn.watch 2>/dev/null) && "
    'grep -qs keyturn-watch "/proc/$pid/cmdline"; };'
)
# Whoever changes the list or its probation holds the lock; csf must not inherit it.
_ALONE = "exec 9>keyturn.lock; flock 9;"
_ON_PROBATION = "watched || { echo nothing is on probation >&2; exit 1; };"

# Arguments: directory, seconds, program, its option. The rules put back are those that let Keyturn
# in before, whatever it is that csf loads now. It is found by its name among the processes.
_WATCH = Script(
    "keyturn-watch",
    'sleep "$2"; cd -- "$1" || exit; '
    f"{_ALONE} "
    '[ "$(cat keyturn.watch)" = "$$" ] || exit; '
    "cp keyturn.before keyturn.back && sync keyturn.back && mv keyturn.back keyturn.allow; "
    'rm keyturn.watch; sync .; "$3" "$4" 9>&-; iptables-restore <keyturn.rules; '
    "[ ! -s keyturn.rules6 ] || ip6tables-restore <keyturn.rules6; "
    "logger -t keyturn 'nobody kept the new list: the list and the rules of before are back'",
)
# Arguments: directory, seconds, program, its option, the script above, and the new list's SHA-256,
# which tells one probation from the next.
_BEGIN = Script(
    "csf-begin",
    'set -eu; umask 077; cd -- "$1"; '
    f"{_WATCHED} {_ALONE} "
    "if watched; then echo a list is on probation already >&2; exit 1; fi; "
    "cp keyturn.allow keyturn.before; iptables-save >keyturn.rules; : >keyturn.rules6; "
    "if grep -Eq '^IPV6 *= *.1.' csf.conf; then ip6tables-save >keyturn.rules6; fi; sync; "
    'setsid sh -c "$5" keyturn-watch "$1" "$2" "$3" "$4" </dev/null >/dev/null 2>&1 9>&- & '
    "echo $! >keyturn.watch",
    argument_count=6,
)
# Arguments: directory, program, its option, the list's SHA-256. The list itself is read. Lines of
# csf's files may do more than let an address in, so the host takes no others.
_LOAD = Script(
    "csf-load",
    'set -eu; umask 077; cd -- "$1"; '
    f"{_WATCHED} "
    'cat >keyturn.new; echo "$4  keyturn.new" | sha256sum -c - >/dev/null; other=0; '
    f"LC_ALL=C grep -qvxE -e '{_HEADER}|{_ENTRY.pattern}' keyturn.new || other=$?; "
    '[ "$other" = 1 ] || { echo this is no list of Keyturn >&2; exit 1; }; '
    f"sync keyturn.new; {_ALONE} {_ON_PROBATION} "
    'mv keyturn.new keyturn.allow; sync .; "$2" "$3" 9>&-',
    argument_count=4,
)
# Arguments: directory, the list's SHA-256.
_KEEP = Script(
    "csf-keep",
    'set -eu; cd -- "$1"; '
    f"{_WATCHED} {_ALONE} {_ON_PROBATION} "
    'echo "$2  keyturn.allow" | sha256sum -c - >/dev/null; rm keyturn.watch; sync .',
    argument_count=2,
)


def format_list(addresses: Collection[Address], comment: str) -> str:
    """Return the file for these addresses, one to a line; *why* is one word for all of them."""
    if not re.fullmatch(r"[a-z]+", comment, re.ASCII):
        raise ValueError(f"{comment!r} is no plain word: csf might take it for more")
    ordered = sorted(addresses, key=lambda address: (address.version, int(address)))
    return "\n".join([_HEADER, *(f"{address} # {comment}" for address in ordered)]) + "\n"


def parse_list(listing: str) -> frozenset[Address]:
    """Return the addresses of a file; raise ParseError for what Keyturn did not write."""
    return frozenset(
        _parse_entry(line) for line in listing.split("\n") if line and not line.startswith("#")
    )


def _parse_entry(line: str) -> Address:
    entry = _ENTRY.fullmatch(line)
    try:
        return ip_address(entry[1] if entry else "")
    except ValueError:
        raise ParseError(
            f"Keyturn's own file holds {line[:100]!r}, which Keyturn never wrote there: move it "
            "into csf.allow"
        ) from None


def start_probation(listing: str, *, restart: str) -> Shell:
    """Save list and rules as they are, to be put back unless *listing* is kept in time."""
    words = (_DIRECTORY, _PROBATION, _PROGRAM, restart, _WATCH, _hash_text(listing))
    return Shell((_BEGIN, *words), root=True, hints=_HINTS)


def load_list(listing: str, *, restart: str) -> Shell:
    """Replace the list and let csf load it, within a probation that has begun.

    restart: the option that makes csf load everything.
    """
    words = (_DIRECTORY, _PROGRAM, restart, _hash_text(listing))
    return Shell(
        (_LOAD, *words),
        stdin=listing,
        root=True,
        error_pattern=_TROUBLE,
        hints=_HINTS,
        deadline=_LOADING,
    )


def keep_list(listing: str) -> Shell:
    """End the probation of a list, over a connection that the firewall has just let through."""
    words = (_DIRECTORY, _hash_text(listing))
    return Shell((_KEEP, *words), root=True, hints=_HINTS, new_connection=True)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_SUM = WordPattern(r"[0-9a-f]{64}")
_OPTIONS = ("-r", "-sf")
SUDO = (
    *(
        SudoRule(_BEGIN, _DIRECTORY, _PROBATION, _PROGRAM, option, _WATCH, _SUM)
        for option in _OPTIONS
    ),
    *(
        SudoRule(
            *(_LOAD, _DIRECTORY, _PROGRAM, option, _SUM),
            risk="let single addresses of their choice through the firewall",
        )
        for option in _OPTIONS
    ),
    SudoRule(_KEEP, _DIRECTORY, _SUM),
)

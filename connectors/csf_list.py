"""Keyturn's own list of addresses that csf allows, and its safe replacement. No I/O.

The list is the file `keyturn.allow` in /etc/csf. Keyturn never writes csf.allow, which people edit
by hand; an administrator adds the line `Include /etc/csf/keyturn.allow` to it.

The file is replaced atomically: written beside the old one, compared with its SHA-256, synced to
disk, renamed. A new list is on probation: unless Keyturn confirms it in time, over a connection
that was opened after it was loaded, the host itself restores the previous list and rules.
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
_HEADER = "# Written by Keyturn, which replaces this file: add your own entries to csf.allow."
_ENTRY = re.compile(r"([0-9a-f.:]+) # [a-z]+")

_DIRECTORY = Setting("csf.directory", "/etc/csf", pattern=r"/[\w./-]+")
_PROGRAM = Setting("csf.program", "/usr/sbin/csf", pattern=r"/[\w./-]+")
# Seconds: enough to load the list, and for Keyturn to reconnect.
_PROBATION = Setting("csf.probation", "180", pattern=r"[1-9][0-9]{0,3}")
# Seconds. Loading takes one or two, and many more with long block lists.
_LOADING = 120

_HINTS = (
    Hint(
        r"can't cd to|cd: .*No such file",
        "csf's directory does not exist: correct csf.directory in the inventory",
    ),
    Hint(r"(?i)have been \S*disabled", "csf is disabled: run csf -e first"),
    Hint(r"csf is being restarted", "csf is restarting: try again in a minute"),
    Hint(
        r"nothing is on probation",
        "the new list was not confirmed in time, and the host has restored the previous one: "
        "check whether the firewall blocked Keyturn, and try again",
    ),
    Hint(r"on probation already", "a list is already on probation: try again in some minutes"),
    Hint(
        r"did NOT match",
        "the list differs from the approved one and was not used: request the change again",
    ),
)
# csf exits with 0 after these errors, with an incomplete firewall.
_ERROR = r"(?m)^\*?Error|^ip6?tables[^\n]*: |^ipset v[^\n]*: "


_WATCHED = (
    "watched() { pid=$(cat keyturn.watch 2>/dev/null) && "
    'grep -qs keyturn-watch "/proc/$pid/cmdline"; };'
)
# Every script that changes the list or its probation holds the lock; csf must not inherit it.
_ALONE = "exec 9>keyturn.lock; flock 9;"
_ON_PROBATION = "watched || { echo nothing is on probation >&2; exit 1; };"

# Arguments: directory, seconds, program, its option. It restores the rules that let Keyturn in
# before, whatever csf loads now. The other scripts find it by its process name.
_WATCH = Script(
    "keyturn-watch",
    'sleep "$2"; cd -- "$1" || exit; '
    f"{_ALONE} "
    '[ "$(cat keyturn.watch)" = "$$" ] || exit; '
    "cp keyturn.before keyturn.back && sync keyturn.back && mv keyturn.back keyturn.allow; "
    'rm keyturn.watch; sync .; "$3" "$4" 9>&-; iptables-restore <keyturn.rules; '
    "[ ! -s keyturn.rules6 ] || ip6tables-restore <keyturn.rules6; "
    "logger -t keyturn 'the new list was not confirmed: restored the previous list and rules'",
)
# Arguments: directory, seconds, program, its option, the script above, and the new list's SHA-256,
# which distinguishes one probation from the next.
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
# Arguments: directory, program, its option, the list's SHA-256. The list is on standard input.
# Lines of csf's files can do more than allow an address, so the host accepts no others.
_LOAD = Script(
    "csf-load",
    'set -eu; umask 077; cd -- "$1"; '
    f"{_WATCHED} "
    'cat >keyturn.new; echo "$4  keyturn.new" | sha256sum -c - >/dev/null; other=0; '
    f"LC_ALL=C grep -qvxE -e '{_HEADER}|{_ENTRY.pattern}' keyturn.new || other=$?; "
    '[ "$other" = 1 ] || { echo this is not a list of Keyturn >&2; exit 1; }; '
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
    """Return the file for these addresses, one a line. comment: one word for all of them."""
    if not re.fullmatch(r"[a-z]+", comment, re.ASCII):
        raise ValueError(f"{comment!r} is not a plain word: csf could read more into it")
    ordered = sorted(addresses, key=lambda address: (address.version, int(address)))
    return "\n".join([_HEADER, *(f"{address} # {comment}" for address in ordered)]) + "\n"


def parse_list(listing: str) -> frozenset[Address]:
    """Return the addresses of a file. Raises ParseError for a line that Keyturn did not write."""
    return frozenset(
        _parse_entry(line) for line in listing.split("\n") if line and not line.startswith("#")
    )


def _parse_entry(line: str) -> Address:
    entry = _ENTRY.fullmatch(line)
    try:
        return ip_address(entry[1] if entry else "")
    except ValueError:
        raise ParseError(
            f"keyturn.allow has a line that Keyturn did not write: {line[:100]!r}. Move it to "
            "csf.allow"
        ) from None


def start_probation(listing: str, *, restart: str) -> Shell:
    """Save the current list and rules; the host restores them unless *listing* is kept in time."""
    words = (_DIRECTORY, _PROBATION, _PROGRAM, restart, _WATCH, _hash_text(listing))
    return Shell((_BEGIN, *words), root=True, hints=_HINTS)


def load_list(listing: str, *, restart: str) -> Shell:
    """Replace the list and reload csf, within a probation that has begun.

    restart: csf's option to reload, see Firewall.reload_option.
    """
    words = (_DIRECTORY, _PROGRAM, restart, _hash_text(listing))
    return Shell(
        (_LOAD, *words),
        stdin=listing,
        root=True,
        error_pattern=_ERROR,
        hints=_HINTS,
        deadline=_LOADING,
    )


def keep_list(listing: str) -> Shell:
    """End the probation of a list, over a new connection through the firewall."""
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
            risk="allow single addresses of their choice through the firewall",
        )
        for option in _OPTIONS
    ),
    SudoRule(_KEEP, _DIRECTORY, _SUM),
)

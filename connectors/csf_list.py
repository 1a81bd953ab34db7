"""Keyturn's own list of addresses that csf allows, and its safe replacement. No I/O.

The list is the file `keyturn.allow` in /etc/csf. Keyturn never writes csf.allow, which people edit
by hand; an administrator adds the line `Include /etc/csf/keyturn.allow` to it.

The file is replaced atomically: written beside the old one, compared with its SHA-256, synced to
disk, renamed. This is possible only on probation, which restores list and rules (see probation).
"""

import hashlib
import re
from collections.abc import Collection
from ipaddress import ip_address

from connectors import probation
from connectors.command import Hint, Setting, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.public_addresses import Address
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

# csf skips comments, and every line with the word for including other files in it.
_HEADER = "# Written by Keyturn, which replaces this file: add your own entries to csf.allow."
_ENTRY = re.compile(r"([0-9a-f.:]+) # [a-z]+")

DIRECTORY = Setting("csf.directory", "/etc/csf", pattern=r"/[\w./-]+")
PROGRAM = Setting("csf.program", "/usr/sbin/csf", pattern=r"/[\w./-]+")
# Seconds: enough to load the list, and for Keyturn to reconnect.
SECONDS = Setting("csf.probation", "180", pattern=r"[1-9][0-9]{0,3}")
# Seconds. Loading takes one or two, and many more with long block lists.
LOADING = 120

HINTS = (
    Hint(
        r"can't cd to|cd: .*No such file",
        "csf's directory does not exist: correct csf.directory in the inventory",
    ),
    Hint(r"(?i)have been \S*disabled", "csf is disabled: run csf -e first"),
    Hint(r"csf is being restarted", "csf is restarting: try again in a minute"),
    *probation.HINTS,
    Hint(
        r"did NOT match",
        "the list differs from the approved one and was not used: request the change again",
    ),
)
# csf exits with 0 after these errors, with an incomplete firewall.
ERROR = r"(?m)^\*?Error|^ip6?tables[^\n]*: |^ipset v[^\n]*: "


# Parts of restore scripts. They restore the rules that let Keyturn in before, whatever csf loads
# now. With LFDSTART, `-r` leaves the loading to a daemon.
IS_SET = 'on() { grep -Eq "^$2 *= *.1." "$1/csf.conf"; }; '
SAVE_RULES = (
    'iptables-save >rules && : >rules6 && { ! on "$2" IPV6 || ip6tables-save >rules6; } && sync'
)
RESTORE_RULES = (
    'sync "$2"; option=-r; if on "$2" LFDSTART; then option=-sf; fi; "$3" "$option"; status=0; '
    "iptables-restore <rules || status=1; "
    "[ ! -s rules6 ] || ip6tables-restore <rules6 || status=1; exit $status"
)
# Arguments: phase, directory, program.
_RESTORE = Script(
    "csf-restore",
    f"{IS_SET}case $1 in "
    f'save) cp -- "$2/keyturn.allow" list && {SAVE_RULES};; '
    'restore) cp list "$2/keyturn.back" && sync "$2/keyturn.back" && '
    f'mv "$2/keyturn.back" "$2/keyturn.allow"; {RESTORE_RULES};; *) exit 1;; esac',
    argument_count=3,
)
PROBATION = Probation("csf", _RESTORE, SECONDS, (DIRECTORY, PROGRAM))
# Arguments: root, directory, program, its option, the list's SHA-256. The list is on standard
# input. Lines of csf's files can do more than allow an address, so the host accepts no others.
_LOAD = Script(
    "csf-load",
    'set -eu; umask 077; cd -- "$2"; '
    'cat >keyturn.new; echo "$5  keyturn.new" | sha256sum -c - >/dev/null; other=0; '
    f"LC_ALL=C grep -qvxE -e '{_HEADER}|{_ENTRY.pattern}' keyturn.new || other=$?; "
    '[ "$other" = 1 ] || { echo this is not a list of Keyturn >&2; exit 1; }; '
    f"sync keyturn.new; {probation.make_try('csf')}"
    'mv keyturn.new keyturn.allow; sync .; "$3" "$4" 9>&-',
    argument_count=5,
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


def load_list(listing: str, *, restart: str) -> Shell:
    """Replace the list and reload csf, on probation.

    restart: csf's option to reload, see Firewall.reload_option.
    """
    words = (probation.ROOT, DIRECTORY, PROGRAM, restart, _hash_text(listing))
    return Shell(
        (_LOAD, *words),
        stdin=listing,
        root=True,
        error_pattern=ERROR,
        hints=HINTS,
        deadline=LOADING,
    )


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_SUM = WordPattern(r"[0-9a-f]{64}")
SUDO = (
    *probation.make_sudo_rules(PROBATION, DIRECTORY, PROGRAM),
    *(
        SudoRule(
            *(_LOAD, probation.ROOT, DIRECTORY, PROGRAM, option, _SUM),
            risk="allow single addresses of their choice through the firewall",
        )
        for option in ("-r", "-sf")
    ),
)

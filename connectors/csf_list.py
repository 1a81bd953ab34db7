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

from connectors import csf_program, probation
from connectors.command import Hint, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.public_addresses import Address
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

# csf skips comments, and every line with the word for including other files in it.
_HEADER = "# Written by Keyturn, which replaces this file: add your own entries to csf.allow."
_ENTRY = re.compile(r"([0-9a-f.:]+) # [a-z]+")

# Seconds. Loading takes one or two, and many more with long block lists.
_LOADING = 120

_HINTS = (
    *csf_program.HINTS,
    *probation.HINTS,
    Hint(
        r"did NOT match",
        "the list differs from the approved one and was not used: request the change again",
    ),
)


_RESTORE = load_script("csf-restore", argument_count=3)
PROBATION = Probation("csf", _RESTORE, csf_program.SECONDS, csf_program.WHERE)
_LOAD = load_script("csf-load", argument_count=5, HEADER=_HEADER, ENTRY=_ENTRY.pattern)


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
    words = (
        probation.ROOT,
        *csf_program.WHERE,
        restart,
        _hash_text(listing),
    )
    return Shell(
        (_LOAD, *words),
        stdin=listing,
        root=True,
        error_pattern=csf_program.ERROR,
        hints=_HINTS,
        deadline=_LOADING,
    )


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_SUM = WordPattern(r"[0-9a-f]{64}")
SUDO = (
    *probation.make_sudo_rules(PROBATION, *csf_program.WHERE),
    *(
        SudoRule(
            *(_LOAD, probation.ROOT, *csf_program.WHERE, option, _SUM),
            risk="allow single addresses of their choice through the firewall",
        )
        for option in ("-r", "-sf")
    ),
)

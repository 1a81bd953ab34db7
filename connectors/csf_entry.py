"""Single addresses in csf.allow, csf.deny and csf's temporary blocks. No I/O.

csf itself writes its files here, with `csf -a`, `-ar`, `-d`, `-dr`, `-td` and `-trd`: see its
readme.txt. Each is possible only on probation, which restores the lines of the address and the
rules (see probation). Temporary blocks are known from public outputs of `csf -g`.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, get_args

from connectors import csf_program, probation
from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.public_addresses import Address
from connectors.script import load_script
from connectors.sudo import ADDRESS, SudoRule, WordPattern

EntryChange = Literal["allow", "disallow", "deny", "undeny", "block", "unblock"]
# An undo cannot know how long a temporary block had left.
BLOCK_SECONDS = 3600


# csf exits with 0 after these errors too.
_ERROR = rf"{csf_program.ERROR}|(?:add|deny) failed|not found in csf\.|is not a valid"
_HINTS = (
    *csf_program.HINTS,
    *probation.HINTS,
    Hint(
        r"No chain/target/match by that name",
        "csf's rules are not loaded, or csf is restarting: run csf -r, or try again in a minute",
    ),
)

_RESTORE = load_script("csf-entry-restore", argument_count=4)
_CHANGE = load_script("csf-entry", argument_count=4, BLOCK_SECONDS=BLOCK_SECONDS)


def query_own_source() -> Query[Address]:
    """Query the address that the host sees Keyturn at: of Keyturn or of its last jump host."""
    return Query(Shell(("printenv", "SSH_CONNECTION")), parse_own_source)


def parse_own_source(text: str) -> Address:
    """Parse SSH_CONNECTION: client's address and port, server's address and port (ssh(1))."""
    try:
        return ip_address(text.partition(" ")[0].partition("%")[0])
    except ValueError:
        raise ParseError(f"SSH_CONNECTION is {text[:100]!r} instead of two addresses") from None


def make_probation(address: Address) -> Probation:
    """Return the probation of a change of this address's entries. One of csf's runs at a time."""
    return Probation(
        "csf",
        _RESTORE,
        csf_program.SECONDS,
        (*csf_program.WHERE, str(address)),
    )


def change_entry(change: EntryChange, address: Address) -> Shell:
    """Return the command for one address, on probation. block: for BLOCK_SECONDS."""
    words = (probation.ROOT, csf_program.PROGRAM, change, str(address))
    return Shell((_CHANGE, *words), root=True, error_pattern=_ERROR, hints=_HINTS, deadline=60)


def find_covering(entries: Sequence[str], address: Address) -> str:
    """Return the first entry of csf.allow or csf.deny that includes the address; "" for none."""
    return next((entry for entry in entries if _includes(entry, address)), "")


def _includes(entry: str, address: Address) -> bool:
    try:
        network: IPv4Network | IPv6Network = ip_network(entry, strict=False)
    except ValueError:
        return False  # an advanced rule, which is for ports
    return address.version == network.version and address in network


def find_advanced_rule(entries: Sequence[str], address: Address) -> str:
    """Return the first advanced rule of csf.deny for the address, such as `tcp|in|d=22|s=…`."""
    return next(
        (
            entry
            for entry in entries
            for part in re.split(r"[|]|:(?=[sd]=)", entry)
            if part[:2] in ("s=", "d=") and _includes(part[2:].strip("[]"), address)
        ),
        "",
    )


_ARM = make_probation(ip_address("192.0.2.1"))
_WORDS = (*csf_program.WHERE, WordPattern(ADDRESS))
SUDO = (
    *probation.make_sudo_rules(_ARM, *_WORDS),
    SudoRule(
        *(_CHANGE, probation.ROOT, csf_program.PROGRAM),
        *(WordPattern("|".join(get_args(EntryChange))), WordPattern(ADDRESS)),
        risk="allow or block single addresses of their choice in the firewall",
    ),
)

"""Take one leg of a Linux bond out of use, and return it. No I/O.

The leg stays a member and is set down: the bond, which watches its links, moves the traffic to the
other legs. https://www.kernel.org/doc/Documentation/networking/bonding.rst also describes how to
release a member; that loses its settings and gives it another address, so it is not done here.
"""

from typing import Literal

from connectors import probation
from connectors.command import Hint, Setting, Shell
from connectors.probation import Probation
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

LegState = Literal["up", "down"]

_HINTS = (
    *probation.HINTS,
    Hint(
        r"is the last leg of",
        "no other leg has a link by now: repair another one first, and try again",
    ),
    Hint(r"does not notice", "enable monitoring of the bond's links (miimon=100) first"),
    Hint(r"is no member of", "the bond was changed meanwhile: request it again"),
)
# Arguments: phase, leg. The lowest bit of a card's flags is whether it is set up.
_RESTORE = Script(
    "bond-restore",
    'case $1 in save) flags=$(cat "/sys/class/net/$2/flags") && '
    'if [ "$((flags & 1))" = 1 ]; then echo up; else echo down; fi >state;; '
    'restore) ip link set dev "$2" "$(cat state)";; *) exit 1;; esac',
    argument_count=2,
)
# Arguments: root, bond, leg, up or down. The new link may need seconds, and a bond has delays.
_SET = Script(
    "bond-leg",
    f"set -eu; {probation.make_try('bond')}file=${{1%/}}/proc/net/bonding/$2; "
    'refuse() { echo "$1" >&2; exit 1; }; '
    """links() { awk '/^Slave Interface:/ {leg = $3} """
    """/^MII Status:/ && leg {print leg, $3; leg = ""}' "$file"; }; """
    'links | grep -q "^$3 " || refuse "$3 is no member of $2"; '
    'if [ "$4" = down ]; then links | grep -v "^$3 " | grep -q " up$" || '
    'refuse "$3 is the last leg of $2"; fi; '
    'ip link set dev "$3" "$4"; tries=0; '
    'until links | grep -qx "$3 $4"; do tries=$((tries + 1)); '
    'if [ "$tries" -gt 200 ]; then '
    '[ "$4" = up ] || refuse "$2 does not notice that $3 is down"; '
    'echo "$3 is set up, and has no link yet"; exit 0; fi; sleep 0.1; done; '
    'echo "$3 of $2 is $4"',
    argument_count=4,
)
_SECONDS = Setting("bond.probation", "120", pattern=r"[1-9][0-9]{0,3}")


def make_probation(leg: str) -> Probation:
    """Return the probation of a leg."""
    return Probation("bond", _RESTORE, _SECONDS, (leg,))


def set_leg(bond: str, leg: str, state: LegState) -> Shell:
    """Set a leg up or down, on probation. The host refuses to set the last one down."""
    words = (_SET, probation.ROOT, bond, leg, state)
    return Shell(words, root=True, hints=_HINTS, deadline=60)


_NAME = WordPattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
SUDO = (
    *probation.make_sudo_rules(make_probation(""), _NAME),
    SudoRule(_SET, probation.ROOT, _NAME, _NAME, WordPattern("up|down")),
)

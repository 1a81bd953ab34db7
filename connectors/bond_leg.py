"""Take one leg of a Linux bond out of use, and return it. No I/O.

The leg stays a member and is set down: the bond, which watches its links, moves the traffic to the
other legs. https://www.kernel.org/doc/Documentation/networking/bonding.rst also describes how to
release a member; that loses its settings and gives it another address, so it is not done here.
"""

from typing import Literal

from connectors import probation
from connectors.command import Hint, Setting, Shell
from connectors.probation import Probation
from connectors.script import load_script
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
_RESTORE = load_script("bond-restore", argument_count=2)
_SET = load_script("bond-leg", argument_count=4)
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

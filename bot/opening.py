"""How a sentence begins that the service says. Pure.

What it says is worded for every door: a program reads it behind a name and a colon.
"""

import re

# With what it says begins that is no name: of those, `lb1` and `dora` stay as they are written.
_OPENING = re.compile(
    r"(a|an|around|delegation|give|glass|grant|how|it|no|nobody|not|nothing|on|only|run|say|"
    r"schedule|settle|somebody|stop|that|the|there|these|this|those|token|type|what|which|whom|"
    r"write|you|your)\b(?![-=])"
)


def opened(said: str) -> str:
    """Return it with a capital, unless it begins with a name, such as that of a host."""
    return said[:1].upper() + said[1:] if _OPENING.match(said) else said

"""Sentences: what is said in chat begins with a capital, ends, and counts as people do. Pure.

What the service says is worded for every door: a program reads it behind a name and a colon.
"""

import re

# With what it says begins that is no name: of those, `lb1` and `dora` stay as they are written.
_OPENING = re.compile(
    r"(a|an|around|delegation|give|glass|grant|how|it|no|nobody|not|nothing|on|only|run|say|"
    r"schedule|settle|somebody|stop|that|the|there|these|this|those|token|type|what|which|whom|"
    r"write|you|your)\b(?![-=])"
)
# A word or the number of a run, and no placeholder such as HOST, nor a pattern or an address.
_LAST = re.compile(r"[(“‘'\"]?[a-z][\w’'-]*[)”’'\"]?|\d{1,9}")


def sentence(said: str) -> str:
    """Return what a person is told as a sentence: `there is no host 'lb9' in the inventory`."""
    opened = said[:1].upper() + said[1:] if _OPENING.match(said) else said
    last = opened.rsplit(None, 1)[-1] if opened else ""
    return f"{opened}." if _LAST.fullmatch(last) else opened


def counted(number: int, one: str, *, many: str = "") -> str:
    """Return `1 run` or `7 runs`. many: where more than one is no `s` behind it."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"

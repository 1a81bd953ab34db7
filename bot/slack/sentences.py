"""Sentences: what is said in chat begins with a capital, ends, and counts as people do. Pure.

What the service says is worded for every door: a program reads it behind a name and a colon.
"""

import re

from bot.opening import opened

# A word or the number of a run, and no placeholder such as HOST, nor a pattern or an address.
_LAST = re.compile(r"[(“‘'\"]?[a-z][\w’'-]*[)”’'\"]?|\d{1,9}")


def sentence(said: str) -> str:
    """Return what a person is told as a sentence: `there is no host 'lb9' in the inventory`."""
    last = said.rsplit(None, 1)[-1] if said else ""
    return opened(said) + "." * bool(_LAST.fullmatch(last))


def counted(number: int, one: str, *, many: str = "") -> str:
    """Return `1 run` or `7 runs`. many: where more than one is no `s` behind it."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"

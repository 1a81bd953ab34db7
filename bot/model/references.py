"""References to runs in stored sentences, shown as far as a reader may view these runs. Pure.

Keyturn stores sentences such as “waits for run 7”, which people with different rights read. What
such a sentence says of another run is a reference: the number of that run, the words for readers
who may view it, and the words for everyone else. References are stored between Unicode's
annotation characters, which no text of a person can contain.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from bot.model.canonical import Canonical

_BEGIN, _BETWEEN, _END = "\ufff9", "\ufffa", "\ufffb"
_REFERENCE = re.compile(
    f"{_BEGIN}([0-9]+){_BETWEEN}([^{_BEGIN}-{_END}]*){_BETWEEN}([^{_BEGIN}-{_END}]*){_END}"
)
_MARKS = re.compile(f"[{_BEGIN}-{_END}]")


def refer_to_run(number: int, words: str = "", *, otherwise: str = "another run") -> str:
    """Return a reference to a run.

    Args:
        words: For readers who may view it; `run 7` if empty.
        otherwise: For everyone else.
    """
    shown = _MARKS.sub("", words or f"run {number}")
    return f"{_BEGIN}{number}{_BETWEEN}{shown}{_BETWEEN}{otherwise}{_END}"


def list_referenced_runs(text: str) -> set[int]:
    """Return the numbers of the runs that a stored sentence refers to."""
    return {int(found[1]) for found in _REFERENCE.finditer(text)} if _BEGIN in text else set()


def show_references(text: str, viewable: Collection[int]) -> str:
    """Return a stored sentence for a reader who may view these runs."""
    if _BEGIN not in text:
        return text
    return _REFERENCE.sub(lambda found: found[2 if int(found[1]) in viewable else 3], text)


def has_references(text: str) -> bool:
    return _BEGIN in text


def hide_all_references(value: Canonical) -> Canonical:
    """Return a document with all references in its texts hidden."""
    if isinstance(value, str):
        return hide_references(value)
    if isinstance(value, Mapping):
        return {name: hide_all_references(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [hide_all_references(each) for each in value]
    return value


def hide_references(text: str) -> str:
    """Return a stored sentence for everyone, whatever they may view."""
    return show_references(text, ())

"""A statement as a database's driver takes it, and what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Statement(NamedTuple):
    """values: by the marks in the words, or None where there are no marks at all.

    by_heart: it is said again and again. Any other is planned for these values alone.
    """

    words: str
    values: Mapping[str, Any] | Sequence[Any] | None = None
    by_heart: bool = True


class Answer(NamedTuple):
    """rows: what came back. touched: how many rows it was done to. did: what the server calls
    what it has done."""

    rows: list[Any]
    touched: int
    did: str = ""

"""What is wanted of the history, as typed into its filters. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from bot.db import search_words
from bot.db.saved_views import FILTERS
from bot.db.search import RunFilter
from bot.model.run import ENDED, STANDINGS, State
from bot.model.times import NotATime, parse_earliest, parse_latest
from connectors.command import InvisibleCharacterError, refuse_invisible

NAMES = FILTERS
_UNDER_WAY = frozenset(
    {
        State.ASKED,
        State.OFFERED,
        State.WAITING,
        State.READY,
        State.STARTING,
        State.RUNNING,
        State.UNKNOWN,
    }
)
# What people look for, beside the single states.
GROUPS: Mapping[str, tuple[str, frozenset[State]]] = {
    "under-way": ("Under way", _UNDER_WAY),
    "ended": ("Ended", ENDED),
    "not-done": ("Ended without success", ENDED - {State.SUCCEEDED, State.UNCHANGED}),
}
_LARGEST = 2_147_483_647


@dataclass(frozen=True)
class Wanted:
    """typed: the filters that are not empty. filter: what to search for. problems: by name."""

    typed: Mapping[str, str]
    filter: RunFilter
    problems: Mapping[str, str] = field(default_factory=dict[str, str])

    def __getitem__(self, name: str) -> str:
        return self.typed.get(name, "")

    def address(self, *, before: int | None = None, form: str = "") -> str:
        """Return the address that shows this again, or the page of it below a run.

        form: "" for the page, ".csv" and ".json" for what programs read.
        """
        values = dict(self.typed) | ({"before": str(before)} if before else {})
        return f"/runs{form}?{urlencode(values)}" if values else f"/runs{form}"


def canonical(query: Mapping[str, str]) -> str:
    """Return the filters that are not empty as they stand in an address, in one order."""
    return urlencode(_typed(query))


def wanted(query: Mapping[str, str], *, now: int) -> Wanted:
    """Understand the filters; what cannot be understood is a problem and filters nothing."""
    typed = _typed(query)
    zone = typed.get("zone", "UTC")
    problems: dict[str, str] = {}

    def understood(name: str, how: Callable[[str], object]) -> object:
        if name not in typed:
            return None
        try:
            return how(refuse_invisible(typed[name]))
        except (InvisibleCharacterError, NotATime, KeyError, OverflowError) as trouble:
            known = isinstance(trouble, (InvisibleCharacterError, NotATime))
            problems[name] = str(trouble) if known else "is not known here: choose another"
            return None

    values = {
        "host": understood("host", str.lower),
        "area": understood("area", str.lower),
        "text": understood("text", _text) or (),
        "person": understood("person", str.lower),
        "words": understood("runbook", lambda text: " ".join(text.lower().split())),
        "states": understood("state", _states) or frozenset[str](),
        "since": understood("since", lambda text: parse_earliest(text, now=now, zone=zone)),
        "until": understood("until", lambda text: parse_latest(text, now=now, zone=zone)),
    }
    return Wanted(typed, RunFilter(**values, before=_before(query)), problems)  # pyright: ignore[reportArgumentType] - each `how` returns its field's type


def _typed(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters that are not empty; a zone filters nothing but with a time."""
    typed = {name: query[name].strip()[:200] for name in NAMES if query.get(name, "").strip()}
    if not {"since", "until"} & set(typed):
        typed.pop("zone", None)
    return typed


def _text(text: str) -> tuple[str, ...]:
    return tuple(search_words.parse_search(text))


def _states(text: str) -> frozenset[str]:
    if text in GROUPS:
        return GROUPS[text][1]
    if text not in STANDINGS:
        raise KeyError(text)
    return frozenset({text})


def _before(query: Mapping[str, str]) -> int | None:
    text = query.get("before", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    return min(int(text), _LARGEST)

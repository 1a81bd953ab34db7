"""What is wanted of the history, as typed into its filters. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from bot.db import search_words
from bot.db.saved_views import FILTERS
from bot.db.search import RunFilter
from bot.model.run import ENDED_STATES, RUN_STATUSES, State
from bot.model.times import InvalidTimeError, parse_earliest_moment, parse_latest_moment
from connectors.command import InvisibleCharacterError, refuse_invisible

FILTER_NAMES = FILTERS
_OPEN_STATES = frozenset(
    {
        State.PLANNING,
        State.COUNTER_PROPOSED,
        State.PENDING,
        State.QUEUED,
        State.STARTING,
        State.RUNNING,
        State.UNKNOWN,
    }
)
# What people look for, beside the single states.
STATE_GROUPS: Mapping[str, tuple[str, frozenset[State]]] = {
    "under-way": ("Under way", _OPEN_STATES),
    "ended": ("Ended", ENDED_STATES),
    "not-done": ("Ended without success", ENDED_STATES - {State.SUCCEEDED, State.NO_CHANGES}),
}
_MAX_RUN_ID = 2_147_483_647


@dataclass(frozen=True)
class TypedFilter:
    """typed: the filters that are not empty. filter: what to search for. problems: by name."""

    typed: Mapping[str, str]
    run_filter: RunFilter
    problems: Mapping[str, str] = field(default_factory=dict[str, str])

    def __getitem__(self, name: str) -> str:
        return self.typed.get(name, "")

    def build_url(self, *, before: int | None = None, extension: str = "") -> str:
        """Return the address that shows this again, or the page of it below a run.

        form: "" for the page, ".csv" and ".json" for what programs read.
        """
        values = dict(self.typed) | ({"before": str(before)} if before else {})
        return f"/runs{extension}?{urlencode(values)}" if values else f"/runs{extension}"


def format_filters(query: Mapping[str, str]) -> str:
    """Return the filters that are not empty as they stand in an address, in one order."""
    return urlencode(_read_filters(query))


def parse_filters(query: Mapping[str, str], *, now: int) -> TypedFilter:
    """Understand the filters; what cannot be understood is a problem and filters nothing."""
    typed = _read_filters(query)
    zone = typed.get("zone", "UTC")
    problems: dict[str, str] = {}

    def understood(name: str, how: Callable[[str], object]) -> object:
        if name not in typed:
            return None
        try:
            return how(refuse_invisible(typed[name]))
        except (InvisibleCharacterError, InvalidTimeError, KeyError, OverflowError) as trouble:
            known = isinstance(trouble, (InvisibleCharacterError, InvalidTimeError))
            problems[name] = str(trouble) if known else "is not known here: choose another"
            return None

    values = {
        "host": understood("host", str.lower),
        "area": understood("area", str.lower),
        "text": understood("text", _parse_search_text) or (),
        "person": understood("person", str.lower),
        "runbook": understood("runbook", lambda text: " ".join(text.lower().split())),
        "states": understood("state", _parse_state) or frozenset[str](),
        "since": understood("since", lambda text: parse_earliest_moment(text, now=now, zone=zone)),
        "until": understood("until", lambda text: parse_latest_moment(text, now=now, zone=zone)),
    }
    return TypedFilter(typed, RunFilter(**values, before=_parse_before(query)), problems)  # pyright: ignore[reportArgumentType] - each `how` returns its field's type


def _read_filters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters that are not empty; a zone filters nothing but with a time."""
    typed = {
        name: query[name].strip()[:200] for name in FILTER_NAMES if query.get(name, "").strip()
    }
    if not {"since", "until"} & set(typed):
        typed.pop("zone", None)
    return typed


def _parse_search_text(text: str) -> tuple[str, ...]:
    return tuple(search_words.parse_search(text))


def _parse_state(text: str) -> frozenset[str]:
    if text in STATE_GROUPS:
        return STATE_GROUPS[text][1]
    if text not in RUN_STATUSES:
        raise KeyError(text)
    return frozenset({text})


def _parse_before(query: Mapping[str, str]) -> int | None:
    text = query.get("before", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    return min(int(text), _MAX_RUN_ID)

"""Filters of the runs page and of the change log, and their options. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from bot.db import search_words
from bot.db.saved_views import FILTERS
from bot.db.search import RunFilter
from bot.model.run import ENDED_STATES, NEEDS_ATTENTION, RUN_STATUSES, State
from bot.model.run_states import (
    OUTCOMES,
    PROBLEM_OUTCOMES,
    RUN_STATUS_DISPLAYS,
    STATUSES_BY_OUTCOME,
    Outcome,
)
from bot.model.times import InvalidTimeError, parse_earliest_time, parse_latest_time
from bot.policy import Policy
from connectors.visible_text import InvisibleCharacterError, refuse_invisible
from runbooks import load_catalogue

FILTER_NAMES = FILTERS
_OPEN_STATUSES = frozenset(OUTCOMES) - ENDED_STATES - {NEEDS_ATTENTION, State.PLANNED}
_ENDED_STATUSES = ENDED_STATES | {NEEDS_ATTENTION}
_PROBLEMS = frozenset(
    status for outcome in PROBLEM_OUTCOMES for status in STATUSES_BY_OUTCOME[outcome]
)
# Groups of statuses to filter by, besides single ones.
STATE_GROUPS: Mapping[str, tuple[str, frozenset[str]]] = {
    "under-way": ("In progress or pending", _OPEN_STATUSES),
    "ended": ("Ended", _ENDED_STATUSES),
    "problems": ("Failed or unknown outcome", _PROBLEMS),
    "not-done": (
        "Ended without success",
        _ENDED_STATUSES - STATUSES_BY_OUTCOME[Outcome.SUCCEEDED],
    ),
}
_MAX_RUN_ID = 2_147_483_647
# Options by the title of their group, "" for none. Each option is a value and its label.
GroupedOptions = Mapping[str, Mapping[str, str]]

_STATE_OPTIONS: GroupedOptions = {
    "Groups of states": {name: title for name, (title, _) in STATE_GROUPS.items()},
    "States": {str(status): display.label for status, display in RUN_STATUS_DISPLAYS.items()},
}


@dataclass(frozen=True)
class TypedFilter:
    """Filters as typed, and what they select."""

    typed: Mapping[str, str]
    """The filters that are not empty."""
    run_filter: RunFilter
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Problems of invalid filters, by name."""

    def __getitem__(self, name: str) -> str:
        return self.typed.get(name, "")

    def build_url(self, *, before: int | None = None, extension: str = "") -> str:
        """Return the address with these filters.

        Args:
            before: Show only runs with a lower number.
            extension: "" for the page, ".csv" or ".json" for an export.
        """
        return build_list_url(f"/runs{extension}", self.typed, before)


def build_list_url(path: str, typed: Mapping[str, str], before: int | None) -> str:
    """Return the address of a list with filters. before: Only records with a lower number."""
    values = dict(typed) | ({"before": str(before)} if before else {})
    return f"{path}?{urlencode(values)}" if values else path


def format_filters(query: Mapping[str, str]) -> str:
    """Return the filters that are not empty as a query string, in a fixed order."""
    return urlencode(_read_filters(query))


def parse_filters(query: Mapping[str, str], *, now: int) -> TypedFilter:
    """Parse the filters. An invalid filter is reported as a problem and filters nothing."""
    typed = _read_filters(query)
    zone = typed.get("zone", "UTC")
    problems: dict[str, str] = {}

    def parse(name: str, parser: Callable[[str], object]) -> object:
        if name not in typed:
            return None
        try:
            return parser(refuse_invisible(typed[name]))
        except (InvisibleCharacterError, InvalidTimeError, KeyError, OverflowError) as error:
            has_message = isinstance(error, (InvisibleCharacterError, InvalidTimeError))
            problems[name] = str(error) if has_message else "unknown value, choose another"
            return None

    values = {
        "host": parse("host", str.lower),
        "area": parse("area", str.lower),
        "text": parse("search", _parse_search_text) or (),
        "person": parse("person", str.lower),
        "runbook": parse("runbook", lambda text: " ".join(text.lower().split())),
        "states": parse("state", _parse_state) or frozenset[str](),
        "since": parse("since", lambda text: parse_earliest_time(text, now=now, zone=zone)),
        "until": parse("until", lambda text: parse_latest_time(text, now=now, zone=zone)),
    }
    return TypedFilter(typed, RunFilter(**values, before=_parse_before(query)), problems)  # pyright: ignore[reportArgumentType] - each parser returns the type of its field


def _read_filters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters that are not empty. A time zone counts only together with a time."""
    # Views that an earlier version saved name the searched words `text`.
    query = {"search": query.get("text", ""), **query}
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


@dataclass(frozen=True)
class FilterChoices:
    """The options of each filter. Other values are accepted too, such as people who have left."""

    area: GroupedOptions
    person: GroupedOptions
    runbook: GroupedOptions
    state: GroupedOptions
    hosts: Sequence[str]


def list_choices(policy: Policy) -> FilterChoices:
    """Return the options of every filter under a policy."""
    people = sorted(policy.organisation.people.values(), key=lambda one: one.name)
    areas = sorted(policy.organisation.areas.values(), key=lambda one: one.title)
    return FilterChoices(
        area={"": {area.name: area.title for area in areas}},
        person={"": {person.id: person.name for person in people}},
        runbook={"": {name: name for name in load_catalogue()}},
        state=_STATE_OPTIONS,
        hosts=sorted(host.name for host in policy.inventory),
    )

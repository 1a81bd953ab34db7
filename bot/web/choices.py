"""Choices: what the filters of the history and of the log offer, drawn once for each policy."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from markupsafe import Markup

from bot.policy import Policy
from bot.web.badges import RUN
from bot.web.run_filter import GROUPS
from bot.web.shown import to_shown_text
from runbooks import catalogue

_GROUPED: Mapping[str, Mapping[str, str]] = {
    "Several": {name: title for name, (title, _) in GROUPS.items()},
    "One": {str(standing): shown.word for standing, shown in RUN.items()},
}


class Choices:
    """What is offered; other words may be typed too, for what has left since."""

    def __init__(self, policy: Policy) -> None:
        people = sorted(policy.household.people.values(), key=lambda one: one.name)
        areas = sorted(policy.household.areas.values(), key=lambda one: one.title)
        hosts = sorted(host.name for host in policy.inventory)
        self._offered: Mapping[str, Mapping[str, str]] = {
            "area": {area.name: area.title for area in areas},
            "person": {person.id: person.name for person in people},
            "runbook": {words: words for words in catalogue()},
            "state": {value: word for group in _GROUPED.values() for value, word in group.items()},
        }
        self._drawn: dict[tuple[str, str], Markup] = {}
        # What a datalist offers.
        self.hosts = _joined(
            Markup('<option value="%s"></option>') % to_shown_text(host) for host in hosts
        )

    def of(self, name: str, chosen: str) -> Markup:
        """Draw what a filter offers, with what is chosen even where that is not offered."""
        offered = self._offered[name]
        if chosen and chosen not in offered:
            return self.of(name, "") + _option(chosen, chosen, chosen)
        drawn = self._drawn.get((name, chosen))
        if drawn is None:
            drawn = _states(chosen) if name == "state" else _options(offered, chosen)
            self._drawn[name, chosen] = drawn
        return drawn


def _option(value: str, word: str, chosen: str) -> Markup:
    """Draw what a list offers; a macro would take most of the time of the lists of a filter."""
    on = " selected" if value == chosen else ""
    return Markup(f'<option value="{to_shown_text(value)}"{on}>{to_shown_text(word)}</option>')  # noqa: S704 - both are shown


@lru_cache(64)
def render_options(words: tuple[str, ...], chosen: str) -> Markup:
    """Draw a list of words that is not the policy's, with what is chosen in any case."""
    return _options({word: word for word in (*words, *([chosen] if chosen else ()))}, chosen)


def _options(offered: Mapping[str, str], chosen: str) -> Markup:
    return _joined(_option(value, word, chosen) for value, word in offered.items())


def _states(chosen: str) -> Markup:
    return _joined(
        Markup(f'<optgroup label="{title}">{_options(group, chosen)}</optgroup>\n')  # noqa: S704 - words of ours
        for title, group in _GROUPED.items()
    )


def _joined(drawn: Iterable[Markup]) -> Markup:
    return Markup("").join(drawn)


# As long as a policy is there: nothing of it is held here.
_known: WeakKeyDictionary[Policy, Choices] = WeakKeyDictionary()


def choices(policy: Policy) -> Choices:
    """Return what filters offer under this policy."""
    found = _known.get(policy)
    if found is None:
        found = _known[policy] = Choices(policy)
    return found

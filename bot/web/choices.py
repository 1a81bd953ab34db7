"""List the values that the filters of the history and of the change log offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.policy import Policy
from bot.web.run_filter import STATE_GROUPS
from runbooks import load_catalogue

# Options of a list by the title of their group, "" for none; each value with what people read.
GroupedOptions = Mapping[str, Mapping[str, str]]

_STATES: GroupedOptions = {
    "Several": {name: title for name, (title, _) in STATE_GROUPS.items()},
    "One": {str(standing): shown.label for standing, shown in RUN_STATUS_DISPLAYS.items()},
}


@dataclass(frozen=True)
class FilterChoices:
    """The offered values of each filter. Others may be typed or sent, too: of what has left."""

    area: GroupedOptions
    person: GroupedOptions
    runbook: GroupedOptions
    state: GroupedOptions
    hosts: Sequence[str]


def list_choices(policy: Policy) -> FilterChoices:
    """Return what the filters offer under a policy."""
    people = sorted(policy.organisation.people.values(), key=lambda one: one.name)
    areas = sorted(policy.organisation.areas.values(), key=lambda one: one.title)
    return FilterChoices(
        area={"": {area.name: area.title for area in areas}},
        person={"": {person.id: person.name for person in people}},
        runbook={"": {words: words for words in load_catalogue()}},
        state=_STATES,
        hosts=sorted(host.name for host in policy.inventory),
    )

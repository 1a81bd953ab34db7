"""List the options of the filters of runs and of the change log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.policy import Policy
from bot.web.run_filter import STATE_GROUPS
from runbooks import load_catalogue

# Options by the title of their group, "" for none. Each option is a value and its label.
GroupedOptions = Mapping[str, Mapping[str, str]]

_STATES: GroupedOptions = {
    "Groups of states": {name: title for name, (title, _) in STATE_GROUPS.items()},
    "States": {str(status): display.label for status, display in RUN_STATUS_DISPLAYS.items()},
}


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
        state=_STATES,
        hosts=sorted(host.name for host in policy.inventory),
    )

"""List the values that the filters of the history and of the change log offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.model.run_states import STATUSES
from bot.policy import Policy
from bot.web.run_filter import GROUPS
from runbooks import load_catalogue

# Options of a list by the title of their group, "" for none; each value with what people read.
Options = Mapping[str, Mapping[str, str]]

_STATES: Options = {
    "Several": {name: title for name, (title, _) in GROUPS.items()},
    "One": {str(standing): shown.label for standing, shown in STATUSES.items()},
}


@dataclass(frozen=True)
class Choices:
    """The offered values of each filter. Others may be typed or sent, too: of what has left."""

    area: Options
    person: Options
    runbook: Options
    state: Options
    hosts: Sequence[str]


def list_choices(policy: Policy) -> Choices:
    """Return what the filters offer under a policy."""
    people = sorted(policy.household.people.values(), key=lambda one: one.name)
    areas = sorted(policy.household.areas.values(), key=lambda one: one.title)
    return Choices(
        area={"": {area.name: area.title for area in areas}},
        person={"": {person.id: person.name for person in people}},
        runbook={"": {words: words for words in load_catalogue()}},
        state=_STATES,
        hosts=sorted(host.name for host in policy.inventory),
    )

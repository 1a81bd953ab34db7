"""Every field of every runbook refuses values that a host could execute or expand."""

import pytest

from bot.cli.runbook_kit.hostile_values import (
    HOSTILE_TEXTS,
    find_accepted_values,
    get_example_values,
    is_refused,
    list_hostile_values,
)
from bot.model import request_form
from connectors.command import QueryRunner
from runbooks import AnyRunbook, Check, Host, Report, load_catalogue

FIELDS = [
    pytest.param(runbook, name, id=f"{words}: {name}")
    for words, runbook in load_catalogue().items()
    for name in runbook.model_fields
]


@pytest.mark.parametrize(("runbook", "name"), FIELDS)
def test_every_field_of_every_runbook_refuses_hostile_values(runbook: type[AnyRunbook], name: str):
    assert len(list_hostile_values(runbook, name)) >= 12
    assert find_accepted_values(runbook, name, get_example_values(runbook)) == []


@pytest.mark.parametrize(("runbook", "name"), FIELDS)
def test_typed_hostile_values_are_refused_by_the_request_form(
    runbook: type[AnyRunbook], name: str
):
    values = get_example_values(runbook)
    typed = {key: str(value) for key, value in values.items() if value is not None}
    for value in list_hostile_values(runbook, name):
        if isinstance(value, str):
            with pytest.raises(request_form.RequestSyntaxError):
                request_form.parse_values(runbook, {**typed, name: value})


def test_hostile_values_are_refused_in_sharenfs_options():
    shared = load_catalogue()["zfs set"]
    values = {
        **get_example_values(shared),
        "property": "sharenfs",
        "value": "rw=@192.0.2.0/24",
    }
    assert find_accepted_values(shared, "value", values) == []
    options = [f"rw={word}" for word in HOSTILE_TEXTS if isinstance(word, str) and word != "*"]
    assert all(is_refused(shared, "value", {**values, "value": word}) for word in options)


class Careless(Check[str]):
    """A runbook whose author gave a field no pattern."""

    host: Host
    name: str

    def read(self, ask: QueryRunner) -> str:
        raise NotImplementedError

    def report(self, state: str) -> Report:
        return Report(state)


def test_without_a_pattern_a_field_accepts_hostile_values():
    accepted = find_accepted_values(Careless, "name", {"host": "lb1", "name": "tank"})
    assert {"; id", "$(id)", "../../etc/passwd", "*"} <= {str(each) for each in accepted}

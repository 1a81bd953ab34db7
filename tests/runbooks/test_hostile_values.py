"""No field of any runbook takes what a host might take for more than a value."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from bot.model import request_form
from connectors.command import QueryRunner
from runbooks import AnyRunbook, Check, Host, Report, load_catalogue
from tests.runbooks.hostile import (
    HOSTILE_ADDRESSES,
    HOSTILE_BOOLEANS,
    HOSTILE_CHOICES,
    HOSTILE_MOMENTS,
    HOSTILE_NUMBERS,
    HOSTILE_TEXTS,
)

FIELDS = [
    pytest.param(runbook, name, id=f"{words}: {name}")
    for words, runbook in load_catalogue().items()
    for name in runbook.model_fields
]
# How a JSON schema tells what a field is for.
BY_SCHEMA: Mapping[str, Sequence[object]] = {
    "ipv4": [each for each in HOSTILE_ADDRESSES if each is not None],
    "date-time": HOSTILE_MOMENTS,
    "integer": HOSTILE_NUMBERS,
    "number": HOSTILE_NUMBERS,
    "boolean": HOSTILE_BOOLEANS,
    "string": HOSTILE_TEXTS,
}


def example(runbook: type[AnyRunbook]) -> dict[str, object]:
    """Return the values of its example, which are all well."""
    return request_form.parse_request(
        runbook, request_form.split_words(runbook.example)
    ).model_dump(mode="json")


def hostile(runbook: type[AnyRunbook], name: str) -> list[object]:
    """Return the hostile values for what the field is for."""
    (blank,) = [each for each in request_form.list_form_fields(runbook) if each.name == name]
    kinds = list(_kinds(runbook.model_json_schema()["properties"][name]))
    if blank.choices and "boolean" not in kinds:
        spoilt = (each.replace("{}", word) for word in blank.choices for each in HOSTILE_CHOICES)
        return list(dict.fromkeys(spoilt))
    return list(BY_SCHEMA[next(kind for kind in BY_SCHEMA if kind in kinds)])


def _kinds(field: Mapping[str, Any]) -> Iterator[str]:
    yield from (field[key] for key in ("format", "type") if key in field)
    for one in field.get("anyOf", ()):
        yield from _kinds(one)


def taken(runbook: type[AnyRunbook], values: Mapping[str, object], name: str) -> list[object]:
    """Return the hostile values that the field takes: without a request nothing is ever sent."""
    return [
        value
        for value in hostile(runbook, name)
        if not _blamed(runbook, {**values, name: value}, name)
    ]


def _blamed(runbook: type[AnyRunbook], values: Mapping[str, object], name: str) -> bool:
    try:
        runbook.model_validate(values)
    except ValidationError as refused:
        return any(
            each["loc"][:1] == (name,) or each["msg"].startswith(f"Value error, {name} ")
            for each in refused.errors()
        )
    return False


@pytest.mark.parametrize(("runbook", "name"), FIELDS)
def test_every_field_of_every_runbook_refuses_what_is_hostile(
    runbook: type[AnyRunbook], name: str
):
    assert len(hostile(runbook, name)) >= 12
    assert taken(runbook, example(runbook), name) == []


@pytest.mark.parametrize(("runbook", "name"), FIELDS)
def test_it_is_refused_at_the_doors_where_people_type_it(runbook: type[AnyRunbook], name: str):
    typed = {key: str(value) for key, value in example(runbook).items() if value is not None}
    for value in hostile(runbook, name):
        if isinstance(value, str):
            with pytest.raises(request_form.RequestSyntaxError):
                request_form.parse_values(runbook, {**typed, name: value})


def test_what_a_dataset_is_exported_with_is_as_tight_as_a_plain_value():
    shared = load_catalogue()["zfs set"]
    values = {**example(shared), "property": "sharenfs", "value": "rw=@192.0.2.0/24"}
    assert taken(shared, values, "value") == []
    options = [f"rw={word}" for word in HOSTILE_TEXTS if isinstance(word, str) and word != "*"]
    assert [
        word for word in options if not _blamed(shared, {**values, "value": word}, "value")
    ] == []


class Careless(Check[str]):
    """A runbook whose author gave a field no pattern."""

    host: Host
    name: str

    def read(self, ask: QueryRunner) -> str:
        raise NotImplementedError

    def report(self, state: str) -> Report:
        return Report(state)


def test_with_the_pattern_removed_hostile_values_are_taken():
    slipped = taken(Careless, {"host": "lb1", "name": "tank"}, "name")
    assert {"; id", "$(id)", "../../etc/passwd", "*"} <= {str(each) for each in slipped}

"""Test whether a host has what its tags promise, with the checks that verify tags."""

from collections.abc import Iterator, Mapping
from typing import Any

from bot.model.request_form import (
    get_field_texts,
    get_required_tag,
    parse_request,
    split_words,
)
from connectors.errors import HostError
from connectors.fleet import Fleet
from connectors.inventory import Host
from runbooks import AnyRunbook, Check, Refused, read_report


def list_verifying_checks(
    runbooks: Mapping[str, type[AnyRunbook]],
) -> Mapping[str, type[Check[Any]]]:
    """Return those of the runbooks of a host that verify its tags, by their words."""
    return {
        words: runbook
        for words, runbook in runbooks.items()
        if issubclass(runbook, Check) and runbook.verifies_tag
    }


def list_tag_problems(
    fleet: Fleet, host: Host, runbooks: Mapping[str, type[AnyRunbook]]
) -> Iterator[str]:
    """Yield what the tags of a host promise and the host lacks, with what to do."""
    for words, runbook in list_verifying_checks(runbooks).items():
        if missing := _find_missing(fleet, _build_request(runbook, host.name)):
            yield f"it is tagged {get_required_tag(runbook)}, but `{words}` {missing}"


def _build_request(runbook: type[Check[Any]], host: str) -> Check[Any]:
    """Return a request for a host, with the values of the example in other required fields."""
    example = get_field_texts(parse_request(runbook, split_words(runbook.example)))
    required = [name for name, field in runbook.model_fields.items() if field.is_required()]
    return runbook.model_validate({**{name: example[name] for name in required}, "host": host})


def _find_missing(fleet: Fleet, check: Check[Any]) -> str:
    """Return why a check cannot be read or finds nothing; "" for what it finds, also problems."""
    try:
        report = read_report(check, fleet.run_query, check.report)
    except (HostError, Refused) as error:
        return f"fails: {error}"
    if report.healthy or report.table is not None:
        return ""
    return f"finds nothing: {report.findings[0]}"

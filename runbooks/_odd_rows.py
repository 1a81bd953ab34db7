"""What a host lists and a parser does not understand: findings of checks, notes of plans."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast, get_origin

from connectors.amounts import format_count
from connectors.command import Query, QueryRunner
from connectors.rows import OddRow, list_odd_rows
from connectors.visible_text import quote_text
from runbooks._plan import Plan, Refused, Report
from runbooks._runbook import Change, Runbook

State = TypeVar("State")
T = TypeVar("T")

# Odd rows that are shown; further ones are counted.
_MOST = 5
_MAX_TEXT = 200


class OddRowRefused(Refused):
    """What a host lists about the object of a change is not understood."""


class _OddRowCollector:
    """Runs queries, and keeps the odd rows of what they return."""

    def __init__(self, run_query: QueryRunner) -> None:
        self._run_query = run_query
        self.found: list[tuple[str, OddRow]] = []

    def run_query(self, host: str, query: Query[T], /) -> T:
        value = self._run_query(host, query)
        self.found += [
            (host, odd) for odd in list_odd_rows(value) if (host, odd) not in self.found
        ]
        return value


def read_report(
    runbook: Runbook[State], run_query: QueryRunner, report: Callable[[State], Report]
) -> Report:
    """Read the hosts of a request and return its report, with odd rows as findings.

    report: the method of the runbook that computes the report. Raises Refused and HostError.
    """
    collector = _OddRowCollector(run_query)
    made = report(runbook.read(collector.run_query))
    if not collector.found:
        return made
    count = format_count(len(collector.found), "row is", "rows are")
    return replace(
        made,
        summary=f"{made.summary}; {count} not understood",
        healthy=False,
        findings=[*made.findings, *_format_odd_rows(collector.found)],
    )


def read_plan(
    change: Change[State], run_query: QueryRunner, plan: Callable[[State], Plan]
) -> tuple[State, Plan]:
    """Read the hosts of a change; return the state and its plan, with odd rows as notes.

    plan: the method of the change that computes the plan.

    Raises:
        OddRowRefused: an odd row names what is to be changed.
        Refused: the plan is refused; the message includes odd rows.
        HostError: a host cannot be read.
    """
    collector = _OddRowCollector(run_query)
    state = change.read(collector.run_query)
    notes = [*_format_odd_rows(collector.found)]
    own = [
        *_format_odd_rows([(host, odd) for host, odd in collector.found if _names(change, odd)])
    ]
    if own:
        raise OddRowRefused(f"{'. '.join(own)}. Correct it on the host, or change it by hand")
    try:
        made = plan(state)
    except Refused as refused:
        if notes:
            raise Refused(f"{'. '.join([str(refused), *notes])}") from refused
        raise
    return state, replace(made, notes=[*made.notes, *notes]) if notes else made


def _names(change: Change[Any], odd: OddRow) -> bool:
    """Return whether an odd row has a value of the request as a word of its own."""
    return any(
        re.search(rf"(?<![\w.:-]){re.escape(value)}(?![\w/-])", odd.text, re.IGNORECASE)
        for value in _list_object_names(change)
    )


def _list_object_names(change: Change[Any]) -> Iterator[str]:
    """Yield the texts of a request that name an object: no host, number or choice."""
    for name, value in change.model_dump(mode="json").items():
        annotation = type(change).model_fields[name].annotation
        if name == "host" or get_origin(annotation) is Literal:
            continue
        values = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (one for one in values if isinstance(one, str) and one)


def _format_odd_rows(found: Sequence[tuple[str, OddRow]]) -> Iterator[str]:
    for host, odd in found[:_MOST]:
        text = quote_text(odd.text[:_MAX_TEXT])
        yield f"{host} printed a row that is not understood, {text}: {odd.reason}"
    if len(found) > _MOST:
        yield f"{format_count(len(found) - _MOST, 'further row')} could not be understood"

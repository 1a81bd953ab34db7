"""Request a sequence: several changes with one plan, one digest and the approvals of all of them.

The changes run one after the other, and none starts after one that did not succeed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.db import runs
from bot.db.runs import NewRun
from bot.model.agents import is_agent
from bot.model.errors import InvalidRequestError
from bot.model.run import RequestTerms, Run, format_title
from bot.model.sequence import MAX_PARTS, label_part, list_parts
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import (
    get_terms_of_run,
    record_new_request,
)


def request_sequence_again(context: WorkflowContext, run: Run, terms: RequestTerms) -> Run:
    """Plan a sequence again, with the same changes."""
    policy = context.policies.get_policy()
    with context.database.reading() as tx:
        children = runs.list_children(tx, run.id)
    parts = [build_part(child, terms, undo_of=child.undo_of) for child in children]
    return record_sequence(
        context, policy, parts, runbook=run.runbook, title=run.request, facts=_get_facts(run)
    )


def build_part(run: Run, terms: RequestTerms, *, undo_of: int | None) -> NewRun:
    """Return the change of a run as a part of a sequence. undo_of: the run that it undoes."""
    return NewRun(
        runbook=run.runbook,
        kind=run.kind,
        values=run.values,
        request=run.request,
        host=run.host,
        area=run.area,
        undo_of=undo_of,
        **get_terms_of_run(terms),
    )


def _get_facts(run: Run) -> dict[str, str]:
    labels = {label for label, _ in list_parts(run.values)}
    return {name: value for name, value in run.values.items() if name not in labels}


def record_sequence(
    context: WorkflowContext,
    policy: Policy,
    parts: Sequence[NewRun],
    *,
    runbook: str,
    title: str,
    facts: Mapping[str, str] | None = None,
) -> Run:
    """Record one request for these changes, which run in this order.

    Args:
        runbook: REBUILD or UNDO.
        title: The request in one line.
        facts: More values to bind and to show.

    Raises:
        InvalidRequestError: There are too many changes, or their hosts are in several areas or not
            in the inventory any more.
    """
    if is_agent(parts[0].requested_by):
        raise InvalidRequestError("an agent requests one change at a time")
    missing = sorted({part.host for part in parts if part.host not in policy.inventory.hosts})
    if missing:
        raise InvalidRequestError(f"no longer in the inventory: {', '.join(missing)}")
    areas = sorted({policy.get_area(part.host).name for part in parts})
    if len(areas) > 1:
        raise InvalidRequestError(
            f"these changes are in several areas with different owners, {', '.join(areas)}: "
            "request each area separately"
        )
    if len(parts) > MAX_PARTS:
        raise InvalidRequestError(
            f"these are {len(parts)} changes: request {MAX_PARTS} at most at once"
        )
    labels = [
        label_part(n, host=part.host, runbook=part.runbook)
        for n, part in enumerate(parts, start=1)
    ]
    titles = [format_title(part.request, undo_of=part.undo_of, timing=None) for part in parts]
    parent = replace(
        parts[0],
        runbook=runbook,
        values={**(facts or {}), **dict(zip(labels, titles, strict=True))},
        request=title,
        area=areas[0],
        hosts=tuple(dict.fromkeys(part.host for part in parts)),
        undo_of=None,
    )
    children = [replace(part, area=areas[0], replan_of=None) for part in parts]
    return record_new_request(context, policy, parent, children)

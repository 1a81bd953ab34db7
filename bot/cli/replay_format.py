"""A replay as text for a terminal, and as data for programs. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from bot.audit.formats import to_datetime
from bot.model import times as model_times
from bot.model.text import escape_to_one_line
from bot.model.times import format_iso
from bot.workflow.policy_replay import Replay, ReplayedRequest, ReplayOutcome, summarise_replay

_DIFFERENT_OUTCOMES = [fate for fate in ReplayOutcome if fate is not ReplayOutcome.SAME]
_COLUMN_HEADS: Mapping[ReplayOutcome, str] = {
    ReplayOutcome.MORE: "more",
    ReplayOutcome.REFUSED: "refused",
    ReplayOutcome.AT_ONCE: "no wait",
    ReplayOutcome.FEWER: "fewer",
    ReplayOutcome.LOST_APPROVALS: "lost",
    ReplayOutcome.ALLOWED: "allowed",
    ReplayOutcome.GONE: "gone",
    ReplayOutcome.SAME: "same",
}


def replay_to_data(replay: Replay) -> dict[str, Any]:
    """Return the replay for JSON, with every request that would have fared otherwise."""
    return {
        "version": replay.version,
        "requests": len(replay.requests),
        "more_approvals": replay.extra_approvals,
        "fates": _outcome_counts_to_data(replay.outcome_counts),
        "by_runbook": {
            name: _outcome_counts_to_data(fates)
            for name, fates in replay.count_outcomes_by(lambda past: past.runbook).items()
        },
        "by_person": {
            name: _outcome_counts_to_data(fates)
            for name, fates in replay.count_outcomes_by(lambda past: past.requested_by).items()
        },
        "gone": {
            "askers": dict(replay.unknown_requesters),
            "approvers": dict(replay.unknown_approvers),
        },
        "second_factor": [one.request.id for one in replay.requests if one.lacks_second_factor],
        "frozen": [one.request.id for one in replay.requests if one.was_frozen],
        "runs": [
            _request_to_data(one)
            for one in replay.requests
            if one.outcome is not ReplayOutcome.SAME
        ],
    }


def _outcome_counts_to_data(outcome_counts: Mapping[ReplayOutcome, int]) -> dict[str, int]:
    return {fate.value: outcome_counts[fate] for fate in ReplayOutcome if outcome_counts.get(fate)}


def _request_to_data(replayed_request: ReplayedRequest) -> dict[str, Any]:
    return {
        "run": replayed_request.request.id,
        "requested": format_iso(replayed_request.request.requested_at),
        "person": replayed_request.request.requested_by,
        "request": replayed_request.request.title,
        "fate": replayed_request.outcome.value,
        "approvals": replayed_request.required_approvals,
        "approvals_then": replayed_request.request.needed,
        "why": replayed_request.description,
    }


def format_replay(replay: Replay, *, since: int, limit: int, base_url: str) -> str:
    """Return it as lines. most: how many runs of each kind. address: of the pages, or ""."""
    total, then = len(replay.requests), model_times.format_moment(since)
    if not total:
        return f"nothing was asked for since {then}, so there is nothing to replay"
    requests = "1 request" if total == 1 else f"{total} requests"
    lines = [
        f"{requests} since {then}, through version {replay.version}:",
        summarise_replay(replay),
        *_describe_further_effects(replay),
    ]
    if replay.outcome_counts.get(ReplayOutcome.SAME, 0) < total:
        lines += [
            "",
            *_format_table("runbook", replay.count_outcomes_by(lambda past: past.runbook)),
        ]
        lines += [
            "",
            *_format_table("person", replay.count_outcomes_by(lambda past: past.requested_by)),
        ]
    for fate in _DIFFERENT_OUTCOMES:
        lines += _format_requests(
            fate, replay.list_with_outcome(fate), limit=limit, base_url=base_url
        )
    return "\n".join(map(escape_to_one_line, lines))


def _describe_further_effects(replay: Replay) -> Iterator[str]:
    """Say what else would be, beside each request's fate."""
    step_up = sum(one.lacks_second_factor for one in replay.requests)
    frozen = sum(one.was_frozen for one in replay.requests)
    if step_up:
        yield f"Approving {step_up} of them would take a second factor, and did not."
    if frozen:
        yield f"{frozen} of them were asked for in a freeze of this policy, and would wait."
    for what, people in (
        ("requested", replay.unknown_requesters),
        ("approved", replay.unknown_approvers),
    ):
        if people:
            names = ", ".join(f"{name} ({times})" for name, times in people.items())
            yield f"Not among its people, and {what}: {names}."


def _format_table(head: str, rows: Mapping[str, Mapping[ReplayOutcome, int]]) -> Iterator[str]:
    """Yield a line for each row in which anything is different; the others as one."""
    shown = {
        name: row for name, row in rows.items() if any(row.get(one) for one in _DIFFERENT_OUTCOMES)
    }
    fates = [fate for fate in ReplayOutcome if any(row.get(fate) for row in shown.values())]
    width = max(len(name) for name in [*shown, head])
    yield f"{head:<{width}}  " + "  ".join(_COLUMN_HEADS[fate] for fate in fates)
    for name, row in shown.items():
        cells = (f"{row.get(fate) or '·':>{len(_COLUMN_HEADS[fate])}}" for fate in fates)
        yield f"{name:<{width}}  {'  '.join(cells)}"
    if len(rows) > len(shown):
        yield f"…and {len(rows) - len(shown)} more for which nothing is different"


def _format_requests(
    outcome: ReplayOutcome, replayed_requests: list[ReplayedRequest], *, limit: int, base_url: str
) -> Iterator[str]:
    if not replayed_requests:
        return
    yield ""
    yield f"{outcome.value[:1].upper()}{outcome.value[1:]}"
    for one in replayed_requests[:limit]:
        past = one.request
        link = f"  {base_url}/runs/{past.id}" if base_url else ""
        yield (
            f"  run {past.id}  {to_datetime(past.requested_at):%Y-%m-%d %H:%M}  "
            f"{past.requested_by}: {past.title}{link}"
        )
        yield f"    {one.description}"
    if len(replayed_requests) > limit:
        yield f"  …and {len(replayed_requests) - limit} more: --json lists all"

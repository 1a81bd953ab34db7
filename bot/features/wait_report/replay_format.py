"""Result of a policy replay as text and as JSON data. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from bot.features.wait_report.replay import (
    Replay,
    ReplayedRequest,
    ReplayOutcome,
    summarise_replay,
)
from bot.model import times as model_times
from bot.model.text import escape_to_one_line, format_count
from bot.model.times import format_iso, to_datetime

_DIFFERENT_OUTCOMES = [outcome for outcome in ReplayOutcome if outcome is not ReplayOutcome.SAME]
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
    """Return the replay as JSON data, with every request whose outcome differs."""
    return {
        "version": replay.version,
        "requests": len(replay.requests),
        "more_approvals": replay.extra_approvals,
        "outcomes": _outcome_counts_to_data(replay.outcome_counts),
        "by_runbook": {
            name: _outcome_counts_to_data(counts)
            for name, counts in replay.count_outcomes_by(lambda past: past.runbook).items()
        },
        "by_person": {
            name: _outcome_counts_to_data(counts)
            for name, counts in replay.count_outcomes_by(lambda past: past.requested_by).items()
        },
        "gone": {
            "requesters": dict(replay.unknown_requesters),
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
    return {
        outcome.value: outcome_counts[outcome]
        for outcome in ReplayOutcome
        if outcome_counts.get(outcome)
    }


def _request_to_data(replayed_request: ReplayedRequest) -> dict[str, Any]:
    return {
        "run": replayed_request.request.id,
        "requested_at": format_iso(replayed_request.request.requested_at),
        "person": replayed_request.request.requested_by,
        "request": replayed_request.request.title,
        "outcome": replayed_request.outcome.value,
        "required_approvals": replayed_request.required_approvals,
        "required_approvals_then": replayed_request.request.needed,
        "description": replayed_request.description,
    }


def format_replay(replay: Replay, *, since: int, limit: int, base_url: str) -> str:
    """Return the replay as text.

    Args:
        since: Start of the replay, in microseconds since 1970.
        limit: Number of runs to list of each outcome.
        base_url: Address of the web pages, or "".
    """
    total, start = len(replay.requests), model_times.format_timestamp(since)
    if not total:
        return f"No requests since {start}: nothing to replay."
    requests = format_count(total, "request")
    lines = [
        f"{requests} since {start}, evaluated by version {replay.version}:",
        summarise_replay(replay),
        *_describe_further_effects(replay),
    ]
    if replay.outcome_counts.get(ReplayOutcome.SAME, 0) < total:
        lines += _format_table("runbook", replay.count_outcomes_by(lambda past: past.runbook))
        lines += _format_table("person", replay.count_outcomes_by(lambda past: past.requested_by))
    for outcome in _DIFFERENT_OUTCOMES:
        lines += _format_requests(
            outcome, replay.list_with_outcome(outcome), limit=limit, base_url=base_url
        )
    return "\n".join(map(escape_to_one_line, lines))


def _describe_further_effects(replay: Replay) -> Iterator[str]:
    """Yield effects other than the outcomes of requests."""
    step_up = sum(one.lacks_second_factor for one in replay.requests)
    frozen = sum(one.was_frozen for one in replay.requests)
    if step_up:
        yield f"Approving {step_up} of them would need a second factor and did not."
    if frozen:
        yield f"{frozen} of them were requested in a freeze of this policy and would be on hold."
    for role, people in (
        ("requesters", replay.unknown_requesters),
        ("approvers", replay.unknown_approvers),
    ):
        if people:
            names = ", ".join(f"{name} ({times})" for name, times in people.items())
            yield f"Unknown {role}: {names}."


def _format_table(head: str, rows: Mapping[str, Mapping[ReplayOutcome, int]]) -> Iterator[str]:
    """Yield an empty line, a line for each row that differs, and one line for all others."""
    shown = {
        name: row for name, row in rows.items() if any(row.get(one) for one in _DIFFERENT_OUTCOMES)
    }
    outcomes = [one for one in ReplayOutcome if any(row.get(one) for row in shown.values())]
    width = max(len(name) for name in [*shown, head])
    yield ""
    yield f"{head:<{width}}  " + "  ".join(_COLUMN_HEADS[one] for one in outcomes)
    for name, row in shown.items():
        cells = (f"{row.get(one) or '·':>{len(_COLUMN_HEADS[one])}}" for one in outcomes)
        yield f"{name:<{width}}  {'  '.join(cells)}"
    if len(rows) > len(shown):
        yield f"…and {len(rows) - len(shown)} more without a difference"


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

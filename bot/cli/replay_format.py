"""A replay as text for a terminal, and as data for programs. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from bot.audit.formats import to_utc
from bot.model import times as model_times
from bot.model.text import escape_to_one_line
from bot.model.times import format_iso
from bot.workflow.policy_replay import Replay, ReplayOutcome, Verdict, summarise_replay

_DIFFERENT = [fate for fate in ReplayOutcome if fate is not ReplayOutcome.SAME]
_HEADS: Mapping[ReplayOutcome, str] = {
    ReplayOutcome.MORE: "more",
    ReplayOutcome.REFUSED: "refused",
    ReplayOutcome.AT_ONCE: "no wait",
    ReplayOutcome.FEWER: "fewer",
    ReplayOutcome.LOST: "lost",
    ReplayOutcome.ALLOWED: "allowed",
    ReplayOutcome.GONE: "gone",
    ReplayOutcome.SAME: "same",
}


def as_data(replayed: Replay) -> dict[str, Any]:
    """Return the replay for JSON, with every request that would have fared otherwise."""
    return {
        "version": replayed.version,
        "requests": len(replayed.verdicts),
        "more_approvals": replayed.extra,
        "fates": _by_name(replayed.counts),
        "by_runbook": {
            name: _by_name(fates) for name, fates in replayed.by(lambda past: past.words).items()
        },
        "by_person": {
            name: _by_name(fates)
            for name, fates in replayed.by(lambda past: past.asked_by).items()
        },
        "gone": {
            "askers": dict(replayed.gone_askers),
            "approvers": dict(replayed.gone_approvers),
        },
        "second_factor": [one.past.id for one in replayed.verdicts if one.step_up],
        "frozen": [one.past.id for one in replayed.verdicts if one.frozen],
        "runs": [_verdict(one) for one in replayed.verdicts if one.fate is not ReplayOutcome.SAME],
    }


def _by_name(fates: Mapping[ReplayOutcome, int]) -> dict[str, int]:
    return {fate.value: fates[fate] for fate in ReplayOutcome if fates.get(fate)}


def _verdict(one: Verdict) -> dict[str, Any]:
    return {
        "run": one.past.id,
        "asked": format_iso(one.past.asked),
        "person": one.past.asked_by,
        "request": one.past.title,
        "fate": one.fate.value,
        "approvals": one.approvals,
        "approvals_then": one.past.needed,
        "why": one.words,
    }


def as_text(replayed: Replay, *, since: int, most: int, address: str) -> str:
    """Return it as lines. most: how many runs of each kind. address: of the pages, or ""."""
    total, then = len(replayed.verdicts), model_times.format_moment(since)
    if not total:
        return f"nothing was asked for since {then}, so there is nothing to replay"
    requests = "1 request" if total == 1 else f"{total} requests"
    lines = [
        f"{requests} since {then}, through version {replayed.version}:",
        summarise_replay(replayed),
        *_beside(replayed),
    ]
    if replayed.counts.get(ReplayOutcome.SAME, 0) < total:
        lines += ["", *_table("runbook", replayed.by(lambda past: past.words))]
        lines += ["", *_table("person", replayed.by(lambda past: past.asked_by))]
    for fate in _DIFFERENT:
        lines += _runs(fate, replayed.of(fate), most=most, address=address)
    return "\n".join(map(escape_to_one_line, lines))


def _beside(replayed: Replay) -> Iterator[str]:
    """Say what else would be, beside each request's fate."""
    step_up = sum(one.step_up for one in replayed.verdicts)
    frozen = sum(one.frozen for one in replayed.verdicts)
    if step_up:
        yield f"Approving {step_up} of them would take a second factor, and did not."
    if frozen:
        yield f"{frozen} of them were asked for in a freeze of this policy, and would wait."
    for what, people in (
        ("asked", replayed.gone_askers),
        ("approved", replayed.gone_approvers),
    ):
        if people:
            names = ", ".join(f"{name} ({times})" for name, times in people.items())
            yield f"Not among its people, and {what}: {names}."


def _table(head: str, rows: Mapping[str, Mapping[ReplayOutcome, int]]) -> Iterator[str]:
    """Yield a line for each row in which anything is different; the others as one."""
    shown = {name: row for name, row in rows.items() if any(row.get(one) for one in _DIFFERENT)}
    fates = [fate for fate in ReplayOutcome if any(row.get(fate) for row in shown.values())]
    width = max(len(name) for name in [*shown, head])
    yield f"{head:<{width}}  " + "  ".join(_HEADS[fate] for fate in fates)
    for name, row in shown.items():
        cells = (f"{row.get(fate) or '·':>{len(_HEADS[fate])}}" for fate in fates)
        yield f"{name:<{width}}  {'  '.join(cells)}"
    if len(rows) > len(shown):
        yield f"…and {len(rows) - len(shown)} more for which nothing is different"


def _runs(fate: ReplayOutcome, found: list[Verdict], *, most: int, address: str) -> Iterator[str]:
    if not found:
        return
    yield ""
    yield f"{fate.value[:1].upper()}{fate.value[1:]}"
    for one in found[:most]:
        past = one.past
        link = f"  {address}/runs/{past.id}" if address else ""
        yield (
            f"  run {past.id}  {to_utc(past.asked):%Y-%m-%d %H:%M}  "
            f"{past.asked_by}: {past.title}{link}"
        )
        yield f"    {one.words}"
    if len(found) > most:
        yield f"  …and {len(found) - most} more: --json lists all"

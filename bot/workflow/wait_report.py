"""The tally: how long people wait for approvals, and what could be lifted to self-service."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bot.db import history, stats
from bot.db.database import Transaction
from bot.db.stats import Wait
from bot.model.run import State
from bot.policy import NoPolicy, Policy
from bot.workflow.policy_replay import ReplayOutcome, replay_requests, summarise_replay

QUARTER = 91
_DAY = 86_400_000_000
_HOUR = 3_600_000_000
# So often everybody said yes before nobody needs to be asked.
_ENOUGH = 5
_MOST_LIFTS = 5
# So many runs are looked at, the newest: a page must not walk years of a busy place.
MOST_RUNS = 20_000
_WELL = frozenset({State.SUCCEEDED, State.UNCHANGED})


@dataclass(frozen=True)
class WaitRow:
    """One row: of a runbook, an area or an hour. Lengths are microseconds; None where nothing was
    decided. ninth: of ten, nine waited no longer.
    """

    name: str
    asked: int
    approved: int
    denied: int
    expired: int
    waiting: int
    middle: int | None
    ninth: int | None
    longest: int | None

    @property
    def rate(self) -> float | None:
        """How many of those decided, or left to expire, were approved: between 0 and 1."""
        decided = self.approved + self.denied + self.expired
        return self.approved / decided if decided else None


@dataclass(frozen=True)
class SelfServiceSuggestion:
    """What could go without approvals. rule: the text to add to policy.cedar. asked: how often it
    was. waited: how long in all, microseconds. at_once: how many of them would not have waited;
    replayed: what the replay says in a line.
    """

    runbook: str
    area: str
    area_title: str
    asked: int
    waited: int
    middle: int
    rule: str
    at_once: int
    replayed: str


@dataclass(frozen=True)
class WaitReport:
    """days: how far it was to go back; since: how far it does, as only so many runs are looked at;
    cut: whether that is less. hours: 24 lines by the hour of asking, UTC.
    """

    days: int
    since: int
    cut: bool
    total: WaitRow
    runbooks: Sequence[WaitRow]
    areas: Sequence[WaitRow]
    hours: Sequence[WaitRow]
    lifts: Sequence[SelfServiceSuggestion]


def build_wait_report(
    tx: Transaction, policy: Policy, *, days: int = QUARTER, most: int = MOST_RUNS
) -> WaitReport:
    """Look back so many days, and at so many runs at most."""
    wanted = tx.now - days * _DAY
    since = stats.get_horizon(tx, wanted, most=most)
    found = list(stats.list_waits_since(tx, since))
    titles = {area.name: area.title for area in policy.household.areas.values()}
    hours = _by(found, lambda one: f"{one.asked // _HOUR % 24:02d}")
    return WaitReport(
        days,
        since,
        since > wanted,
        _line("all", found),
        _lines(_by(found, lambda one: one.words)),
        _lines(_by(found, lambda one: titles.get(one.area, one.area))),
        [_line(f"{hour:02d}", hours.get(f"{hour:02d}", ())) for hour in range(24)],
        _lifts(tx, policy, found, since),
    )


def _by(found: Iterable[Wait], trait: Callable[[Wait], str]) -> dict[str, list[Wait]]:
    groups: dict[str, list[Wait]] = {}
    for one in found:
        groups.setdefault(trait(one), []).append(one)
    return groups


def _lines(groups: Mapping[str, Sequence[Wait]]) -> list[WaitRow]:
    """Return a line of each, those that were waited for longest in all first."""
    most = sorted(groups, key=lambda name: (-sum(one.length or 0 for one in groups[name]), name))
    return [_line(name, groups[name]) for name in most]


def _line(name: str, found: Sequence[Wait]) -> WaitRow:
    lengths = sorted(one.length for one in found if one.length is not None)
    return WaitRow(
        name=name,
        asked=len(found),
        approved=sum(one.approved for one in found),
        denied=sum(one.state is State.DENIED for one in found),
        expired=sum(one.state is State.EXPIRED and not one.approved for one in found),
        waiting=sum(one.length is None for one in found),
        middle=round(median(lengths)) if lengths else None,
        ninth=lengths[-(-len(lengths) * 9 // 10) - 1] if lengths else None,
        longest=lengths[-1] if lengths else None,
    )


def _lifts(
    tx: Transaction, policy: Policy, found: Sequence[Wait], since: int
) -> list[SelfServiceSuggestion]:
    groups: dict[tuple[str, str], list[Wait]] = {}
    for one in found:
        groups.setdefault((one.words, one.area), []).append(one)
    likely = [(*key, group) for key, group in groups.items() if _always_well(policy, group)]
    likely.sort(key=lambda each: -sum(one.length or 0 for one in each[2]))
    lifts = [
        _lift(tx, policy, words, area, group, since) for words, area, group in likely[:_MOST_LIFTS]
    ]
    return [lift for lift in lifts if lift is not None]


def _always_well(policy: Policy, group: Sequence[Wait]) -> bool:
    """Say whether it was always approved and always went well, and its area is still there."""
    decided = [one for one in group if one.length is not None]
    well = all(one.approved and one.state in _WELL for one in decided)
    return well and len(decided) >= _ENOUGH and group[0].area in policy.household.areas


def _lift(
    tx: Transaction, policy: Policy, words: str, area: str, group: Sequence[Wait], since: int
) -> SelfServiceSuggestion | None:
    pasts = list(history.list_past_requests(tx, since, words=words, area=area))
    if not all(one.reversible for one in pasts):
        return None
    rule = _rule(policy, words, area, {one.asked_by for one in group})
    try:
        replayed = replay_requests(policy.with_rule(rule), pasts) if rule else None
    except NoPolicy:
        return None
    at_once = replayed.counts.get(ReplayOutcome.AT_ONCE, 0) if replayed else 0
    if replayed is None or not at_once:
        return None
    whole = _line("", group)
    return SelfServiceSuggestion(
        runbook=words,
        area=area,
        area_title=policy.household.areas[area].title,
        asked=len(group),
        waited=sum(one.length or 0 for one in group),
        middle=whole.middle or 0,
        rule=rule,
        at_once=at_once,
        replayed=summarise_replay(replayed),
    )


def _rule(policy: Policy, words: str, area: str, askers: Iterable[str]) -> str:
    """Write the rule that lets those who asked have it done at once; "" if none have a role."""
    people = [person for asker in askers if (person := policy.person(asker))]
    roles = sorted({role for person in people for role in person.roles})
    shared = [role for role in roles if all(role in person.roles for person in people)]
    if not roles:
        return ""
    who = " || ".join(f"principal in Role::{_text(role)}" for role in shared[:1] or roles)
    title = policy.household.areas[area].title
    return f"""\
@id({_text(f"{words} in {area} is self-service")})
@overrides
@says({_text(f"{words} in {title} needs no approval: it can be undone.")})
permit (principal, action == Action::"ask", resource in Area::{_text(area)})
when {{
  ({who}) &&
  context.runbook == {_text(words)} && context.kind == "change" && context.reversible
}};
"""


def _text(words: str) -> str:
    """Quote it as Cedar does: what JSON makes of other letters than English ones it knows not."""
    return json.dumps(words, ensure_ascii=False)

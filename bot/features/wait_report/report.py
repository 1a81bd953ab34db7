"""Report how long people wait for approvals, and what could become self-service."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bot.db import history, stats
from bot.db.database import Transaction
from bot.db.stats import Wait
from bot.model.run import State
from bot.model.times import DAY, parse_time_zone, to_datetime
from bot.policy import Policy
from bot.policy.explain import format_wait
from bot.queries.digest import DigestSection

DEFAULT_DAYS = 91
# So many approved runs are needed before self-service is suggested.
_MIN_DECIDED_RUNS = 5
_MAX_SUGGESTIONS = 5
# Only so many runs are evaluated, the newest, to bound the time of a page.
MAX_RUNS = 20_000
_DIGEST_DAYS, _MAX_DIGEST_RUNS = 7, 2000
_SUCCESSFUL_STATES = frozenset({State.SUCCEEDED, State.NO_CHANGES})


@dataclass(frozen=True)
class WaitRow:
    """Waits of one runbook, area or hour, in microseconds; None if nothing was decided."""

    name: str
    requested: int
    approved: int
    denied: int
    expired: int
    pending: int
    median: int | None
    ninth_decile: int | None
    """Nine of ten waits were not longer."""
    longest: int | None

    @property
    def approval_rate(self) -> float | None:
        """The share of decided and expired runs that were approved, from 0 to 1."""
        decided = self.approved + self.denied + self.expired
        return self.approved / decided if decided else None


@dataclass(frozen=True)
class SelfServiceSuggestion:
    """A runbook in an area that could run without approvals."""

    runbook: str
    area: str
    area_title: str
    requested: int
    """How often it was requested."""
    total_wait: int
    """Microseconds."""
    median: int
    """Microseconds."""


@dataclass(frozen=True)
class WaitReport:
    """Waits for approvals, in total and by runbook, area and hour."""

    days: int
    """How many days back the report was requested for."""
    since: int
    """How far back it reaches, microseconds since 1970."""
    is_truncated: bool
    """Whether it reaches less far, because there were too many runs."""
    total: WaitRow
    runbooks: Sequence[WaitRow]
    areas: Sequence[WaitRow]
    hours: Sequence[WaitRow]
    """24 rows, by the hour of the request."""
    suggestions: Sequence[SelfServiceSuggestion]


def build_wait_report(
    tx: Transaction,
    policy: Policy,
    *,
    days: int = DEFAULT_DAYS,
    limit: int = MAX_RUNS,
    zone: str = "UTC",
) -> WaitReport:
    """Build the report of the last *days* days, from at most *limit* runs, by hours of *zone*."""
    tz = parse_time_zone(zone)
    wanted = tx.now - days * DAY
    since = stats.get_horizon(tx, wanted, most=limit)
    found = list(stats.list_waits_since(tx, since))
    titles = {area.name: area.title for area in policy.organisation.areas.values()}
    hours = _group_waits(found, lambda one: f"{to_datetime(one.requested_at).astimezone(tz):%H}")
    return WaitReport(
        days,
        since,
        since > wanted,
        _build_row("all", found),
        _build_rows(_group_waits(found, lambda one: one.runbook)),
        _build_rows(_group_waits(found, lambda one: titles.get(one.area, one.area))),
        [_build_row(f"{hour:02d}", hours.get(f"{hour:02d}", ())) for hour in range(24)],
        _build_suggestions(tx, policy, found, since),
    )


def _group_waits(waits: Iterable[Wait], get_key: Callable[[Wait], str]) -> dict[str, list[Wait]]:
    groups: dict[str, list[Wait]] = {}
    for one in waits:
        groups.setdefault(get_key(one), []).append(one)
    return groups


def _build_rows(groups: Mapping[str, Sequence[Wait]]) -> list[WaitRow]:
    """Return a row for each group, the longest total wait first."""
    most = sorted(groups, key=lambda name: (-sum(one.length or 0 for one in groups[name]), name))
    return [_build_row(name, groups[name]) for name in most]


def _build_row(name: str, waits: Sequence[Wait]) -> WaitRow:
    lengths = sorted(one.length for one in waits if one.length is not None)
    return WaitRow(
        name=name,
        requested=len(waits),
        approved=sum(one.approved for one in waits),
        denied=sum(one.state is State.DENIED for one in waits),
        expired=sum(one.state is State.EXPIRED and not one.approved for one in waits),
        pending=sum(one.length is None for one in waits),
        median=round(median(lengths)) if lengths else None,
        ninth_decile=lengths[-(-len(lengths) * 9 // 10) - 1] if lengths else None,
        longest=lengths[-1] if lengths else None,
    )


def _build_suggestions(
    tx: Transaction, policy: Policy, waits: Sequence[Wait], since: int
) -> list[SelfServiceSuggestion]:
    groups: dict[tuple[str, str], list[Wait]] = {}
    for one in waits:
        groups.setdefault((one.runbook, one.area), []).append(one)
    candidates = [
        (*key, group) for key, group in groups.items() if _is_always_successful(policy, group)
    ]
    candidates.sort(key=lambda each: -sum(one.length or 0 for one in each[2]))
    suggestions = [
        _build_suggestion(tx, policy, words, area, group, since)
        for words, area, group in candidates[:_MAX_SUGGESTIONS]
    ]
    return [each for each in suggestions if each is not None]


def _is_always_successful(policy: Policy, waits: Sequence[Wait]) -> bool:
    """Return whether all runs were approved and succeeded, and their area still exists."""
    decided = [one for one in waits if one.length is not None]
    is_successful = all(one.approved and one.state in _SUCCESSFUL_STATES for one in decided)
    return (
        is_successful
        and len(decided) >= _MIN_DECIDED_RUNS
        and waits[0].area in policy.organisation.areas
    )


def _build_suggestion(
    tx: Transaction, policy: Policy, runbook: str, area: str, waits: Sequence[Wait], since: int
) -> SelfServiceSuggestion | None:
    pasts = list(history.list_past_requests(tx, since, words=runbook, area=area))
    if not all(one.reversible for one in pasts):
        return None
    row = _build_row("", waits)
    return SelfServiceSuggestion(
        runbook=runbook,
        area=area,
        area_title=policy.organisation.areas[area].title,
        requested=len(waits),
        total_wait=sum(one.length or 0 for one in waits),
        median=row.median or 0,
    )


def build_digest(tx: Transaction, policy: Policy, owned: set[str]) -> Sequence[DigestSection]:
    """Say how long requests waited in some areas, and what could be self-service there."""
    report = build_wait_report(tx, policy, days=_DIGEST_DAYS, limit=_MAX_DIGEST_RUNS)
    titles = {policy.organisation.areas[name].title for name in owned}
    waits = [
        f"{row.name}: {row.requested} requested, {row.approved} approved, {row.denied} denied, "
        f"{row.expired} expired, {row.pending} pending"
        + (f"; usual wait {format_wait(row.median)}" if row.median else "")
        for row in report.areas
        if row.name in titles
    ]
    suggestions = [
        f"{one.runbook} in {one.area_title}: {one.requested} requests, all approved"
        for one in report.suggestions
        if one.area in owned
    ]
    return [
        DigestSection(f"Approvals in {_DIGEST_DAYS} days", waits),
        DigestSection("Could be self-service: see the approval report", suggestions),
    ]

"""The current policy summary, cached for each version of the policy and each week."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from bot.model.runbook_info import list_runbook_info
from bot.model.times import to_datetime
from bot.policy import Policy
from bot.policy.summary.build import summarise_freezes, summarise_policy
from bot.policy.summary.model import PolicySummary


def summarise_current_policy(
    policy: Policy, microseconds: int, *, person: str = ""
) -> PolicySummary:
    """Return what everyone may do now, or one person. microseconds: since 1970."""
    now = to_datetime(microseconds)
    monday = now.date() - timedelta(days=now.weekday())
    return replace(_summarise_week(policy, monday, person), freezes=summarise_freezes(policy, now))


@lru_cache(maxsize=64)
def _summarise_week(policy: Policy, monday: date, person: str) -> PolicySummary:
    week = datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    return summarise_policy(policy, list_runbook_info(), now=week, person=person)

"""The charter: what the policy lets people do, in plain words that come from the rules."""

from bot.policy.summary.build import summarise_policy
from bot.policy.summary.model import (
    AreaSummary,
    Clause,
    FreezeSummary,
    PeopleSummary,
    PolicySummary,
)

__all__ = [
    "AreaSummary",
    "Clause",
    "FreezeSummary",
    "PeopleSummary",
    "PolicySummary",
    "summarise_policy",
]

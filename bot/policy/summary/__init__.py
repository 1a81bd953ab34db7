"""The charter: what the policy lets people do, in plain words that come from the rules."""

from bot.policy.summary.build import summarise_policy
from bot.policy.summary.model import AreaSummary, Chapter, Clause, FreezeSummary, PolicySummary

__all__ = [
    "AreaSummary",
    "Chapter",
    "Clause",
    "FreezeSummary",
    "PolicySummary",
    "summarise_policy",
]

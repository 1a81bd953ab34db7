"""The policy summary: what the policy permits each person to do, computed from the rules."""

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

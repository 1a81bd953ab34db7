"""The policy: who may request and approve what, where, with how many approvals. Default deny."""

from bot.policy.cedar import Ruling
from bot.policy.loader import PolicyDirectory, PolicySource
from bot.policy.people import Organisation, Person, SlackAccount
from bot.policy.policy import Policy, PolicyRequest
from bot.policy.problem import NoPolicyError, PolicyProblem

__all__ = [
    "NoPolicyError",
    "Organisation",
    "Person",
    "Policy",
    "PolicyDirectory",
    "PolicyProblem",
    "PolicyRequest",
    "PolicySource",
    "Ruling",
    "SlackAccount",
]

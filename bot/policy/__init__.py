"""The policy: who may ask and approve what, where, and with how many keys. Default deny."""

from bot.policy.directory import PolicyDirectory
from bot.policy.people import Household, Person, SlackIdentity
from bot.policy.policy import Policy, Request
from bot.policy.problem import NoPolicy, Problem
from bot.policy.rules import Ruling

__all__ = [
    "Household",
    "NoPolicy",
    "Person",
    "Policy",
    "PolicyDirectory",
    "Problem",
    "Request",
    "Ruling",
    "SlackIdentity",
]

"""The policy: who may ask and approve what, where, and with how many keys. Default deny."""

from bot.policy.cedar import Ruling
from bot.policy.loader import PolicyDirectory
from bot.policy.people import Household, Person, SlackIdentity
from bot.policy.policy import Policy, Request
from bot.policy.problem import NoPolicy, Problem

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

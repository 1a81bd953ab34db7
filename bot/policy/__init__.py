"""The policy: who may ask and approve what, where, and with how many keys. Default deny."""

from bot.policy.directory import PolicyDirectory
from bot.policy.people import Household, Person, SlackIdentity
from bot.policy.policy import NoPolicy, Policy, Request
from bot.policy.rules import Ruling

__all__ = [
    "Household",
    "NoPolicy",
    "Person",
    "Policy",
    "PolicyDirectory",
    "Request",
    "Ruling",
    "SlackIdentity",
]

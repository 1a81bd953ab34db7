"""Slips: what a valid policy says that is probably mistyped. Pure.

Runbooks come and go, and people may have a role before any rule speaks of it: so none of this
keeps a policy from being used.
"""

from collections.abc import Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bot.policy.policy import Policy
from bot.policy.problem import Problem


def slips(policy: Policy, runbooks: Collection[str]) -> list[Problem]:
    """Return them all. runbooks: the words of all that there are."""
    return [*_of_rules(policy, runbooks), *_of_freezes(policy, runbooks), *_of_roles(policy)]


def _of_rules(policy: Policy, runbooks: Collection[str]) -> list[Problem]:
    return [
        Problem(
            f'rule "{one.rule}": there is no runbook "{one.words}"{_meant(one.words, runbooks)}',
            "policy.cedar",
            one.line,
        )
        for one in policy.rules.wordings
        if one.about == "runbook" and one.words not in runbooks
    ]


def _of_freezes(policy: Policy, runbooks: Collection[str]) -> list[Problem]:
    return [
        Problem(
            f'{freeze.name}: no runbook is like "{pattern}"{_meant(pattern, runbooks)}',
            "freezes.yaml",
        )
        for freeze in policy.freezes.freezes
        for pattern in freeze.but
        if not any(fnmatchcase(words, pattern) for words in runbooks)
    ]


def _of_roles(policy: Policy) -> list[Problem]:
    spoken = {one.name for one in policy.rules.namings if one.kind == "Role"}
    known = spoken | set(policy.household.roles)
    return [
        Problem(
            f"{person.id} has the role {role}, of which no rule speaks{_meant(role, known)}",
            "people.yaml",
        )
        for person in policy.household.people.values()
        for role in person.roles
        if role not in known
    ]


def _meant(word: str, known: Collection[str]) -> str:
    like = get_close_matches(word, known, n=1)
    return f': is "{like[0]}" meant?' if like else ""

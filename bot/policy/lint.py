"""Slips: what a valid policy says that is probably mistyped. Pure.

Runbooks come and go, and people may have a role before any rule speaks of it: so none of this
keeps a policy from being used.
"""

from collections.abc import Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bot.policy.policy import Policy
from bot.policy.problem import Problem


def list_warnings(policy: Policy, runbooks: Collection[str]) -> list[Problem]:
    """Return them all. runbooks: the words of all that there are."""
    return [
        *_of_rules(policy, runbooks),
        *_of_viewing(policy),
        *_of_freezes(policy, runbooks),
        *_of_roles(policy),
    ]


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


def _of_viewing(policy: Policy) -> list[Problem]:
    """Find people who see less than they are to decide about."""
    if not policy.rules.viewing.permits:
        why = (
            'no rule permits the action "view": people see only the runs that they requested or '
            "decided, and nobody can approve. Add a permit to view, such as the one that "
            "`keyturn init` writes"
        )
        return [Problem(why, "policy.cedar")]
    return [
        Problem(
            f"{owner} owns {area.name} and may not view every run there, so cannot approve those "
            "runs: permit it, or name another owner",
            "policy.cedar",
        )
        for area in policy.household.areas.values()
        for owner in area.owners
        if not _views_all(policy, owner, area.name)
    ]


def _views_all(policy: Policy, person: str, area: str) -> bool:
    """Say whether a person may view runs of every runbook on every host of an area."""
    sight = policy.sight(person)
    runbooks = {"", *(sight.runbooks or ())}
    return all(
        sight.may_view(host=host.name, runbook=runbook, kind=kind)
        for host in policy.inventory
        if host.area == area
        for runbook in runbooks
        for kind in sight.kinds
    )


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

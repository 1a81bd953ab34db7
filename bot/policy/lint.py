"""Slips: what a valid policy says that is probably mistyped. Pure.

Runbooks come and go, and people may have a role before any rule speaks of it: so none of this
keeps a policy from being used.
"""

from collections.abc import Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bot.policy.policy import Policy
from bot.policy.problem import PolicyProblem


def list_warnings(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    """Return them all. runbooks: the words of all that there are."""
    return [
        *_find_unknown_runbooks(policy, runbooks),
        *_find_missing_view_rights(policy),
        *_find_unknown_exceptions(policy, runbooks),
        *_find_unused_roles(policy),
    ]


def _find_unknown_runbooks(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    return [
        PolicyProblem(
            f'rule "{one.rule}": there is no runbook '
            f'"{one.value}"{_suggest_known_name(one.value, runbooks)}',
            "policy.cedar",
            one.line,
        )
        for one in policy.rules.comparisons
        if one.attribute == "runbook" and one.value not in runbooks
    ]


def _find_missing_view_rights(policy: Policy) -> list[PolicyProblem]:
    """Find people who see less than they are to decide about."""
    if not policy.rules.view_rules.has_permit:
        why = (
            'no rule permits the action "view": people see only the runs that they requested or '
            "decided, and nobody can approve. Add a permit to view, such as the one that "
            "`keyturn init` writes"
        )
        return [PolicyProblem(why, "policy.cedar")]
    return [
        PolicyProblem(
            f"{owner} owns {area.name} and may not view every run there, so cannot approve those "
            "runs: permit it, or name another owner",
            "policy.cedar",
        )
        for area in policy.organisation.areas.values()
        for owner in area.owners
        if not _can_view_all(policy, owner, area.name)
    ]


def _can_view_all(policy: Policy, person: str, area: str) -> bool:
    """Say whether a person may view runs of every runbook on every host of an area."""
    sight = policy.get_view_rights(person)
    runbooks = {"", *(sight.runbooks or ())}
    return all(
        sight.can_view(host=host.name, runbook=runbook, kind=kind)
        for host in policy.inventory
        if host.area == area
        for runbook in runbooks
        for kind in sight.kinds
    )


def _find_unknown_exceptions(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    return [
        PolicyProblem(
            f"{freeze.name}: no runbook is like "
            f'"{pattern}"{_suggest_known_name(pattern, runbooks)}',
            "freezes.yaml",
        )
        for freeze in policy.freezes.freezes
        for pattern in freeze.but
        if not any(fnmatchcase(words, pattern) for words in runbooks)
    ]


def _find_unused_roles(policy: Policy) -> list[PolicyProblem]:
    spoken = {one.name for one in policy.rules.entity_references if one.kind == "Role"}
    known = spoken | set(policy.organisation.roles)
    return [
        PolicyProblem(
            f"{person.id} has the role {role}, of which no rule "
            f"speaks{_suggest_known_name(role, known)}",
            "people.yaml",
        )
        for person in policy.organisation.people.values()
        for role in person.roles
        if role not in known
    ]


def _suggest_known_name(word: str, known_names: Collection[str]) -> str:
    like = get_close_matches(word, known_names, n=1)
    return f': is "{like[0]}" meant?' if like else ""

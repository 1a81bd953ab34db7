"""Warnings about a valid policy: names that are probably mistyped. Pure.

Runbooks come and go, and people may have a role before any rule names it, so a policy with
warnings is still used.
"""

from collections.abc import Collection
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bot.model.host_patterns import is_meant_by_part
from bot.policy.policy import Policy
from bot.policy.problem import PolicyProblem


def list_warnings(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    """Return every warning. runbooks: the names of all runbooks."""
    return [
        *policy.warnings,
        *_find_unknown_runbooks(policy, runbooks),
        *_find_missing_view_rights(policy),
        *_find_unknown_exceptions(policy, runbooks),
        *_find_freezes_without_hosts(policy),
        *_find_unused_roles(policy),
        *_find_clear_text_devices(policy),
    ]


def _find_clear_text_devices(policy: Policy) -> list[PolicyProblem]:
    return [
        PolicyProblem(
            f"{host.name}: SNMP 2c sends its community in clear text, and nothing proves which "
            "device answers: set up a user of version 3",
            "inventory.yaml",
        )
        for host in policy.inventory
        if host.snmp is not None and host.snmp.community_file is not None
    ]


def _find_unknown_runbooks(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    return [
        PolicyProblem(
            f'rule "{one.rule}": unknown runbook '
            f'"{one.value}"{_suggest_known_name(one.value, runbooks)}',
            "policy.cedar",
            one.line,
        )
        for one in policy.rules.comparisons
        if one.attribute == "runbook" and one.value not in runbooks
    ]


def _find_missing_view_rights(policy: Policy) -> list[PolicyProblem]:
    """Find owners who cannot view every run that they may have to approve."""
    if not policy.rules.view_rules.has_permit:
        message = (
            'no rule permits the action "view": people see only the runs that they requested or '
            "decided, and no one can approve. Add a permit to view, such as the one that "
            "`keyturn init` writes"
        )
        return [PolicyProblem(message, "policy.cedar")]
    return [
        PolicyProblem(
            f"{owner} owns {area.name} but cannot view every run there, so cannot approve those "
            "runs: permit it in a rule, or name another owner",
            "policy.cedar",
        )
        for area in policy.organisation.areas.values()
        for owner in area.owners
        if not _can_view_all(policy, owner, area.name)
    ]


def _can_view_all(policy: Policy, person: str, area: str) -> bool:
    """Return whether a person can view runs of every runbook on every host of an area."""
    rights = policy.get_view_rights(person)
    runbooks = {"", *(rights.runbooks or ())}
    return all(
        rights.can_view(host=host.name, runbook=runbook, kind=kind)
        for host in policy.inventory
        if host.area == area
        for runbook in runbooks
        for kind in rights.kinds
    )


def _find_unknown_exceptions(policy: Policy, runbooks: Collection[str]) -> list[PolicyProblem]:
    return [
        PolicyProblem(
            f"{freeze.name}: no runbook matches "
            f'"{pattern}"{_suggest_known_name(pattern, runbooks)}',
            "freezes.yaml",
        )
        for freeze in policy.freezes.freezes
        for pattern in freeze.but
        if not any(fnmatchcase(words, pattern) for words in runbooks)
    ]


def _find_freezes_without_hosts(policy: Policy) -> list[PolicyProblem]:
    return [
        PolicyProblem(f'{freeze.name}: no host matches "{part}"', "freezes.yaml")
        for freeze in policy.freezes.freezes
        for part in freeze.hosts
        if not any(is_meant_by_part(host.name, host.tags, part) for host in policy.inventory)
    ]


def _find_unused_roles(policy: Policy) -> list[PolicyProblem]:
    named = {one.name for one in policy.rules.entity_references if one.kind == "Role"}
    known = named | set(policy.organisation.roles)
    return [
        PolicyProblem(
            f"{person.id} has the role {role}, which no rule "
            f"uses{_suggest_known_name(role, known)}",
            "people.yaml",
        )
        for person in policy.organisation.people.values()
        for role in person.roles
        if role not in known
    ]


def _suggest_known_name(word: str, known_names: Collection[str]) -> str:
    similar = get_close_matches(word, known_names, n=1)
    return f': did you mean "{similar[0]}"?' if similar else ""

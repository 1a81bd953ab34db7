"""The rules, written in Cedar: what they say to one request. Pure.

Cedar denies by default and a forbid wins over every permit. How many approvals a permit takes,
and from whom, are annotations on it: see https://docs.cedarpolicy.com/policies/syntax-policy.html
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cedarpy

from bot.policy.mentions import mentions

SCHEMA = """
entity Role;
entity Owners;
entity Area;
entity Person in [Role, Owners] { name: String };
entity Host in [Area] { owners: Owners, tags: Set<String> };
type Request = {
  runbook: String,    // its words: "abusers clear"
  kind: String,       // "check" or "change"
  reversible: Bool,   // every step can be taken back
  door: String,       // "slack", "web", "api", "cli" or "schedule"
  own: Bool           // the principal asked for it
};
action ask, approve appliesTo { principal: Person, resource: Host, context: Request };
"""
_ANNOTATIONS = frozenset({"id", "approvals", "from", "hosts", "says", "stepup"})
CEILING = 10


class BadRules(Exception):
    """The rules cannot be used. The message names the rule and what is wrong with it."""


@dataclass(frozen=True)
class Ruling:
    """What the rules say. approvals: how many; groups: whose; says: in the rules' own words.

    ceiling: how many hosts one request may be for. step_up: an approval takes a second factor.
    rules: the names of those that apply.
    """

    allowed: bool
    approvals: int = 0
    groups: Sequence[str] = ()
    says: Sequence[str] = ()
    ceiling: int = CEILING
    step_up: bool = False
    rules: Sequence[str] = ()


@dataclass(frozen=True)
class _Rule:
    name: str
    permits: bool
    approvals: int
    groups: tuple[str, ...]
    says: str
    ceiling: int
    step_up: bool


class Rules:
    """A validated set of rules."""

    def __init__(self, text: str) -> None:
        self._schema = cedarpy.Schema.from_str(SCHEMA)
        checked = cedarpy.validate_policies(text, SCHEMA)
        names = _names(text) if checked.validation_passed or _parses(text) else {}
        if not checked.validation_passed:
            raise BadRules(
                "; ".join(
                    _plainly(error.policy_id, error.error, names) for error in checked.errors
                )
            )
        self._rules = {key: _rule(key, rule) for key, rule in _static(text).items()}
        self.mentioned = frozenset(mentions(_static(text)))
        self._policies = cedarpy.PolicySet.from_str(text)

    def judge(
        self,
        entities: cedarpy.Entities,
        *,
        person: str,
        action: str,
        host: str,
        context: Mapping[str, str | bool],
    ) -> Ruling:
        """Say whether *person* may, and with how many approvals: the strictest permit's number."""
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Person", "id": person},
                "action": {"type": "Action", "id": action},
                "resource": {"type": "Host", "id": host},
                "context": dict(context),
            },
            self._policies,
            entities,
            self._schema,
        )
        applied = [self._rules[reason] for reason in answer.diagnostics.reasons]
        says = tuple(rule.says or rule.name for rule in applied)
        names = tuple(rule.name for rule in applied)
        # A rule that could not be evaluated might have been a forbid: then nobody may.
        if not answer.allowed or answer.diagnostics.errors:
            return Ruling(allowed=False, says=says, rules=names)
        most = max(rule.approvals for rule in applied)
        strict = [rule for rule in applied if rule.approvals and rule.approvals == most]
        groups = {group for rule in strict for group in rule.groups}
        ceiling = min(rule.ceiling for rule in applied)
        return Ruling(
            allowed=True,
            approvals=most,
            groups=tuple(sorted(groups)),
            says=says,
            rules=names,
            ceiling=ceiling,
            step_up=any(rule.step_up for rule in applied),
        )


def strictest(rulings: Sequence[Ruling]) -> Ruling:
    """Return what holds where all of these hold."""
    refused = next((ruling for ruling in rulings if not ruling.allowed), None)
    if refused is not None or not rulings:
        return refused or Ruling(allowed=False)
    return Ruling(
        allowed=True,
        approvals=max(ruling.approvals for ruling in rulings),
        groups=tuple(sorted({group for ruling in rulings for group in ruling.groups})),
        says=tuple(dict.fromkeys(said for ruling in rulings for said in ruling.says)),
        ceiling=min(ruling.ceiling for ruling in rulings),
        step_up=any(ruling.step_up for ruling in rulings),
        rules=tuple(dict.fromkeys(rule for ruling in rulings for rule in ruling.rules)),
    )


def _static(text: str) -> dict[str, Any]:
    return json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]


def _parses(text: str) -> bool:
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError:
        return False
    return True


def _names(text: str) -> dict[str, str]:
    return {
        key: (rule.get("annotations") or {}).get("id", key) for key, rule in _static(text).items()
    }


def _plainly(key: str, error: str, names: Mapping[str, str]) -> str:
    """Name the rule by its @id instead of the number that the parser gave it."""
    name = names.get(key)
    return f'rule "{name}": {error.replace(f"for policy `{key}`, ", "")}' if name else error


def _rule(key: str, rule: Mapping[str, Any]) -> _Rule:
    # An annotation without a value, such as @stepup, is null in the JSON.
    notes: dict[str, str] = {
        key: value or "" for key, value in (rule.get("annotations") or {}).items()
    }
    name = notes.get("id", key)
    unknown = sorted(set(notes) - _ANNOTATIONS)
    if unknown:
        known = ", ".join(f"@{note}" for note in sorted(_ANNOTATIONS))
        raise BadRules(f'rule "{name}": @{unknown[0]} is not known; there are {known}')
    approvals = notes.get("approvals", "0")
    if not approvals.isdecimal() or int(approvals) > 9:
        raise BadRules(f'rule "{name}": @approvals("{approvals}") must be a number from 0 to 9')
    groups = tuple(part.strip() for part in notes.get("from", "").split(",") if part.strip())
    if int(approvals) and not groups:
        raise BadRules(f'rule "{name}": whose approval? add @from("owners") or @from("role:…")')
    for group in groups:
        if group != "owners" and not group.startswith("role:"):
            raise BadRules(f'rule "{name}": @from("{group}") must be "owners" or "role:NAME"')
    ceiling = notes.get("hosts", str(CEILING))
    if not ceiling.isdecimal() or not int(ceiling):
        raise BadRules(f'rule "{name}": @hosts("{ceiling}") must be a number of hosts, from 1')
    permits = rule["effect"] == "permit"
    return _Rule(
        name,
        permits,
        int(approvals),
        groups,
        notes.get("says", ""),
        int(ceiling),
        "stepup" in notes,
    )

"""Annotations: what a rule says beside its condition, such as @approvals("1"). Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What each annotation is for, in the order in which it is told to people.
ANNOTATION_MEANINGS: Mapping[str, str] = {
    "id": "its name",
    "says": "the rule in plain words",
    "approvals": "how many other people must approve",
    "from": "whose approval counts",
    "reason": 'asking and approving take a reason: @reason("required")',
    "stepup": "approving takes a second factor",
    "hosts": "how many hosts one request may be for",
    "patience": "after how long the approvers are reminded",
    "escalate": "whose approval counts too after twice as long",
    "overrides": "its numbers hold where stricter ones apply as well",
}
_ALLOWED_ON_ANY_RULE = frozenset({"id", "says"})
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400}
DEFAULT_MAX_HOSTS = 10


class AnnotationError(Exception):
    """An annotation cannot be used. The message says what it must be."""


@dataclass(frozen=True)
class RuleAnnotations:
    """each: for every place that an approval must fill, the groups that may fill it.

    A group is "owners", "area:NAME" or "role:NAME". patience: microseconds, 0 if not given.
    ceiling: how many hosts one request may be for.
    """

    name: str
    policy_note: str = ""
    required_approvals: int = 0
    group_sets: Sequence[Sequence[str]] = ()
    requires_reason: bool = False
    requires_second_factor: bool = False
    max_hosts: int = DEFAULT_MAX_HOSTS
    remind_after: int = 0
    escalate_to: Sequence[str] = ()
    is_override: bool = False

    @property
    def groups(self) -> Sequence[str]:
        return [*(group for place in self.group_sets for group in place), *self.escalate_to]


def parse_annotations(name: str, rule: Mapping[str, Any]) -> RuleAnnotations:
    """Read those of a rule in Cedar's JSON form. name: for a rule without @id."""
    # An annotation without a value, such as @stepup, is null there.
    written: dict[str, str | None] = rule.get("annotations") or {}
    given = {key: value or "" for key, value in written.items()}
    _check_known(given, rule)
    approvals = _parse_number("approvals", given.get("approvals", "0"), minimum=0, maximum=9)
    each = _parse_group_sets(given.get("from", ""))
    _check_combination(given, approvals, each)
    return RuleAnnotations(
        name=given.get("id", name),
        policy_note=given.get("says", ""),
        required_approvals=approvals,
        group_sets=each,
        requires_reason=_parse_reason(given),
        requires_second_factor=_parse_flag(given, "stepup"),
        max_hosts=_parse_number(
            "hosts", given.get("hosts", str(DEFAULT_MAX_HOSTS)), minimum=1, maximum=100_000
        ),
        remind_after=_parse_time_span(given["patience"]) if "patience" in given else 0,
        escalate_to=_parse_groups("escalate", given["escalate"]) if "escalate" in given else (),
        is_override=_parse_flag(given, "overrides"),
    )


def _check_known(annotations: Mapping[str, str], rule: Mapping[str, Any]) -> None:
    unknown = sorted(set(annotations) - set(ANNOTATION_MEANINGS))
    if unknown:
        known = ", ".join(f"@{note}" for note in sorted(ANNOTATION_MEANINGS))
        raise AnnotationError(f"@{unknown[0]} is not known; there are {known}")
    for name in sorted(_ALLOWED_ON_ANY_RULE & set(annotations)):
        if not annotations[name].strip():
            raise AnnotationError(f'@{name} says nothing: write @{name}("…"), or take it away')
    more = sorted(set(annotations) - _ALLOWED_ON_ANY_RULE)
    if more and rule["effect"] != "permit":
        raise AnnotationError(f"@{more[0]} says nothing on a forbid: take it away")
    if more and rule["action"].get("entity", {}).get("id") == "approve":
        raise AnnotationError(f"@{more[0]} belongs on a permit to ask, not to approve")


def _check_combination(
    annotations: Mapping[str, str], required_approvals: int, group_sets: Sequence[Sequence[str]]
) -> None:
    if required_approvals and not group_sets:
        raise AnnotationError('whose approval? add @from("owners") or @from("role:…")')
    if group_sets and not required_approvals:
        raise AnnotationError('how many approvals? add @approvals("1")')
    if required_approvals < len(group_sets):
        raise AnnotationError(
            f'@from("{annotations["from"]}") wants one of each of {len(group_sets)} groups, so '
            f'@approvals("{required_approvals}") must be {len(group_sets)} or more'
        )
    for name in ("patience", "escalate"):
        if name in annotations and not required_approvals:
            raise AnnotationError(f"@{name} needs @approvals: nobody is waited for")


def _parse_number(name: str, text: str, *, minimum: int, maximum: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not minimum <= int(text) <= maximum:
        raise AnnotationError(f'@{name}("{text}") must be a number from {minimum} to {maximum}')
    return int(text)


def _parse_reason(annotations: Mapping[str, str]) -> bool:
    if annotations.get("reason", "required") != "required":
        raise AnnotationError(f'@reason("{annotations["reason"]}") must be @reason("required")')
    return "reason" in annotations


def _parse_flag(annotations: Mapping[str, str], name: str) -> bool:
    """Say whether an annotation stands there that means the same whatever is written in it."""
    if annotations.get(name):
        raise AnnotationError(
            f'@{name}("{annotations[name]}") means no less than @{name}: write that, or take it '
            "away"
        )
    return name in annotations


def _parse_time_span(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,3}) ?([mhd])", text, re.ASCII)
    if found is None:
        raise AnnotationError(f'@patience("{text}") must be a time such as 30m, 2h or 1d')
    return int(found[1]) * _UNIT_SECONDS[found[2]] * 1_000_000


def _parse_group_sets(text: str) -> Sequence[Sequence[str]]:
    return tuple(_parse_groups("from", place) for place in text.split("&")) if text else ()


def _parse_groups(name: str, text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(","))
    for group in groups:
        if group != "owners" and not re.fullmatch(r"(role|area):[a-z0-9-]+", group):
            raise AnnotationError(
                f'@{name}("{group}") must be "owners", "role:NAME" or "area:NAME"'
            )
    return groups

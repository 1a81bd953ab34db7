"""Annotations of rules, such as @approvals("1"). Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.model.times import SECOND

# What each annotation means, in the order in which people read them.
ANNOTATION_MEANINGS: Mapping[str, str] = {
    "id": "the name of the rule",
    "description": "the rule in plain words",
    "approvals": "how many other people must approve",
    "from": "whose approval counts",
    "reason": 'requests and approvals need a reason: @reason("required")',
    "stepup": "approving needs a second factor",
    "signed": 'approvals are signatures over the plan: @signed("approver"), or @signed("both")',
    "ticket": "requests name an approved change ticket",
    "witnessed": "how many witnesses must have cosigned the log before anything is sent",
    "hosts": "how many hosts one request may cover",
    "remind": "after how long approvers are reminded",
    "escalate": "whose approval also counts after twice that time",
    "review": "another person reviews the run within a day",
    "overrides": "its numbers apply even where stricter rules also match",
}
_ALLOWED_ON_ANY_RULE = frozenset({"id", "description"})
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400}
DEFAULT_MAX_HOSTS = 10


class AnnotationError(Exception):
    """An annotation is invalid. The message says what it must be."""


@dataclass(frozen=True)
class RuleAnnotations:
    """The annotations of one rule. A group is "owners", "area:NAME" or "role:NAME"."""

    name: str
    policy_note: str = ""
    """The rule in plain words."""
    required_approvals: int = 0
    group_sets: Sequence[Sequence[str]] = ()
    """One approval must come from each set; any group of the set will do."""
    requires_reason: bool = False
    requires_second_factor: bool = False
    requires_signature: bool = False
    requires_signed_request: bool = False
    requires_ticket: bool = False
    required_witnesses: int = 0
    max_hosts: int = DEFAULT_MAX_HOSTS
    """How many hosts one request may cover."""
    remind_after: int = 0
    """When approvers are reminded, in microseconds; 0 for never."""
    escalate_to: Sequence[str] = ()
    """The groups that may also approve after twice that time."""
    is_override: bool = False
    requires_review: bool = False
    """Whether another person reviews the run within a day."""

    @property
    def groups(self) -> Sequence[str]:
        """Every group that the rule names."""
        return [*(group for place in self.group_sets for group in place), *self.escalate_to]


def parse_annotations(name: str, rule: Mapping[str, Any]) -> RuleAnnotations:
    """Return the annotations of a rule in Cedar's JSON form.

    Args:
        name: The name of the rule if it has no @id.

    Raises:
        AnnotationError: One of them is unknown or invalid.
    """
    # An annotation without a value, such as @stepup, is null there.
    written: dict[str, str | None] = rule.get("annotations") or {}
    given = {key: value or "" for key, value in written.items()}
    _check_known(given, rule)
    approvals = _parse_number("approvals", given.get("approvals", "0"), minimum=0, maximum=9)
    group_sets = _parse_group_sets(given.get("from", ""))
    _check_combination(given, approvals, group_sets)
    return RuleAnnotations(
        name=given.get("id", name),
        policy_note=given.get("description", ""),
        required_approvals=approvals,
        group_sets=group_sets,
        requires_reason=_parse_reason(given),
        requires_second_factor=_parse_flag(given, "stepup"),
        requires_signature=bool(signed := _parse_signed(given)),
        requires_signed_request=signed == "both",
        requires_ticket=_parse_flag(given, "ticket"),
        required_witnesses=_parse_number(
            "witnessed", given.get("witnessed", "0"), minimum=0, maximum=9
        ),
        max_hosts=_parse_number(
            "hosts", given.get("hosts", str(DEFAULT_MAX_HOSTS)), minimum=1, maximum=100_000
        ),
        remind_after=_parse_time_span(given["remind"]) if "remind" in given else 0,
        escalate_to=_parse_groups("escalate", given["escalate"]) if "escalate" in given else (),
        is_override=_parse_flag(given, "overrides"),
        requires_review=_parse_flag(given, "review"),
    )


def _check_known(annotations: Mapping[str, str], rule: Mapping[str, Any]) -> None:
    unknown = sorted(set(annotations) - set(ANNOTATION_MEANINGS))
    if unknown:
        known = ", ".join(f"@{note}" for note in sorted(ANNOTATION_MEANINGS))
        raise AnnotationError(f"unknown annotation @{unknown[0]}; the annotations are {known}")
    for name in sorted(_ALLOWED_ON_ANY_RULE & set(annotations)):
        if not annotations[name].strip():
            raise AnnotationError(f'@{name} is empty: write @{name}("…"), or remove it')
    more = sorted(set(annotations) - _ALLOWED_ON_ANY_RULE)
    if more and rule["effect"] != "permit":
        raise AnnotationError(f"@{more[0]} has no effect on a forbid: remove it")
    if more and rule["action"].get("entity", {}).get("id") == "approve":
        raise AnnotationError(f"@{more[0]} belongs on a permit to request, not to approve")


def _check_combination(
    annotations: Mapping[str, str], required_approvals: int, group_sets: Sequence[Sequence[str]]
) -> None:
    if required_approvals and not group_sets:
        raise AnnotationError('@approvals needs approvers: add @from("owners") or @from("role:…")')
    if group_sets and not required_approvals:
        raise AnnotationError('@from needs a number of approvals: add @approvals("1")')
    if required_approvals < len(group_sets):
        raise AnnotationError(
            f'@from("{annotations["from"]}") needs one approval from each of {len(group_sets)} '
            f'groups, so @approvals("{required_approvals}") must be {len(group_sets)} or more'
        )
    for name in ("remind", "escalate", "signed"):
        if name in annotations and not required_approvals:
            raise AnnotationError(
                f"@{name} has no effect without @approvals: add @approvals, or remove it"
            )


def _parse_number(name: str, text: str, *, minimum: int, maximum: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not minimum <= int(text) <= maximum:
        raise AnnotationError(f'@{name}("{text}") must be a number from {minimum} to {maximum}')
    return int(text)


def _parse_reason(annotations: Mapping[str, str]) -> bool:
    if annotations.get("reason", "required") != "required":
        raise AnnotationError(f'@reason("{annotations["reason"]}") must be @reason("required")')
    return "reason" in annotations


def _parse_signed(annotations: Mapping[str, str]) -> str:
    """Return who signs: approver or both; "" if no one has to."""
    who = annotations.get("signed")
    if who not in {None, "approver", "both"}:
        raise AnnotationError(
            f'@signed("{who}") must be @signed("approver"), or @signed("both") for the '
            "requester too"
        )
    return who or ""


def _parse_flag(annotations: Mapping[str, str], name: str) -> bool:
    """Return whether an annotation without a value is present."""
    if annotations.get(name):
        raise AnnotationError(
            f'@{name}("{annotations[name]}") takes no value: write @{name}, or remove it'
        )
    return name in annotations


def _parse_time_span(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,3}) ?([mhd])", text, re.ASCII)
    if match is None:
        raise AnnotationError(f'@remind("{text}") must be a duration such as 30m, 2h or 1d')
    return int(match[1]) * _UNIT_SECONDS[match[2]] * SECOND


def _parse_group_sets(text: str) -> Sequence[Sequence[str]]:
    return tuple(_parse_groups("from", place) for place in text.split("&")) if text else ()


def _parse_groups(name: str, text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(","))
    for group in groups:
        if group != "owners" and not re.fullmatch(r"(role:(oncall:)?|area:)[a-z0-9-]+", group):
            raise AnnotationError(
                f'@{name}("{group}") must be "owners", "role:NAME" or "area:NAME"'
            )
    return groups

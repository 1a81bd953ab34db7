"""Annotations: what a rule says beside its condition, such as @approvals("1"). Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What each annotation is for, in the order in which it is told to people.
KNOWN: Mapping[str, str] = {
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
_OF_ANY_RULE = frozenset({"id", "says"})
_UNITS = {"m": 60, "h": 3600, "d": 86400}
CEILING = 10


class AnnotationError(Exception):
    """An annotation cannot be used. The message says what it must be."""


@dataclass(frozen=True)
class Annotations:
    """each: for every place that an approval must fill, the groups that may fill it.

    A group is "owners", "area:NAME" or "role:NAME". patience: microseconds, 0 if not given.
    ceiling: how many hosts one request may be for.
    """

    name: str
    says: str = ""
    approvals: int = 0
    each: Sequence[Sequence[str]] = ()
    reason: bool = False
    step_up: bool = False
    ceiling: int = CEILING
    patience: int = 0
    escalate: Sequence[str] = ()
    overrides: bool = False

    @property
    def groups(self) -> Sequence[str]:
        return [*(group for place in self.each for group in place), *self.escalate]


def parse_annotations(name: str, rule: Mapping[str, Any]) -> Annotations:
    """Read those of a rule in Cedar's JSON form. name: for a rule without @id."""
    # An annotation without a value, such as @stepup, is null there.
    written: dict[str, str | None] = rule.get("annotations") or {}
    given = {key: value or "" for key, value in written.items()}
    _fit(given, rule)
    approvals = _number("approvals", given.get("approvals", "0"), least=0, most=9)
    each = _each(given.get("from", ""))
    _belong_together(given, approvals, each)
    return Annotations(
        name=given.get("id", name),
        says=given.get("says", ""),
        approvals=approvals,
        each=each,
        reason=_required(given),
        step_up=_marked(given, "stepup"),
        ceiling=_number("hosts", given.get("hosts", str(CEILING)), least=1, most=100_000),
        patience=_span(given["patience"]) if "patience" in given else 0,
        escalate=_groups("escalate", given["escalate"]) if "escalate" in given else (),
        overrides=_marked(given, "overrides"),
    )


def _fit(given: Mapping[str, str], rule: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        known = ", ".join(f"@{note}" for note in sorted(KNOWN))
        raise AnnotationError(f"@{unknown[0]} is not known; there are {known}")
    for name in sorted(_OF_ANY_RULE & set(given)):
        if not given[name].strip():
            raise AnnotationError(f'@{name} says nothing: write @{name}("…"), or take it away')
    more = sorted(set(given) - _OF_ANY_RULE)
    if more and rule["effect"] != "permit":
        raise AnnotationError(f"@{more[0]} says nothing on a forbid: take it away")
    if more and rule["action"].get("entity", {}).get("id") == "approve":
        raise AnnotationError(f"@{more[0]} belongs on a permit to ask, not to approve")


def _belong_together(
    given: Mapping[str, str], approvals: int, each: Sequence[Sequence[str]]
) -> None:
    if approvals and not each:
        raise AnnotationError('whose approval? add @from("owners") or @from("role:…")')
    if each and not approvals:
        raise AnnotationError('how many approvals? add @approvals("1")')
    if approvals < len(each):
        raise AnnotationError(
            f'@from("{given["from"]}") wants one of each of {len(each)} groups, so '
            f'@approvals("{approvals}") must be {len(each)} or more'
        )
    for name in ("patience", "escalate"):
        if name in given and not approvals:
            raise AnnotationError(f"@{name} needs @approvals: nobody is waited for")


def _number(name: str, text: str, *, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise AnnotationError(f'@{name}("{text}") must be a number from {least} to {most}')
    return int(text)


def _required(given: Mapping[str, str]) -> bool:
    if given.get("reason", "required") != "required":
        raise AnnotationError(f'@reason("{given["reason"]}") must be @reason("required")')
    return "reason" in given


def _marked(given: Mapping[str, str], name: str) -> bool:
    """Say whether an annotation stands there that means the same whatever is written in it."""
    if given.get(name):
        raise AnnotationError(
            f'@{name}("{given[name]}") means no less than @{name}: write that, or take it away'
        )
    return name in given


def _span(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,3}) ?([mhd])", text, re.ASCII)
    if found is None:
        raise AnnotationError(f'@patience("{text}") must be a time such as 30m, 2h or 1d')
    return int(found[1]) * _UNITS[found[2]] * 1_000_000


def _each(text: str) -> Sequence[Sequence[str]]:
    return tuple(_groups("from", place) for place in text.split("&")) if text else ()


def _groups(name: str, text: str) -> tuple[str, ...]:
    groups = tuple(part.strip() for part in text.split(","))
    for group in groups:
        if group != "owners" and not re.fullmatch(r"(role|area):[a-z0-9-]+", group):
            raise AnnotationError(
                f'@{name}("{group}") must be "owners", "role:NAME" or "area:NAME"'
            )
    return groups

"""Mandates as people type them: who decides in whose stead, and what is granted. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.db.grants import NewGrant
from bot.model import request_form
from bot.model.request_form import NotUnderstood
from bot.model.times import NotATime, parse_deadline
from connectors.command import quote_text

DELEGATE = "delegate to PERSON until TIME [for AREA]"
GRANT = "grant PERSON WORDS HOSTS [field=pattern …] N an hour until TIME"
_DELEGATE = re.compile(
    r"to\s+@?(?P<person>\S+)(?:\s+(?:for|in)\s+(?P<before>[a-z]\S*))?"
    r"\s+(?:until|for)\s+(?P<when>.+?)(?:\s+(?:for|in)\s+(?P<area>[a-z]\S*))?",
    re.IGNORECASE,
)
_GRANT = re.compile(
    r"@?(?P<person>\S+)\s+(?P<what>.+?)\s+(?P<an_hour>\d{1,4})\s*(?:an|per|/)\s*h(?:our)?"
    r"\s+(?:until|for)\s+(?P<when>.+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DelegationWords:
    """ends: microseconds. area: "" for every area of the delegator's."""

    delegate: str
    ends: int
    area: str = ""


def parse_delegation(text: str, *, now: int, zone: str = "UTC") -> DelegationWords:
    """Understand what follows "delegate". Raises NotUnderstood."""
    typed = _DELEGATE.fullmatch(text.strip())
    if typed is None:
        raise NotUnderstood(f"It is typed: {DELEGATE}")
    area = typed["area"] or typed["before"] or ""
    return DelegationWords(typed["person"].lower(), _ends(typed["when"], now, zone), area.lower())


def parse_grant(text: str, *, now: int, zone: str = "UTC") -> NewGrant:
    """Understand what follows "grant". Raises NotUnderstood."""
    typed = _GRANT.fullmatch(text.strip())
    if typed is None:
        raise NotUnderstood(f"It is typed: {GRANT}")
    runbook, rest = request_form.find_runbook(request_form.split_words(typed["what"]))
    if not rest:
        raise NotUnderstood(f"on which hosts? It is typed: {GRANT}")
    return NewGrant(
        person=typed["person"].lower(),
        words=runbook.words,
        hosts=rest[0].removeprefix("host="),
        an_hour=int(typed["an_hour"]),
        ends=_ends(typed["when"], now, zone),
        values=parse_changes(rest[1:]),
    )


def parse_changes(typed: Sequence[str]) -> dict[str, str]:
    """Read `field=value` words. Raises NotUnderstood."""
    found: dict[str, str] = {}
    for word in typed:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").lower()
        if not equals or not name:
            raise NotUnderstood(f"{quote_text(word)} names no field: say which, as in field=value")
        if name in found:
            raise NotUnderstood(f"{name} is given twice")
        found[name] = value
    return found


def _ends(text: str, now: int, zone: str) -> int:
    try:
        return parse_deadline(text, now=now, zone=zone)
    except NotATime as trouble:
        raise NotUnderstood(str(trouble)) from None

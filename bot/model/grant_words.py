"""Parse delegations and grants as people type them. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.model import request_form
from bot.model.request_form import RequestSyntaxError
from bot.model.times import InvalidTimeError, parse_deadline
from connectors.visible_text import quote_text

DELEGATION_SYNTAX = "delegate to PERSON until TIME [for AREA]"
GRANT_SYNTAX = "grant PERSON RUNBOOK HOSTS [field=pattern …] N an hour until TIME"
_DELEGATION_PATTERN = re.compile(
    r"to\s+@?(?P<person>\S+)(?:\s+(?:for|in)\s+(?P<before>[a-z]\S*))?"
    r"\s+(?:until|for)\s+(?P<when>.+?)(?:\s+(?:for|in)\s+(?P<area>[a-z]\S*))?",
    re.IGNORECASE,
)
_GRANT_PATTERN = re.compile(
    r"@?(?P<person>\S+)\s+(?P<what>.+?)\s+(?P<per_hour>\d{1,4})\s*(?:an|per|/)\s*h(?:our)?"
    r"\s+(?:until|for)\s+(?P<when>.+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class NewGrant:
    """A grant that is not recorded yet."""

    person: str
    runbook: str
    hosts: str
    per_hour: int
    ends_at: int
    values: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class TypedDelegation:
    """A delegation as it was typed."""

    delegate: str
    ends_at: int
    """Microseconds since 1970."""
    area: str = ""
    """Empty for every area that the delegator owns."""


def parse_delegation(text: str, *, now: int, zone: str = "UTC") -> TypedDelegation:
    """Parse the text after "delegate". Raises RequestSyntaxError."""
    typed = _DELEGATION_PATTERN.fullmatch(text.strip())
    if typed is None:
        raise RequestSyntaxError(f"Type it like this: {DELEGATION_SYNTAX}")
    area = typed["area"] or typed["before"] or ""
    return TypedDelegation(
        typed["person"].lower(), _parse_deadline(typed["when"], now, zone), area.lower()
    )


def parse_grant(text: str, *, now: int, zone: str = "UTC") -> NewGrant:
    """Parse the text after "grant". Raises RequestSyntaxError."""
    typed = _GRANT_PATTERN.fullmatch(text.strip())
    if typed is None:
        raise RequestSyntaxError(f"Type it like this: {GRANT_SYNTAX}")
    runbook, hosts, values = parse_granted_request(typed["what"])
    return NewGrant(
        person=typed["person"].lower(),
        runbook=runbook,
        hosts=hosts,
        per_hour=int(typed["per_hour"]),
        ends_at=_parse_deadline(typed["when"], now, zone),
        values=values,
    )


def parse_granted_request(text: str) -> tuple[str, str, dict[str, str]]:
    """Return runbook, host pattern and values of `abusers clear lb* table=http`.

    Raises RequestSyntaxError.
    """
    runbook, rest = request_form.find_runbook(request_form.split_words(text))
    if not rest:
        raise RequestSyntaxError(f"The hosts are missing. Type it like this: {GRANT_SYNTAX}")
    return runbook.words, rest[0].removeprefix("host="), parse_field_values(rest[1:])


def parse_field_values(words: Sequence[str]) -> dict[str, str]:
    """Parse `field=value` words. Raises RequestSyntaxError."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").lower()
        if not equals or not name:
            raise RequestSyntaxError(
                f"{quote_text(word)} is not a value for a field: type field=value"
            )
        if name in values:
            raise RequestSyntaxError(f"{name} is given twice")
        values[name] = value
    return values


def _parse_deadline(text: str, now: int, zone: str) -> int:
    try:
        return parse_deadline(text, now=now, zone=zone)
    except InvalidTimeError as error:
        raise RequestSyntaxError(str(error)) from None

"""A finding: what was looked at, and what is so or what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.visible import one_line

Mark = Literal["ok", "note", "mend"]


@dataclass(frozen=True)
class Finding:
    """mark: `ok`, `note` for what works and could be better, `mend` for what does not work."""

    about: str
    mark: Mark
    said: str


def ok(about: str, said: str) -> Finding:
    return Finding(about, "ok", said)


def note(about: str, said: str) -> Finding:
    return Finding(about, "note", said)


def mend(about: str, said: str) -> Finding:
    return Finding(about, "mend", said)


def as_text(findings: Sequence[Finding]) -> str:
    """Return one line for each, and what they come to."""
    width = max((len(each.about) for each in findings), default=0)
    lines = [
        f"{each.mark.upper() if each.mark == 'mend' else each.mark:<4}  "
        f"{each.about:<{width}}  {one_line(each.said)}"
        for each in findings
    ]
    broken = sum(each.mark == "mend" for each in findings)
    sum_up = f"{broken} to mend" if broken else "all is well"
    return "\n".join([*lines, "", sum_up])


def as_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what json prints."""
    well = all(each.mark != "mend" for each in findings)
    return {"well": well, "findings": [vars(each) for each in findings]}

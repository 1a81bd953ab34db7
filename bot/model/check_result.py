"""A finding: what was looked at, and what is so or what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.model.text import escape_to_one_line

Mark = Literal["ok", "note", "mend"]


@dataclass(frozen=True)
class CheckResult:
    """mark: `ok`, `note` for what works and could be better, `mend` for what does not work."""

    about: str
    mark: Mark
    said: str


def ok(about: str, said: str) -> CheckResult:
    return CheckResult(about, "ok", said)


def warning(about: str, said: str) -> CheckResult:
    return CheckResult(about, "note", said)


def error(about: str, said: str) -> CheckResult:
    return CheckResult(about, "mend", said)


def format_results(findings: Sequence[CheckResult]) -> str:
    """Return one line for each, and what they come to."""
    width = max((len(each.about) for each in findings), default=0)
    lines = [
        f"{each.mark.upper() if each.mark == 'mend' else each.mark:<4}  "
        f"{each.about:<{width}}  {escape_to_one_line(each.said)}"
        for each in findings
    ]
    broken = sum(each.mark == "mend" for each in findings)
    sum_up = f"{broken} to mend" if broken else "all is well"
    return "\n".join([*lines, "", sum_up])


def results_to_data(findings: Sequence[CheckResult]) -> dict[str, Any]:
    """Return what json prints."""
    well = all(each.mark != "mend" for each in findings)
    return {"well": well, "findings": [vars(each) for each in findings]}

"""Results of health checks for `keyturn doctor`, readiness and the health page. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.model.text import escape_to_one_line, format_count

CheckLevel = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    subject: str
    """What was checked: `database`."""
    level: CheckLevel
    """`warning` for what works and could be better, `error` for what does not work."""
    message: str
    """The state, and for a warning or an error what to do."""


def create_ok_result(subject: str, message: str) -> CheckResult:
    """Return the result of a successful check."""
    return CheckResult(subject, "ok", message)


def create_warning_result(subject: str, message: str) -> CheckResult:
    """Return the result of a check of something that works and could be better."""
    return CheckResult(subject, "warning", message)


def create_error_result(subject: str, message: str) -> CheckResult:
    """Return the result of a failed check."""
    return CheckResult(subject, "error", message)


def describe_total(results: Sequence[CheckResult]) -> str:
    """Return the number of errors and warnings: `2 problems, 1 warning`; `Healthy` without any."""
    if not results:
        return "Nothing was checked"
    levels = Counter(each.level for each in results)
    parts = [
        format_count(levels["error"], "problem") if levels["error"] else "Healthy",
        *([format_count(levels["warning"], "warning")] if levels["warning"] else []),
    ]
    return ", ".join(parts)


def format_results(results: Sequence[CheckResult]) -> str:
    """Return one line for each result, and the total."""
    width = max((len(each.subject) for each in results), default=0)
    lines = [
        f"{each.level.upper() if each.level == 'error' else each.level:<7}  "
        f"{each.subject:<{width}}  {escape_to_one_line(each.message)}"
        for each in results
    ]
    return "\n".join([*lines, "", describe_total(results)])


def results_to_data(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the results for JSON."""
    healthy = all(each.level != "error" for each in results)
    return {"healthy": healthy, "findings": [vars(each) for each in results]}

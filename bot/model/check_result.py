"""Results of health checks, for the doctor, readiness and the page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.model.text import escape_to_one_line

CheckLevel = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    about: what was checked, such as `the database`.
    mark: `ok`; `warning` for what works and could be better; `error` for what does not work.
    said: what is so, and for a warning or an error what to do.
    """

    subject: str
    level: CheckLevel
    message: str


def create_ok_result(subject: str, message: str) -> CheckResult:
    """Return the result of a check that found nothing wrong."""
    return CheckResult(subject, "ok", message)


def create_warning_result(subject: str, message: str) -> CheckResult:
    """Return the result of a check that found what works and could be better."""
    return CheckResult(subject, "warning", message)


def create_error_result(subject: str, message: str) -> CheckResult:
    """Return the result of a check that found what does not work."""
    return CheckResult(subject, "error", message)


def describe_total(results: Sequence[CheckResult]) -> str:
    """Return how many problems there are, such as `2 problems`; `Healthy` without one."""
    errors = sum(each.level == "error" for each in results)
    if not errors:
        return "Healthy"
    return "1 problem" if errors == 1 else f"{errors} problems"


def format_results(results: Sequence[CheckResult]) -> str:
    """Return one line for each, and the total below."""
    width = max((len(each.subject) for each in results), default=0)
    lines = [
        f"{each.level.upper() if each.level == 'error' else each.level:<7}  "
        f"{each.subject:<{width}}  {escape_to_one_line(each.message)}"
        for each in results
    ]
    return "\n".join([*lines, "", describe_total(results)])


def results_to_data(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return what `--json` prints."""
    healthy = all(each.level != "error" for each in results)
    return {"healthy": healthy, "findings": [vars(each) for each in results]}

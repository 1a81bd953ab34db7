"""Results of health checks, for the doctor, readiness and the page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.model.text import escape_to_one_line

Mark = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    about: what was checked, such as `the database`.
    mark: `ok`; `warning` for what works and could be better; `error` for what does not work.
    said: what is so, and for a warning or an error what to do.
    """

    about: str
    mark: Mark
    said: str


def ok(about: str, said: str) -> CheckResult:
    """Return the result of a check that found nothing wrong."""
    return CheckResult(about, "ok", said)


def warning(about: str, said: str) -> CheckResult:
    """Return the result of a check that found what works and could be better."""
    return CheckResult(about, "warning", said)


def error(about: str, said: str) -> CheckResult:
    """Return the result of a check that found what does not work."""
    return CheckResult(about, "error", said)


def describe_total(results: Sequence[CheckResult]) -> str:
    """Return how many problems there are, such as `2 problems`; `Healthy` without one."""
    errors = sum(each.mark == "error" for each in results)
    if not errors:
        return "Healthy"
    return "1 problem" if errors == 1 else f"{errors} problems"


def format_results(results: Sequence[CheckResult]) -> str:
    """Return one line for each, and the total below."""
    width = max((len(each.about) for each in results), default=0)
    lines = [
        f"{each.mark.upper() if each.mark == 'error' else each.mark:<7}  "
        f"{each.about:<{width}}  {escape_to_one_line(each.said)}"
        for each in results
    ]
    return "\n".join([*lines, "", describe_total(results)])


def results_to_data(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return what `--json` prints."""
    well = all(each.mark != "error" for each in results)
    return {"well": well, "findings": [vars(each) for each in results]}

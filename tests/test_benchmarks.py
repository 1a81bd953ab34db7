"""The page of benchmarks names the targets of the code, and is recent at a release."""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import growth, measurements

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MAX_COMMITS = 50
_MAKERS = {"set_maximum": measurements.set_maximum, "set_minimum": measurements.set_minimum}
# On what a row was measured, and that it is the worst of several.
_AROUND = re.compile(r"the slowest: | \((SQLite|PostgreSQL)\)")


def list_rows(page: str) -> list[tuple[str, str]]:
    """Return what each row of the targets is about, and its target."""
    table = page.partition("## Targets")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("|")]
    return [(row[0].strip(), row[-2].strip()) for row in rows[2:]]


def iterate_code_targets() -> Iterator[tuple[str, str]]:
    """Yield a pattern of what each target of the code is about, and the target.

    The target is a pattern too where it depends on what was measured.
    """
    for file in sorted((ROOT / "tests" / "bench").glob("*.py")):
        if file.stem in {"__main__", "measurements"}:
            continue
        known = vars(importlib.import_module(f"tests.bench.{file.stem}"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _MAKERS:
                yield from read_call(node, known)
    for what, limit in growth.LIMITS.items():
        yield f".+ {re.escape(what)}", measurements.set_maximum(limit, what, 0, "ms").target


def read_call(call: ast.Call, known: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the target of a call of set_maximum or set_minimum. known: names of its module."""
    limit, what, _, unit = call.args[:4]
    if not isinstance(what, ast.Constant | ast.JoinedStr):
        return
    parts = what.values if isinstance(what, ast.JoinedStr) else [what]
    pattern = "".join(
        re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in parts
    )
    try:
        value = eval(compile(ast.Expression(limit), "limit", "eval"), dict(known))  # noqa: S307 - our own file
    except NameError:
        yield pattern, rf". [\d.,]+ {ast.literal_eval(unit)}"
        return
    maker = _MAKERS[call.func.id]  # pyright: ignore[reportAttributeAccessIssue]
    yield pattern, re.escape(maker(value, "", 0, ast.literal_eval(unit)).target)


def find_wrong_rows(page: str) -> list[str]:
    """Return the rows of a page whose target is not that of the code."""
    targets = [*iterate_code_targets()]
    # One that names the raw driver is made without set_minimum.
    targets.append(("append, each durable", "≥ 0.35 × raw"))
    return [
        what
        for what, target in list_rows(page)
        if target
        and not any(
            re.fullmatch(pattern, _AROUND.sub("", what)) and re.fullmatch(wanted, target)
            for pattern, wanted in targets
        )
    ]


def test_targets_of_the_page_are_those_of_the_code():
    assert len(list_rows(PAGE)) > 50
    assert find_wrong_rows(PAGE) == []


@pytest.mark.parametrize(("real", "other"), [("≤ 1.25 ×", "≤ 1.5 ×"), ("≤ 120 ms", "≤ 200 ms")])
def test_another_target_on_the_page_is_found(real: str, other: str):
    changed = PAGE.replace(real, other)
    assert find_wrong_rows(changed) == [what for what, target in list_rows(PAGE) if target == real]


def test_page_of_a_release_is_recent():
    """A version is a release once the changelog no longer calls it unreleased."""
    if (ROOT / ".git").exists() and is_release(CHANGELOG):
        assert count_commits_since(PAGE) <= MAX_COMMITS


def test_release_is_a_version_with_a_date():
    assert not is_release("# Changelog\n\n## [0.2.0] - Unreleased\n\n## [0.1.0] - 2026-01-01\n")
    assert is_release("# Changelog\n\n## [0.2.0] - 2026-12-01\n")


def test_commits_since_the_page_are_counted():
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("needs the history")
    newest = git("rev-parse", "--short", "HEAD")
    assert count_commits_since(f"Measured at {newest} with") == 0
    assert count_commits_since(PAGE) > 0


def is_release(changelog: str) -> bool:
    newest = re.search(r"^## \[.+\] - (.+)$", changelog, re.MULTILINE)
    assert newest is not None
    return newest[1] != "Unreleased"


def count_commits_since(page: str) -> int:
    """Return how many commits came after the oldest at which the page was measured."""
    measured = re.search(r"^Measured at (.+?) with", page, re.MULTILINE)
    assert measured is not None
    return max(
        int(git("rev-list", "--count", f"{commit}..HEAD")) for commit in measured[1].split(" and ")
    )


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()

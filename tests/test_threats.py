"""Every threat of the catalogue has tests that carry its name, and a twin that shows the danger.

A: authority, approvals and time. L: the change log. X: secrets and what is installed. A twin takes
the guard away, or asks for the same where it is allowed, and something else happens then.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
THREATS = [
    f"{kind}{n}" for kind, last in (("a", 20), ("l", 14), ("x", 6)) for n in range(1, last + 1)
]
NAMED = re.compile(r"test_t_([alx]\d+)_")
# How a test says by its name, or in words, that it is one.
TWIN = re.compile(r"test_t_\w*(twin|without|_would|_if_|_is_found)|[Tt]he twin\b")


@cache
def _found() -> dict[str, list[str]]:
    """Return the source of every test that is named for a threat, by the threat."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(TESTS.rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if NAMED.search(source) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = NAMED.match(node.name)
                if named:
                    found[named[1]].append(ast.get_source_segment(source, node) or "")
    return found


@pytest.mark.parametrize("threat", THREATS)
def test_every_threat_is_answered_by_a_test_and_its_twin(threat: str):
    tests = _found()[threat]
    assert tests, f"no test is named test_t_{threat}_…"
    assert any(TWIN.search(test) for test in tests), f"no test_t_{threat}_… has a twin"


def test_no_test_is_named_for_a_threat_that_there_is_not():
    assert set(_found()) <= set(THREATS)

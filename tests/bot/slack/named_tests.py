"""The names of tests, for tables that say which test covers what."""

import ast
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def tests_in(file: str) -> frozenset[str]:
    """Return the tests of a file beside this one, by its name without the ending."""
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = (node.name for node in ast.walk(tree) if isinstance(node, functions))
    return frozenset(name for name in names if name.startswith("test_"))


def missing(tests: tuple[str, ...]) -> list[str]:
    """Return those of `file.name` that there are not."""
    split = [test.rpartition(".") for test in tests]
    return [f"{file}.{name}" for file, _, name in split if name not in tests_in(file)]

"""A feature can be lifted out: delete its folder and its line, and everything else still works."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.features import FEATURES
from tests.campaigns import CHAOS

ROOT = Path(__file__).parents[1]
_COPIED = ("bot", "tests", "pyproject.toml")
# What is made by building, running and testing.
_LEFT_OUT = (".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", "dist", "var")
# Every door has what its table says, and a request goes from chat to the host and back.
_QUICK_TESTS = (
    "tests/bot/web/test_routes.py::test_every_web_route_is_in_the_table",
    "tests/bot/api/test_routes.py::test_every_api_route_is_in_the_table",
    "tests/bot/cli/test_commands.py",
    "tests/bot/slack/test_approval_flow.py",
)
# `make chaos` runs all tests of the core without any feature, and those of the features without
# each other one.
_CORE_TESTS = (
    *("tests/bot/web", "tests/bot/api", "tests/bot/cli", "tests/bot/slack", "tests/bot/workflow"),
    *("tests/bot/maintenance", "tests/bot/execution", "tests/bot/queries"),
    "tests/bot/test_hostile_chat.py",
)
_FEATURE_TESTS = "tests/bot/features"
_NAMES = [feature.name for feature in FEATURES]


def _halve_features() -> list[list[str]]:
    """Return both halves of the features by each binary digit of their numbers.

    Two features differ in a digit, so there is a half with the one and without the other: all
    halves take a fifth of the time of trying each feature.
    """
    return [
        [name for number, name in enumerate(_NAMES) if number >> digit & 1 == half]
        for digit in range((len(_NAMES) - 1).bit_length())
        for half in (0, 1)
    ]


_HALVES = _halve_features()


def _lift_out(directory: Path, name: str) -> None:
    """Delete the folder of a feature, that of its tests, and its line."""
    shutil.rmtree(directory / "bot" / "features" / name)
    shutil.rmtree(directory / "tests" / "bot" / "features" / name)
    binding = directory / "bot" / "features" / "__init__.py"
    text, lines = re.subn(rf"^    {name}\.FEATURE,\n", "", binding.read_text(), flags=re.M)
    text = re.sub(rf"^    {name},\n", "", text, flags=re.M)
    assert lines == 1
    binding.write_text(text.replace("from bot.features import (\n)\n", ""))


def _run_tests(
    directory: Path, tests: Sequence[str] = _QUICK_TESTS
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-n", "0"]
    # It is a test run of its own, whose commands are those of the copy. And a campaign within a
    # campaign would be another one.
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [*command, *tests],
        cwd=directory,
        env={**kept, "PYTHONPATH": str(directory), "KEYTURN_CHAOS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for source in ROOT.iterdir():
        if source.name in _LEFT_OUT:
            continue
        if source.name not in _COPIED:
            (tmp_path / source.name).symlink_to(source)
        elif source.is_dir():
            ignored = shutil.ignore_patterns("artefacts", "__pycache__")
            shutil.copytree(source, tmp_path / source.name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path)
    return tmp_path


def test_everything_else_works_without_any_feature(copy: Path):
    for name in _NAMES:
        _lift_out(copy, name)
    ended = _run_tests(copy)
    assert ended.returncode == 0, ended.stdout[-3000:]


@pytest.mark.skipif(not CHAOS, reason="a long campaign: make chaos")
@pytest.mark.timeout(3600)
def test_all_of_the_core_works_without_any_feature(copy: Path):
    for name in _NAMES:
        _lift_out(copy, name)
    ended = _run_tests(copy, _CORE_TESTS)
    assert ended.returncode == 0, ended.stdout[-3000:]


@pytest.mark.skipif(not CHAOS, reason="a long campaign: make chaos")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("names", _HALVES, ids=",".join)
def test_all_other_features_work_without_these(copy: Path, names: list[str]):
    for name in names:
        _lift_out(copy, name)
    ended = _run_tests(copy, [*_QUICK_TESTS, _FEATURE_TESTS])
    assert ended.returncode == 0, ended.stdout[-3000:]


def test_each_feature_is_tried_without_each_other_one():
    tried = {
        (kept, missing)
        for half in _HALVES
        for missing in half
        for kept in _NAMES
        if kept not in half
    }
    assert tried == set(itertools.permutations(_NAMES, 2))


def test_core_that_needs_a_feature_is_found(copy: Path):
    """The twin: a page of the core that asks a feature."""
    page = copy / "bot" / "web" / "runs.py"
    page.write_text(f"import bot.features.{_NAMES[0]}.pages\n{page.read_text()}")
    _lift_out(copy, _NAMES[0])
    assert _run_tests(copy, _QUICK_TESTS[:1]).returncode != 0


def test_no_test_of_those_needs_the_tests_of_another_feature():
    """What needs two features stands in tests/bot itself, which is not run without one."""
    found: list[str] = []
    folders = (*_CORE_TESTS, _FEATURE_TESTS)
    for file in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        own = re.match(r"tests/bot/features/(\w+)/", str(file.relative_to(ROOT)))
        named = re.findall(r"tests\.bot\.features\.(\w+)\.", file.read_text())
        found += [f"{file.name}: {name}" for name in named if not own or name != own[1]]
    assert found == []

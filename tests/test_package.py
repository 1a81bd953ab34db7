"""The wheel has all that a server needs, works by itself, and is built the same twice."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*command, "--directory", directory], cwd=ROOT, check=True, capture_output=True, text=True
    )
    [wheel] = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path):
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_wheel_has_every_file_of_the_service_and_none_of_the_tests(wheel: Path):
    """Assets of the pages are not in the repository, so what git lists is not enough."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "bot", "runbooks", "connectors", "migrations"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    vendor = "bot/web/static/vendor"
    assets = {f"{vendor}/{name}" for name in ("tabler.min.css", "htmx.min.js", "htmx.LICENSE")}
    assert names - {f"{vendor}/.complete"} == {*listed.stdout.split(), *assets}


def test_wheel_works_outside_of_the_repository(wheel: Path, tmp_path: Path):
    place = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(place)
    program = "import sys, bot; from bot.__main__ import main; print(bot.__file__); main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "runbooks"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place), "KEYTURN_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(place))
    assert "abusers clear" in done.stdout

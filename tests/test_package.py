"""Wheel and Debian package have all that a server needs, and are built the same twice."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bot.settings import Settings

ROOT = Path(__file__).parents[1]
RUN = ROOT / "requirements" / "run.txt"


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


UNITS = sorted((ROOT / "deploy" / "debian").glob("*.service"))
# Of systemd-analyze, out of 10: what a service that keeps to itself has.
MOST_EXPOSURE = 2.5


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bill") / "keyturn.cdx.json"
    subprocess.run([sys.executable, ROOT / ".ci" / "bill", file], check=True)
    return file


def build_debian_package(wheel: Path, bill: Path, directory: Path) -> Path:
    """Build the package without the packages of others, which take a minute."""
    packages = directory / "packages"
    packages.mkdir()
    (packages / "other.py").write_text("")
    subprocess.run(
        [ROOT / ".ci" / "deb", wheel, packages, bill, directory], check=True, capture_output=True
    )
    [package] = directory.glob("*.deb")
    return package


@pytest.fixture(scope="module")
def unpacked(wheel: Path, bill: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a Debian package was unpacked; its control files are in DEBIAN."""
    directories = [tmp_path_factory.mktemp("deb") for _ in range(2)]
    first, second = (build_debian_package(wheel, bill, one) for one in directories)
    assert first.read_bytes() == second.read_bytes()
    target = directories[0] / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", first, target], check=True)
    return target


def test_debian_package_has_the_service_and_no_compiled_file(unpacked: Path):
    control = (unpacked / "DEBIAN" / "control").read_text()
    assert "@" not in control.replace("keyturn@localhost", "")
    site = next((unpacked / "opt/keyturn/lib").glob("python3*/site-packages"))
    assert (site / "bot/web/static/vendor/htmx.min.js").exists()
    assert (site / "other.py").exists()
    assert not [*unpacked.rglob("*.pyc")]
    assert (unpacked / "usr/share/doc/keyturn/keyturn.cdx.json").stat().st_size
    ansible = unpacked / "usr/share/keyturn/ansible"
    assert (ansible / "roles/keyturn_host/tasks/main.yml").exists()
    assert (ansible / "plugins/modules/keyturn_run.py").exists()
    completion = unpacked / "usr/share/bash-completion/completions/keyturn"
    assert "_KEYTURN_COMPLETE=bash_complete" in completion.read_text()
    for path in unpacked.rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or not mode & 0o022, f"others can write {path}"


def test_settings_of_the_debian_package_are_settings(unpacked: Path):
    text = (unpacked / "etc/keyturn/keyturn.env").read_text()
    assert (unpacked / "etc/keyturn/keyturn.env").stat().st_mode & 0o777 == 0o640
    named = set(re.findall(r"(?m)^#?KEYTURN_(\w+)=", text))
    assert {name.lower() for name in named} <= set(Settings.model_fields)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_valid_and_locked_down(unit: Path, tmp_path: Path):
    """Its programs are not on this machine: any other stands for them."""
    text = unit.read_text().replace("/opt/keyturn/bin/keyturn", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@ams")
    copy.write_text(text.replace("file:/usr/share/doc/keyturn/operations.md", "man:true(1)"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    threshold = f"--threshold={MOST_EXPOSURE * 10:.0f}"
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", threshold, copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout
    assert "Overall exposure level" in rated.stdout


def test_server_of_pages_beside_workers_cannot_read_the_keys_of_hosts():
    text = (ROOT / "deploy/debian/keyturn-web.service").read_text()
    assert "InaccessiblePaths=-/etc/keyturn/policy/keys\n" in text
    assert "KEYTURN_ENGINE=distributed" in text


def test_bill_of_materials_has_every_pinned_package_with_its_hashes(bill: Path):
    # It compiles forty grammars when it is imported, which takes two seconds.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = bill.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = json.loads(text)["components"]
    pinned = re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==(\S+)", RUN.read_text())
    web = {"@tabler/core", "htmx.org"}
    python = [one for one in components if one["name"] not in web]
    assert {one["name"]: one["version"] for one in python} == dict(pinned)
    hashes = [each["content"] for one in python for each in one["externalReferences"][0]["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", RUN.read_text()))
    others = {one["name"]: one for one in components if one["name"] in web}
    assert set(others) == web
    assert all(len(one["hashes"][0]["content"]) == 128 for one in others.values())

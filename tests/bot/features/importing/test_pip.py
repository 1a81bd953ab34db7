"""What a task of pip says is done by the real pip, from a folder with packages of ours."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from runbooks import NoUndo, Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan, undo


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have pip look for packages in a folder alone, which is returned."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, version in (("our_app", "1.0"), ("our_app", "2.0"), ("our_app_more", "1.0")):
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            info = f"{name}-{version}.dist-info"
            wheel.writestr(f"{name}.py", f"version = '{version}'\n")
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def show_version(tmp_path: Path, name: str) -> str:
    shown = subprocess.run(
        [tmp_path / "venv/bin/pip", "show", name], capture_output=True, text=True, check=False
    ).stdout
    return next((line[9:] for line in shown.splitlines() if line.startswith("Version: ")), "")


VENV = "virtualenv: DIR/venv, virtualenv_command: python3 -m venv"


def test_package_is_installed_into_a_new_environment_and_both_are_gone_after_the_undo(
    tmp_path: Path,
):
    runbook = load(tmp_path, f"- pip: {{name: [Our.App, our-app-more], {VENV}}}\n")
    plan = make_plan(runbook)
    assert len(plan.steps) == 3
    apply(plan)
    assert (show_version(tmp_path, "our-app"), show_version(tmp_path, "our_app_more")) == (
        "2.0",
        "1.0",
    )
    assert not make_plan(runbook).steps
    undo(plan)
    assert not (tmp_path / "venv").exists()


def test_package_is_installed_in_its_version_and_alone(tmp_path: Path):
    more = load(tmp_path, f"- pip: {{name: our_app_more, {VENV}}}\n")
    apply(make_plan(more))
    runbook = load(tmp_path, f"- pip: {{name: our_app, version: '1.0', {VENV}}}\n")
    plan = make_plan(runbook)
    assert [step.title for step in plan.steps] == [
        f"Install our_app==1.0 by pip in {tmp_path}/venv"
    ]
    apply(plan)
    assert show_version(tmp_path, "our_app") == "1.0"
    undo(plan)
    assert show_version(tmp_path, "our_app") == ""
    newest = load(tmp_path, "- pip: {name: our_app, executable: DIR/venv/bin/pip}\n")
    apply(make_plan(newest))
    assert show_version(tmp_path, "our_app") == "2.0"
    (step,) = (plan := make_plan(runbook)).steps
    assert isinstance(step.undo, NoUndo)
    apply(plan)
    assert show_version(tmp_path, "our_app") == "1.0"
    assert not make_plan(runbook).steps


def test_environment_that_is_not_there_or_is_something_else_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match="make the environment first"):
        make_plan(load(tmp_path, "- pip: {name: our_app, executable: DIR/venv/bin/pip}\n"))
    (tmp_path / "venv").mkdir()
    with pytest.raises(Refused, match="is there without pip"):
        make_plan(load(tmp_path, f"- pip: {{name: our_app, {VENV}}}\n"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("name: app, state: latest", "its argument state is not read"),
        ("name: 'app<2'", "is no package, or one of several versions"),
        ("name: '--pre'", "is no package"),
        ("name: 'app[more]'", "is no package"),
        ("name: app==1.00", "is no package, or one of several versions"),
        ("name: app, extra_args: --pre", "its arguments are not read"),
        ("name: app, executable: pip3.9", "its program or its arguments"),
        ("name: app, virtualenv: /opt/x, virtualenv_command: uv venv", "makes its environment"),
        ("name: app, virtualenv: /etc/../x", "is not a plain path"),
        ("requirements: /srv/requirements.txt", "its argument requirements is not read"),
    ],
)
def test_what_pip_would_find_out_by_itself_is_left_out(tmp_path: Path, arguments: str, said: str):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- pip: {{{arguments}}}\n")
    (job,) = import_ansible(file, set())
    assert said in job.outcomes[-1].note

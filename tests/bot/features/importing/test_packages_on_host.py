"""Packages: what is carried over does with apt-get and dpkg what the task said.

Each host is a mount namespace with an empty database of dpkg, and a source with packages of ours.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.rundeck import import_rundeck
from connectors.command import Query, Shell
from connectors.errors import ParseError
from runbooks import Change, NoUndo, Plan, Refused
from runbooks._declared import check_page, load_page
from tests.playground.systemd import explain_missing_support

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"no namespaces can be made here: {_MISSING}"),
]

T = TypeVar("T")
_PREPARE = """
mkdir -p "$1/dpkg/info" "$1/dpkg/updates" "$1/dpkg/triggers" "$1/apt/lists" "$1/cache" "$1/log"
: > "$1/dpkg/status" > "$1/dpkg/available"
cp -a /etc "$1/etc" && rm -rf "$1"/etc/apt/*
mkdir -p "$1"/etc/apt/preferences.d "$1"/etc/apt/apt.conf.d "$1"/etc/apt/sources.list.d
echo "deb [trusted=yes] file:$1/repo ./" > "$1/etc/apt/sources.list"
echo 'APT::Sandbox::User "root";' > "$1/etc/apt/apt.conf"
mount --bind "$1/etc" /etc && mount --bind "$1/dpkg" /var/lib/dpkg
mount --bind "$1/apt" /var/lib/apt && mount --bind "$1/cache" /var/cache/apt
mount --bind "$1/log" /var/log
cp -a /usr/lib/locale "$1/locale" && mount --bind "$1/locale" /usr/lib/locale
echo ready; exec sleep 3600
"""


class _Host:
    """A mount namespace with its own packages."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "repo").mkdir()
        self.add("app", "1.0")
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _PREPARE, "sh"]
        self.process = subprocess.Popen([*words, place], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self.inside("apt-get", "update")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def inside(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--target", str(self.process.pid), "--mount", "--"]
        return subprocess.run(
            [*enter, *words], input=stdin, capture_output=True, text=True, check=False
        )

    def add(self, name: str, version: str, more: str = "") -> None:
        """Add a package with one file of configuration to the source."""
        tree = self.place / f"{name}_{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "etc").mkdir()
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            f"Maintainer: We <we@example.com>\nDescription: ours\n{more}"
        )
        (tree / "DEBIAN" / "control").write_text(control)
        (tree / "DEBIAN" / "conffiles").write_text(f"/etc/{name}.conf\n")
        (tree / "etc" / f"{name}.conf").write_text(f"version = {version}\n")
        file = self.place / "repo" / f"{tree.name}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, file], check=True, capture_output=True)
        packed = file.read_bytes()
        entry = (
            f"{control}Filename: ./{file.name}\nSize: {len(packed)}\n"
            f"SHA256: {hashlib.sha256(packed).hexdigest()}\n\n"
        )
        with (self.place / "repo" / "Packages").open("a") as opened:
            opened.write(entry)

    def age_lists(self) -> None:
        self.inside("touch", "-d", "2 hours ago", "/var/lib/apt/lists")

    def list_packages(self) -> str:
        shown = "${Package} ${Version} ${db:Status-Status}\\n"
        return self.inside("dpkg-query", "-W", f"-f={shown}").stdout

    def run(self, command: Any) -> subprocess.CompletedProcess[str]:
        assert isinstance(command, Shell)
        shell = command.resolve({}, sudo=False)
        return self.inside(*map(str, shell.words), stdin=shell.stdin)

    def run_query(self, _host: str, query: Query[T], /) -> T:
        answer = self.run(query.command)
        if answer.returncode not in query.statuses:
            raise ParseError(answer.stderr)
        return query.parse(answer.stdout)

    def plan(self, change: Change[Any]) -> Plan:
        return change.plan(change.read(self.run_query))

    def apply(self, plan: Plan) -> None:
        for step in plan.steps:
            answer = self.run(step.do)
            assert answer.returncode == 0, answer.stdout + answer.stderr

    def undo(self, plan: Plan) -> None:
        for step in reversed(plan.steps):
            assert not isinstance(step.undo, NoUndo)
            assert self.run(step.undo).returncode == 0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[_Host]:
    host = _Host(tmp_path)
    yield host
    host.close()


def import_tasks(tmp_path: Path, *tasks: str) -> list[Change[Any]]:
    """Return the requests of the pages of tasks, in order."""
    file = tmp_path / "tasks.yml"
    file.write_text("".join(f"- {task}\n" for task in tasks))
    return _load(import_ansible(file, set()))


def import_line(tmp_path: Path, line: str) -> list[Change[Any]]:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps([{"name": "job", "sequence": {"commands": [{"exec": line}]}}]))
    return _load(import_rundeck(file, set()))


def _load(jobs: Any) -> list[Change[Any]]:
    (job,) = jobs
    assert {str(one.kind) for one in job.outcomes if not one.is_setting} == {"carried over"}
    changes: list[Change[Any]] = []
    for draft in job.drafts:
        runbook = load_page(Path("page.yaml"), draft.render().encode())
        check_page(runbook)
        assert issubclass(runbook, Change)
        changes.append(runbook.model_validate({"host": "web1"}))
    return changes


@pytest.mark.parametrize("text", ["apt: {update_cache: yes}", "sudo apt-get update -qq"])
def test_lists_of_packages_are_read_again_where_they_are_old(
    host: _Host, tmp_path: Path, text: str
):
    importer = import_tasks if text.startswith("apt:") else import_line
    (change,) = importer(tmp_path, text)
    host.add("app", "2.0")
    host.age_lists()
    plan = host.plan(change)
    assert [step.title for step in plan.steps] == ["Read the lists of packages again"]
    host.apply(plan)
    assert "Candidate: 2.0" in host.inside("apt-cache", "policy", "app").stdout
    assert not host.plan(change).steps
    # The same lists again, whose time Debian leaves as it was.
    host.age_lists()
    host.apply(host.plan(change))
    assert not host.plan(change).steps


def test_source_that_gives_nothing_fails_the_step(host: _Host, tmp_path: Path):
    (change,) = import_tasks(tmp_path, "apt: {update_cache: yes, cache_valid_time: 60}")
    host.inside("sh", "-c", "echo 'deb http://127.0.0.1:9/ x main' >> /etc/apt/sources.list")
    host.age_lists()
    (step,) = host.plan(change).steps
    assert host.run(step.do).returncode


def test_lists_are_read_before_a_package_only_if_it_is_missing(host: _Host, tmp_path: Path):
    (change,) = import_tasks(tmp_path, "apt: {name: [app, tool], update_cache: yes}")
    host.add("tool", "1:1.0-1")
    host.age_lists()
    plan = host.plan(change)
    titles = ["Read the lists of packages again", "Install the package app"]
    assert [step.title for step in plan.steps] == [*titles, "Install the package tool"]
    host.apply(plan)
    assert host.list_packages() == "app 1.0 installed\ntool 1:1.0-1 installed\n"
    host.age_lists()
    assert not host.plan(change).steps


def test_source_of_a_step_before_has_its_list_read(host: _Host, tmp_path: Path):
    source = "copy: {dest: /etc/apt/sources.list.d/own.list, content: '# none', mode: '0644'}"
    (change,) = import_tasks(tmp_path, source, "apt: {update_cache: yes}")
    plan = host.plan(change)
    assert "Read the lists of packages again" in [step.title for step in plan.steps]
    host.apply(plan)
    assert not host.plan(change).steps


def test_newest_version_is_shown_and_is_the_one_that_is_installed(host: _Host, tmp_path: Path):
    lists, change = import_tasks(tmp_path, "apt: {name: app, state: latest, update_cache: yes}")
    assert not host.plan(lists).steps
    plan = host.plan(change)
    assert [step.title for step in plan.steps] == ["Install the package app 1.0"]
    host.apply(plan)
    assert not host.plan(change).steps
    host.undo(plan)
    assert "app 1.0 installed" not in host.list_packages()
    host.apply(plan)
    for version in ("2.0~rc1+b-1", "3.0"):
        host.add("app", version)
        host.age_lists()
        host.apply(host.plan(lists))
        plan = plan if version == "3.0" else host.plan(change)
    (step,) = plan.steps
    assert (step.before, step.after) == ("1.0", "2.0~rc1+b-1")
    assert isinstance(step.undo, NoUndo)
    (host.place / "etc" / "app.conf").write_text("mine\n")
    host.apply(plan)
    # 3.0 was there when the plan was carried out, and nobody had approved it.
    assert host.list_packages() == "app 2.0~rc1+b-1 installed\n"
    assert (host.place / "etc" / "app.conf").read_text() == "mine\n"
    assert [step.after for step in host.plan(change).steps] == ["3.0"]


def test_package_that_no_source_has_is_refused(host: _Host, tmp_path: Path):
    (change,) = import_tasks(tmp_path, "apt: {name: none, state: latest}")
    with pytest.raises(Refused, match="the lists of packages have no none: is its source there"):
        host.plan(change)


def test_package_is_only_upgraded_if_the_task_says_so(host: _Host, tmp_path: Path):
    (change,) = import_tasks(tmp_path, "apt: {name: app, state: latest, only_upgrade: yes}")
    assert not host.plan(change).steps


def test_package_is_installed_in_the_version_that_is_named(host: _Host, tmp_path: Path):
    host.add("app", "2.0")
    host.inside("apt-get", "update")
    task = "apt: {name: app=1.0, allow_downgrade: yes}"
    (change,) = import_tasks(tmp_path, task)
    plan = host.plan(change)
    host.apply(plan)
    assert host.list_packages() == "app 1.0 installed\n"
    assert not host.plan(change).steps
    host.undo(plan)
    host.inside("apt-get", "-y", "install", "app")
    (step,) = (plan := host.plan(change)).steps
    assert (step.before, step.after) == ("installed 2.0", "1.0")
    host.apply(plan)
    assert host.list_packages() == "app 1.0 installed\n"


@pytest.mark.skipif(not Path("/usr/sbin/locale-gen").exists(), reason="no package locales")
def test_locale_is_generated_and_gone_after_the_undo(host: _Host, tmp_path: Path):
    (change,) = import_tasks(tmp_path, "locale_gen: {name: de_DE.UTF-8}")
    lines = (tmp_path / "etc" / "locale.gen").read_text()
    assert "de_DE.utf8" not in host.inside("locale", "-a").stdout
    plan = host.plan(change)
    host.apply(plan)
    assert "de_DE.utf8" in host.inside("locale", "-a").stdout
    assert not host.plan(change).steps
    host.undo(plan)
    assert "de_DE.utf8" not in host.inside("locale", "-a").stdout
    assert (tmp_path / "etc" / "locale.gen").read_text() == lines
    (tmp_path / "etc" / "locale.gen").write_text("de_DE.UTF-8 UTF-8\n")
    (step,) = (plan := host.plan(change)).steps
    assert isinstance(step.undo, NoUndo)
    host.apply(plan)
    assert not host.plan(change).steps
    (other,) = import_tasks(tmp_path, "locale_gen: {name: fr_FR.UTF-8}")
    with pytest.raises(Refused, match="does not know fr_FR"):
        host.plan(other)


def test_source_of_packages_is_written_and_its_lists_are_read(host: _Host, tmp_path: Path):
    uri = f"file:{tmp_path}/repo"
    source = f"deb822_repository: {{name: Our Own, uris: '{uri}', suites: ./, trusted: yes}}"
    (change,) = import_tasks(tmp_path, source, "apt: {update_cache: yes}")
    plan = host.plan(change)
    host.apply(plan)
    written = (tmp_path / "etc/apt/sources.list.d/our-own.sources").read_text()
    assert written == (
        f"X-Repolib-Name: Our Own\nSuites: ./\nTrusted: yes\nTypes: deb\nURIs: {uri}\n"
    )
    assert "Read the lists of packages again" in [step.title for step in plan.steps]
    assert not host.plan(change).steps


_PYTHON = "/usr/bin/python3"
_HAS_APT = not subprocess.run([_PYTHON, "-c", "import apt"], check=False).returncode


def run_ansible(host: _Host, task: str, python: str) -> None:
    play = host.place / "site.yml"
    play.write_text(f"- hosts: all\n  tasks:\n    - {task}\n")
    program = Path(sys.executable).parent / "ansible-playbook"
    words = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={python}"]
    setting = ["env", f"HOME={host.place}", "LC_ALL=C.UTF-8"]
    answer = host.inside(*setting, str(program), *words, str(play))
    assert answer.returncode == 0, answer.stdout + answer.stderr


YUM = {
    "plain": "name: epel, description: EPEL, baseurl: 'https://x/y', gpgcheck: yes, enabled: no",
    "lists": (
        "name: app-1, file: app, description: 'The App', mode: '0600', "
        "baseurl: ['https://x/a', 'https://x/b'], gpgkey: 'file:///etc/pki/x,file:///etc/pki/y', "
        "exclude: [a, b*], sslverify: yes, priority: 5, metadata_expire: 1h"
    ),
}


@pytest.mark.parametrize("name", YUM)
def test_source_of_packages_of_red_hat_is_as_ansible_writes_it(host: _Host, name: str):
    folder, task = host.place / "etc/yum.repos.d", f"yum_repository: {{{YUM[name]}}}"
    folder.mkdir()

    def look() -> list[tuple[str, str, int]]:
        return [(one.name, one.read_text(), one.stat().st_mode) for one in folder.iterdir()]

    run_ansible(host, task, sys.executable)
    written = look()
    (change,) = import_tasks(host.place, task)
    assert not host.plan(change).steps
    next(folder.iterdir()).unlink()
    plan = host.plan(change)
    host.apply(plan)
    assert look() == written
    host.undo(plan)
    assert look() == []
    (folder / written[0][0]).write_text("[other]\nname = x\n")
    with pytest.raises(Refused, match="has other sources too"):
        host.plan(change)


@pytest.mark.skipif(not _HAS_APT, reason="Ansible needs the package python3-apt")
@pytest.mark.parametrize(
    "task",
    [
        "apt: {name: [app, tool], state: latest}",
        "apt: {name: [app=1.0, tool]}",
        "apt: {name: app=2.0}",
        "apt: {name: app, state: latest, only_upgrade: yes, dpkg_options: force-confnew}",
        "apt: {upgrade: dist}",
        "package: {name: [app, tool], state: latest}",
    ],
)
def test_packages_become_what_ansible_makes_of_them(
    tmp_path_factory: pytest.TempPathFactory, task: str
):
    found: list[tuple[str, str]] = []
    for is_ansible in (True, False):
        place = tmp_path_factory.mktemp("host")
        host = _Host(place)
        host.inside("apt-get", "-y", "install", "app")
        (place / "etc" / "app.conf").write_text("mine\n")
        host.add("app", "2.0")
        host.add("tool", "1:1.0-1")
        host.inside("apt-get", "update")
        if is_ansible:
            run_ansible(host, task, _PYTHON)
        else:
            for change in import_tasks(place, task):
                host.apply(host.plan(change))
                assert not host.plan(change).steps
        found.append((host.list_packages(), (place / "etc" / "app.conf").read_text()))
        host.close()
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "text", ["dpkg_selections: {name: app, selection: hold}", "apt-mark hold app"]
)
def test_package_is_held_and_released_by_the_undo(host: _Host, tmp_path: Path, text: str):
    importer = import_tasks if text.startswith("dpkg_") else import_line
    (change,) = importer(tmp_path, text)
    with pytest.raises(Refused, match="app is not installed, so it cannot be held"):
        host.plan(change)
    host.inside("apt-get", "-y", "install", "app")
    plan = host.plan(change)
    host.apply(plan)
    assert host.inside("apt-mark", "showhold").stdout == "app\n"
    assert not host.plan(change).steps
    host.undo(plan)
    assert host.inside("apt-mark", "showhold").stdout == ""


@pytest.mark.parametrize("text", ["apt: {upgrade: dist}", "apt-get -y upgrade", "apt upgrade -y"])
def test_packages_are_upgraded_as_the_plan_says(host: _Host, tmp_path: Path, text: str):
    importer = import_tasks if text.startswith("apt:") else import_line
    (change,) = importer(tmp_path, text)
    host.add("tool", "1:1.0-1")
    host.inside("apt-get", "update")
    host.inside("apt-get", "-y", "install", "app", "tool")
    assert not host.plan(change).steps
    host.add("app", "2.0")
    host.add("tool", "1:1.0-2")
    host.inside("apt-get", "update")
    (step,) = (plan := host.plan(change)).steps
    assert (step.before, step.after) == (
        "app=1.0, tool=1:1.0-1",
        "app=2.0, tool=1:1.0-2",
    )
    host.apply(plan)
    assert host.list_packages() == "app 2.0 installed\ntool 1:1.0-2 installed\n"
    assert not host.plan(change).steps


def test_packages_that_nothing_needs_are_removed(host: _Host, tmp_path: Path):
    host.add("user", "1.0", "Depends: app\n")
    host.inside("apt-get", "update")
    host.inside("apt-get", "-y", "install", "user")
    change, purge = [
        import_tasks(tmp_path, f"apt: {{autoremove: yes{more}}}")[0]
        for more in ("", ", purge: yes")
    ]
    assert not host.plan(change).steps
    host.inside("apt-get", "-y", "remove", "user")
    for one in (change, purge):
        (step,) = (plan := host.plan(one)).steps
        assert (step.before, step.after) == ("app", "no app")
    host.apply(plan)
    assert "app" not in host.list_packages()
    assert not host.plan(change).steps

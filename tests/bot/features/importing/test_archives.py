"""Directories that come from elsewhere: archives that are unpacked, and clones."""

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbooks import NoUndo, Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan, run, serve
from tests.bot.features.importing.test_trees import import_notes


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serve(tmp_path / "served") as address:
        yield address


def pack(path: Path) -> None:
    """Write an archive with a program."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("app/bin/tool", "one\n")
        return
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("app/bin/tool")
        member.size, member.mode = 4, 0o755
        archive.addfile(member, io.BytesIO(b"one\n"))


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
@pytest.mark.parametrize("is_fetched", [True, False])
def test_archive_is_unpacked_where_what_it_creates_is_missing(
    tmp_path: Path, address: str, name: str, is_fetched: bool
):
    pack(tmp_path / "served" / name)
    source = f"{address}/{name}" if is_fetched else f"{tmp_path}/served/{name}"
    runbook = load(
        tmp_path,
        f"- unarchive: {{src: '{source}', dest: DIR/opt/, remote_src: yes, "
        "creates: DIR/opt/app/bin/tool}\n",
    )
    with pytest.raises(Refused, match="/opt is no directory"):
        make_plan(runbook)
    (tmp_path / "opt").mkdir()
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo)
    assert bool(plan.notes) == is_fetched
    apply(plan)
    assert (tmp_path / "opt" / "app" / "bin" / "tool").read_text() == "one\n"
    assert [one.name for one in (tmp_path / "opt").iterdir()] == ["app"]
    assert not make_plan(runbook).steps


def test_archive_that_is_broken_or_missing_leaves_nothing(tmp_path: Path, address: str):
    (tmp_path / "opt").mkdir()
    (tmp_path / "served" / "a.tgz").write_text("no archive")
    task = "- unarchive: {src: 'SRC', dest: DIR/opt, copy: no, creates: DIR/opt/app}\n"
    for name in ("a.tgz", "none.tgz"):
        (step,) = make_plan(load(tmp_path, task.replace("SRC", f"{address}/{name}"))).steps
        assert run(step.do).returncode
        assert not [*(tmp_path / "opt").iterdir()]
    with pytest.raises(Refused, match=r"/none.tgz is missing"):
        make_plan(load(tmp_path, task.replace("SRC", f"{tmp_path}/none.tgz")))


def test_archive_follows_what_is_fetched_and_made_before_it(tmp_path: Path, address: str):
    pack(tmp_path / "served" / "a.tgz")
    runbook = load(
        tmp_path,
        f"- get_url: {{url: '{address}/a.tgz', dest: DIR/a.tgz}}\n  register: got\n"
        "- file: {path: DIR/opt, state: directory}\n"
        "- unarchive: {src: DIR/a.tgz, dest: DIR/opt, remote_src: yes}\n  when: got is changed\n"
        "- file: {path: DIR/opt, state: directory, recurse: yes, mode: 'go='}\n",
    )
    apply(make_plan(runbook))
    tool = tmp_path / "opt" / "app" / "bin" / "tool"
    assert tool.stat().st_mode & 0o777 == 0o700
    assert not make_plan(runbook).steps


def test_archive_is_unpacked_where_a_look_shows_that_it_is_needed(tmp_path: Path):
    pack(tmp_path / "a.tgz")
    (tmp_path / "opt").mkdir()
    runbook = load(
        tmp_path,
        "- stat: {path: DIR/opt/app}\n  register: app\n"
        "- unarchive: {src: DIR/a.tgz, dest: DIR/opt, remote_src: yes}\n"
        "  when: not app.stat.exists\n",
    )
    apply(make_plan(runbook))
    assert (tmp_path / "opt" / "app" / "bin" / "tool").exists()
    assert not make_plan(runbook).steps


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("src: a.tgz, dest: /opt, creates: /opt/a", "where Ansible runs"),
        ("src: /a.tgz, dest: /opt, remote_src: yes", "nothing shows whether it is unpacked"),
        ("src: 'ftp://x/a', dest: /opt, remote_src: yes, creates: /opt/a", "not the address"),
        ("src: /a.tgz, dest: /, remote_src: yes, creates: /a", "not a plain path"),
        ("src: /a.tgz, dest: /etc, remote_src: yes, creates: /etc/a", "access to a host"),
        ("src: /a.tgz, dest: /home/ann, copy: no, creates: /a", "access to a host"),
        ("src: /a.tgz, dest: /usr/bin, copy: no, creates: /usr/bin/a", "access to a host"),
        ("src: /a.tgz, dest: /opt, copy: no, creates: /b, owner: 'a:b'", "is not read"),
        ("src: /a.tgz, dest: /opt, copy: no, creates: /b, keep_newer: yes", "keep_newer"),
        (
            "src: /a.tgz, dest: /opt, copy: no, creates: /b, extra_opts: [--to-command=id]",
            "the option '--to-command=id' of tar is not read",
        ),
        (
            "src: /a.tgz, dest: /opt, copy: no, creates: /b, include: ['-Iid']",
            "the option '-Iid' of tar is not read",
        ),
    ],
)
def test_archive_that_is_not_unpacked_as_ansible_does_is_left_out(
    tmp_path: Path, arguments: str, said: str
):
    (note,) = import_notes(tmp_path, f"unarchive: {{{arguments}}}")
    assert said in note


def git(place: Path, *words: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@x", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, "-C", str(place), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path) -> list[str]:
    """Serve a repository with two commits, a tag and a branch; return the commits."""
    place = tmp_path / "served" / "app"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    found = list[str]()
    for text in ("one", "two"):
        (place / "file").write_text(text)
        git(place, "add", "file")
        git(place, "commit", "-q", "-m", text)
        found.append(git(place, "rev-parse", "HEAD"))
    git(place, "tag", "-m", "first", "v1", found[0])
    git(place, "branch", "next")
    git(place, "update-server-info")
    return found


@pytest.mark.parametrize(
    ("version", "text"), [("", "two"), ("v1", "one"), ("next", "two"), ("COMMIT", "one")]
)
def test_repository_is_cloned_where_there_is_no_clone(
    tmp_path: Path, commits: list[str], address: str, version: str, text: str
):
    version = version.replace("COMMIT", commits[0])
    told = f", version: '{version}'" if version else ""
    runbook = load(tmp_path, f"- git: {{repo: '{address}/app/.git', dest: DIR/opt/app{told}}}\n")
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo)
    apply(plan)
    clone = tmp_path / "opt" / "app"
    assert (clone / "file").read_text() == text
    assert [one.name for one in (tmp_path / "opt").iterdir()] == ["app"]
    if version == "next":
        assert git(clone, "branch", "--show-current") == "next"
    assert not make_plan(runbook).steps
    assert bool(plan.notes) == (version != commits[0])


def test_clone_is_switched_to_another_commit_unless_files_were_changed(
    tmp_path: Path, commits: list[str], address: str
):
    task = f"- git: {{repo: '{address}/app/.git', dest: DIR/app, version: 'COMMIT'}}\n"
    apply(make_plan(load(tmp_path, task.replace("COMMIT", commits[0]))))
    runbook = load(tmp_path, task.replace("COMMIT", commits[1]))
    file = tmp_path / "app" / "file"
    file.write_text("own")
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo)
    assert commits[0] in step.undo.reason
    assert run(step.do).returncode
    assert file.read_text() == "own"
    git(tmp_path / "app", "checkout", "-q", "file")
    apply(plan)
    assert file.read_text() == "two"
    assert not make_plan(runbook).steps


def test_repository_that_is_not_there_leaves_nothing_and_other_files_are_kept(
    tmp_path: Path, address: str
):
    runbook = load(tmp_path, f"- git: {{repo: '{address}/none', dest: DIR/opt/app}}\n")
    (step,) = make_plan(runbook).steps
    assert run(step.do).returncode
    assert not [*(tmp_path / "opt").iterdir()]
    (tmp_path / "opt" / "app").mkdir()
    assert len(make_plan(runbook).steps) == 1
    (tmp_path / "opt" / "app" / "own").touch()
    with pytest.raises(Refused, match="is no clone, and there is something in it"):
        make_plan(runbook)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("repo: 'ext::sh -c id', dest: /opt/a", "is not the address of a repository"),
        ("repo: 'file:///srv/a', dest: /opt/a", "is not the address of a repository"),
        ("repo: '--upload-pack=id', dest: /opt/a", "is not the address of a repository"),
        ("repo: 'a@x:-oProxyCommand=id', dest: /opt/a", "is not the address of a repository"),
        ("repo: 'https://x/a', dest: /opt/a, version: '--detach'", "the version '--detach'"),
        ("repo: 'https://x/a', dest: /opt/a, version: 'a b'", "the version 'a b'"),
        ("repo: 'https://x/a', dest: /etc/ssh/a", "access to a host may depend"),
        ("repo: 'https://x/a', dest: /srv/ann/.ssh", "access to a host may depend"),
        ("repo: 'a@x:b', dest: /opt/a, accept_hostkey: yes", "takes the key of any host"),
        ("repo: 'a@x:b', dest: /opt/a, key_file: /k", "its argument key_file is not read"),
        ("repo: 'https://x/a', dest: /opt/a, depth: all", "is not a number"),
        ("repo: 'https://x/a', dest: /opt/a, recursive: no", "recursive is not read"),
        (f"repo: 'https://x/a', dest: /opt/a, force: yes, version: '{'a' * 40}'", "writes over"),
    ],
)
def test_repository_that_is_not_cloned_as_ansible_does_is_left_out(
    tmp_path: Path, arguments: str, said: str
):
    (note,) = import_notes(tmp_path, f"git: {{{arguments}}}")
    assert said in note

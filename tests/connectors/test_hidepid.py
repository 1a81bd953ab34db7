import subprocess
from pathlib import Path

import pytest

from connectors import hidepid
from connectors.command import Answer, Shell, find_failure
from connectors.errors import ParseError
from tests.connectors.storage import recorded

# What each rule for sudo is for.
FOR_ROOT = (
    *(hidepid.remount_proc(2), hidepid.set_fstab_options("rw,hidepid=2,gid=7")),
    *(
        hidepid.add_fstab_line("defaults,hidepid=2"),
        hidepid.remove_fstab_line("defaults,hidepid=1"),
    ),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("findmnt-proc", (0, None)),
        ("findmnt-proc-invisible", (2, None)),
        ("findmnt-proc-noaccess-gid", (1, 5)),
    ],
)
def test_hidepid_and_gid_in_force_are_parsed(name: str, value: tuple[int, int | None]):
    assert hidepid.parse_current(recorded(name)) == value


def test_hidepid_in_fstab_is_parsed():
    options = hidepid.parse_fstab(recorded("findmnt-fstab-proc"))
    assert options == "defaults,hidepid=1,gid=5"
    assert hidepid.parse_hidepid(options) == 1
    assert hidepid.parse_fstab("") is None


@pytest.mark.parametrize("answer", ["", "{}", recorded("findmnt-lvm")])
def test_mount_that_is_not_proc_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        hidepid.parse_current(answer)


def test_unknown_hidepid_value_is_a_parse_error():
    with pytest.raises(ParseError, match="hidepid=strange"):
        hidepid.parse_current(recorded("findmnt-proc-invisible").replace("invisible", "strange"))


@pytest.mark.parametrize("options", ["", "a b", "a|b", "a\\1", "a&b", "a'b", 'a"b', "a\n", "a;b"])
def test_fstab_options_special_to_sed_are_refused(options: str):
    for build in (hidepid.set_fstab_options, hidepid.add_fstab_line, hidepid.remove_fstab_line):
        with pytest.raises(ValueError, match="not mount options"):
            build(options)


FSTAB = "# /proc is below\nUUID=1\t/\text4\terrors=remount-ro\t0 1\n"
PROC = "proc\t/proc  proc\tdefaults,gid=5\t0\t0\n"


def run_on(file: Path, shell: Shell) -> str:
    words = [word.replace("/etc/fstab", str(file)) for word in shell.words]
    subprocess.run(words, capture_output=True, check=True)
    return file.read_text()


def test_proc_line_in_fstab_is_changed_and_changed_back(tmp_path: Path):
    file = tmp_path / "fstab"
    file.write_text(FSTAB + PROC + "tmpfs /proc/x tmpfs rw 0 0\n")
    file.chmod(0o640)
    before = file.read_text()
    changed = run_on(file, hidepid.set_fstab_options("defaults,gid=5,hidepid=2"))
    assert changed == before.replace("gid=5", "gid=5,hidepid=2")
    assert run_on(file, hidepid.set_fstab_options("defaults,gid=5")) == before
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["", FSTAB])
def test_proc_line_in_fstab_is_added_and_removed(tmp_path: Path, text: str):
    file = tmp_path / "fstab"
    file.write_text(text)
    added = run_on(file, hidepid.add_fstab_line("defaults,hidepid=2"))
    assert added == text + "proc /proc proc defaults,hidepid=2 0 0\n"
    assert run_on(file, hidepid.remove_fstab_line("defaults,hidepid=2")) == text


def test_fstab_without_a_final_newline_gets_one_before_the_proc_line(tmp_path: Path):
    file = tmp_path / "fstab"
    file.write_text(FSTAB.removesuffix("\n"))
    assert (
        run_on(file, hidepid.add_fstab_line("hidepid=1"))
        == FSTAB + "proc /proc proc hidepid=1 0 0\n"
    )


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("mount: /proc: must be superuser to use mount.", "this requires root"),
        ("mount: /proc: mount point not mounted or bad option.", "does not support this value"),
        ("mount: /proc: permission denied.", "container"),
    ],
)
def test_hidepid_remount_errors_are_explained(output: str, meaning: str):
    assert meaning in str(
        find_failure(hidepid.remount_proc(2), Answer(32, "", output), frozenset({0}))
    )

"""Mounts of /etc/fstab and swap: what they are planned as, and what is left alone."""

import subprocess
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.drafts import Unclear
from bot.features.importing.kinds.file_mounts import read_size
from connectors.command import Query
from runbooks import Change, Plan, Refused
from runbooks._declared import check_page, load_page
from tests.bot.features.importing.test_applied import T, apply, load, make_plan, undo
from tests.bot.features.importing.test_shell_files import import_kinds
from tests.bot.features.importing.test_trees import import_notes

_SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2G", 2 << 30),
        ("1GiB", 1 << 30),
        ("1M", 1 << 20),
        ("4k", 4096),
        ("512", 512),
        ("8b", 4096),
    ],
)
def test_size_is_read(text: str, size: int):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1T", "1 G", "1e3", "1MB", "1KB"])
def test_size_that_may_be_another_one_is_not_read(text: str):
    with pytest.raises(Unclear, match="is not read"):
        read_size(text)


@pytest.mark.parametrize(
    "command", ["fallocate -l 64K DIR/swap", "dd if=/dev/zero of=DIR/swap bs=1k count=64"]
)
def test_file_for_swap_is_made_once(tmp_path: Path, command: str):
    runbook = load(tmp_path, f"- shell: {command} && chmod 600 DIR/swap\n")
    plan = make_plan(runbook)
    apply(plan)
    swap = tmp_path / "swap"
    assert (swap.stat().st_size, swap.stat().st_mode & 0o777) == (64 << 10, 0o600)
    assert not make_plan(runbook).steps
    undo(plan)
    assert not swap.exists()
    swap.write_text("data")
    with pytest.raises(Refused, match="is there with another size, 4 bytes"):
        make_plan(runbook)


def test_new_file_is_made_swap(tmp_path: Path):
    runbook = load(
        tmp_path, "- shell: fallocate -l 64K DIR/swap && chmod 600 DIR/swap && mkswap DIR/swap\n"
    )
    plan = make_plan(runbook)
    assert len(plan.steps) == 3
    apply(plan)
    assert (tmp_path / "swap").read_bytes()[4086:4096] == b"SWAPSPACE2"
    assert not make_plan(runbook).steps


def plan_with(tmp_path: Path, line: str, swaps: str) -> Plan:
    """Return the plan for a host with this swap."""
    file = tmp_path / "tasks.yml"
    file.write_text(f"- shell: {line}\n")
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    runbook = load_page(Path("page.yaml"), draft.render().encode())
    check_page(runbook)
    assert issubclass(runbook, Change)
    change = runbook.model_validate({"host": "web1"})

    def answer(_host: str, query: Query[T], /) -> T:
        return query.parse(swaps)

    return change.plan(change.read(answer))


@pytest.mark.parametrize(
    ("line", "swaps", "titles"),
    [
        ("swapon /swapfile", "", ["Use /swapfile as swap"]),
        ("swapon /swapfile", "/swapfile2 file 1 0 -2\n", ["Use /swapfile as swap"]),
        ("swapon /swapfile", "/swapfile file 1 0 -2\n", []),
        ("swapoff /swapfile", "/swapfile\t\tfile 1 0 -2\n", ["Stop using /swapfile as swap"]),
        ("swapoff /swapfile", "", []),
        ("swapoff -a", "", []),
        ("swapoff -a", "/dev/sda2 partition 1 0 -2\n", ["Stop using swap"]),
    ],
)
def test_swap_is_planned_by_what_is_used(tmp_path: Path, line: str, swaps: str, titles: list[str]):
    plan = plan_with(tmp_path, line, _SWAPS + swaps)
    assert [step.title for step in plan.steps] == titles


@pytest.mark.parametrize(
    "line",
    [
        "mkswap /dev/sdb1",
        "mkswap -f /swapfile",
        "swapon -a",
        "swapon -p 5 /swapfile",
        "dd if=/dev/zero of=/dev/sda bs=1M count=1",
        "dd if=/dev/sda of=/srv/a bs=1M count=1",
        "dd if=/dev/zero of=/srv/a bs=1M count=1 seek=5",
        "dd if=/dev/zero of=/srv/a bs=1MB count=1",
        "fallocate -d -l 1G /srv/a",
        "fallocate -l 1G /srv/a /srv/b",
        "umount -l /data",
        "umount /home",
        "umount -a",
    ],
)
def test_line_of_swap_or_mounts_that_does_more_is_blind(tmp_path: Path, line: str):
    assert import_kinds(tmp_path, line) == ["blind"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("path: /home, src: /dev/vdb1, fstype: ext4, state: mounted", "would be hidden"),
        ("path: /, src: /dev/vdb1, fstype: ext4, state: present", "not a plain path"),
        ("path: /etc/app, src: /dev/vdb1, fstype: ext4, state: present", "would be hidden"),
        ("path: /home/ann, src: /dev/vdb1, fstype: ext4, state: mounted", "would be hidden"),
        ("path: /run/sshd, src: tmpfs, fstype: tmpfs, state: mounted", "would be hidden"),
        ("path: /data, src: /dev/vdb1, fstype: ext4, state: absent", "the state absent"),
        ("path: /data, src: /dev/vdb1, fstype: ext4, state: remounted", "the state remounted"),
        (
            "path: /data, src: '//x/y', fstype: cifs, opts: 'password=a', state: present",
            "plain word",
        ),
        ("path: /data, src: 'a b', fstype: ext4, state: present", "not a plain word"),
        ("path: /data, src: /dev/vdb1, fstype: ext4, passno: x, state: present", "its numbers"),
        (
            "path: /data, src: /dev/vdb1, fstype: ext4, state: present, fstab: /x",
            "fstab is not read",
        ),
        (
            "path: /data, src: /dev/vdb1, fstype: ext4, state: present, boot: no",
            "boot is not read",
        ),
        ("path: swap, src: /dev/vdb1, fstype: swap, state: present", "swap that is at a place"),
    ],
)
def test_mount_that_may_take_something_away_is_left_out(tmp_path: Path, more: str, said: str):
    (note,) = import_notes(tmp_path, f"mount: {{{more}}}")
    assert said in note


def test_line_of_fstab_with_the_same_fields_is_kept_and_another_one_replaced(tmp_path: Path):
    """The page is of /etc/fstab; here it is of a file of the test."""
    task = "- mount: {path: /data, src: UUID=a-1, fstype: ext4, opts: nofail, state: present}\n"
    file = tmp_path / "tasks.yml"
    file.write_text(task)
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    fstab = tmp_path / "fstab"
    text = draft.render().replace("/etc/fstab", str(fstab))
    runbook = load_page(Path("page.yaml"), text.encode())
    assert issubclass(runbook, Change)
    for kept in (
        "UUID=a-1\t/data  ext4 nofail",
        " UUID=a-1 /data ext4 nofail 0 0 ",
        "UUID=a-1 /data ext4 nofail 0",
    ):
        fstab.write_text(f"{kept}\n")
        assert not make_plan(runbook).steps
    rest = "# UUID=b /data ext4\n/dev/x /data2 ext4 defaults 0 0\n"
    for other in (
        "UUID=b /data ext4 nofail 0 0\n",
        "UUID=a-1 /data ext4 defaults 0 0\n",
        "UUID=a-1 /data ext4 nofail 0 2\n",
        "",
    ):
        fstab.write_text(rest + other)
        plan = make_plan(runbook)
        assert any("may stop at its next boot" in one for one in plan.notes)
        apply(plan)
        assert fstab.read_text() == f"{rest}UUID=a-1 /data ext4 nofail 0 0\n"
        assert not make_plan(runbook).steps
    verify = ["findmnt", "--verify", "--tab-file", str(fstab)]
    checked = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert "0 parse errors" in checked.stdout + checked.stderr


@pytest.mark.parametrize("line", ["rm -f /swapfile", "rm -rf /swapfile"])
def test_file_at_the_top_is_removed_and_nothing_else_there(tmp_path: Path, line: str):
    (step,) = plan_with(tmp_path, line, "regular file,0600,root,root").steps
    assert "/usr/bin/rm -f -- /swapfile" in str(step.do)
    assert not plan_with(tmp_path, line, "").steps
    for other in ("directory,0755,root,root", "symbolic link,0777,root,root"):
        with pytest.raises(Refused, match="/swapfile is at the top of the file system"):
            plan_with(tmp_path, line, other)


@pytest.mark.parametrize("path", ["/boot", "/bin", "/etc/", "/lib64", "/var"])
def test_directory_at_the_top_is_not_removed(tmp_path: Path, path: str):
    (note,) = import_notes(tmp_path, f"file: {{path: {path}, state: absent}}")
    assert "is at the top of the file system" in note

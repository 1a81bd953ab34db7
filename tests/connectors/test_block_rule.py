import subprocess
from pathlib import Path

import pytest

from connectors import block_rule
from connectors.command import Shell

WWID = ("device/wwid", "naa.5000c50000000002")
SETTINGS = {"scheduler": "bfq", "nr_requests": 200, "iosched/slice_idle": 1, "read_ahead_kb": 1024}
RULE = (
    "# Written by Keyturn, which replaces this file: change it by `nfs scheduler set`.\n"
    'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", '
    'ATTR{device/wwid}=="naa.5000c50000000002", ATTR{queue/scheduler}="bfq", '
    'ATTR{queue/nr_requests}="200", ATTR{queue/iosched/slice_idle}="1", '
    'ATTR{queue/read_ahead_kb}="1024"\n'
)


def test_udev_rule_matches_a_disk_by_its_wwid():
    assert block_rule.format_rule("sdb", WWID, SETTINGS) == RULE
    file = "/etc/udev/rules.d/60-keyturn-naa.5000c50000000002.rules"
    assert block_rule.make_rule_path("sdb", WWID) == file


def test_udev_rule_matches_a_disk_without_a_wwid_by_its_kernel_name():
    assert 'KERNEL=="loop7", ATTR{queue/scheduler}="none"' in block_rule.format_rule(
        "loop7", None, {"scheduler": "none"}
    )
    assert block_rule.make_rule_path("loop7", None) == "/etc/udev/rules.d/60-keyturn-loop7.rules"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "-x", 'a"b', "a b", "a\n"])
def test_udev_rule_path_refuses_identities_that_leave_the_directory(name: str):
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        block_rule.make_rule_path("sdb", ("device/wwid", name))
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        block_rule.make_rule_path(name, None)


@pytest.mark.parametrize(
    "settings",
    [
        {"scheduler": 'bfq", RUN+="/bin/sh'},
        {"scheduler": "bfq\n"},
        {"scheduler": ""},
        {'x}="1"': "1"},
        {"read_ahead_kb": "1 2"},
    ],
)
def test_udev_rule_refuses_values_with_another_assignment(settings: dict[str, str]):
    with pytest.raises(ValueError, match="is not allowed in a udev rule"):
        block_rule.format_rule("sdb", WWID, settings)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("", True),
        (RULE, True),
        (RULE.replace("Keyturn", "Eve"), False),
        (RULE + "a\tb\n", False),
        (RULE + "cut", False),
    ],
)
def test_udev_rule_is_replaced_only_when_keyturn_wrote_it(text: str, ours: bool):
    assert block_rule.is_own_rule(text) is ours


def run_script(shell: Shell) -> str:
    done = subprocess.run(
        shell.words, input=shell.stdin, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_udev_rule_is_written_read_back_and_removed(tmp_path: Path):
    file = tmp_path / "rules.d" / "60-keyturn-x.rules"
    ask = block_rule.query_rule(str(file))
    assert isinstance(ask.command, Shell)
    assert ask.parse(run_script(ask.command)) == ""
    run_script(block_rule.replace_rule(str(file), RULE))
    assert ask.parse(run_script(ask.command)) == RULE
    assert file.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    run_script(block_rule.replace_rule(str(file), ""))
    assert not file.exists()


def test_failed_write_of_a_udev_rule_leaves_no_partial_file(tmp_path: Path):
    file = tmp_path / "60-keyturn-x.rules"
    file.mkdir()
    (file / "in the way").touch()
    file.chmod(0o555)
    shell = block_rule.replace_rule(str(file / "in the way" / "x.rules"), RULE)
    done = subprocess.run(shell.words, input=RULE, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert [each.name for each in file.iterdir()] == ["in the way"]

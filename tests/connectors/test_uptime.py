import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import uptime
from connectors.command import Shell
from connectors.errors import ParseError
from connectors.uptime import Uptime, parse_uptime

PLAIN = (Path(__file__).parent / "answers" / "uptime" / "plain.txt").read_text()


def test_uptime_of_a_host_is_parsed():
    assert parse_uptime(PLAIN) == Uptime(5921.97, (2.54, 5.17, 7.85), 4, "6.18.44-fc-v595", None)


def _add_file(file: str, text: str) -> str:
    return f"{PLAIN}\n==> {file} <==\n{text}"


def test_packages_that_require_a_reboot_are_listed_once():
    asked = _add_file("/run/reboot-required", "*** System restart required ***\n")
    named = f"{asked}\n==> /run/reboot-required.pkgs <==\nlibc6\nlinux-base\nlibc6\n"
    assert parse_uptime(named).reboot_packages == ("libc6", "linux-base")
    assert parse_uptime(asked).reboot_packages == ()


def test_empty_reboot_required_file_requires_a_reboot():
    assert parse_uptime(_add_file("/run/reboot-required", "")).reboot_packages == ()


@pytest.mark.parametrize(
    ("listed", "cores"), [("0", 1), ("0-3", 4), ("0,2-3,8-15", 11), ("0-4095", 4096)]
)
def test_online_cores_are_counted(listed: str, cores: int):
    assert parse_uptime(PLAIN.replace("\n0-3\n", f"\n{listed}\n")).cores == cores


def test_uptime_of_a_container_without_cores_is_parsed():
    container = PLAIN.partition("\n==> /sys/")[0]
    assert parse_uptime(container) == replace(parse_uptime(PLAIN), cores=None)


@pytest.mark.parametrize("program", [("head",), ("busybox", "head")])
def test_uptime_of_this_machine_is_parsed_with_coreutils_and_busybox(program: tuple[str, ...]):
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    query = uptime.query_uptime()
    assert isinstance(query.command, Shell)
    result = subprocess.run(
        (*program, *query.command.words[1:]), capture_output=True, text=True, check=False
    )
    assert result.returncode in query.statuses
    assert (query.parse(result.stdout).cores or 0) >= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "x\n",
        "1.0 2.0\n1 2\n4\nk\n",
        PLAIN.replace("\n0-3\n", "\n\n"),
        PLAIN.replace("\n0-3\n", "\n0-\n"),
        PLAIN.replace("5921.97 14140.31", ""),
        PLAIN.replace("2.54 5.17 7.85", ""),
        PLAIN.replace("6.18.44-fc-v595", ""),
        f"more\n{PLAIN}",
    ],
)
def test_invalid_uptime_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_uptime(answer)

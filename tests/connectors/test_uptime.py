from pathlib import Path

import pytest

from connectors.trouble import NotUnderstood
from connectors.uptime import Uptime, parse_uptime

PLAIN = (Path(__file__).parent / "answers" / "uptime" / "plain.txt").read_text()


def test_how_long_a_host_is_up_is_understood():
    assert parse_uptime(PLAIN) == Uptime(5921.97, (2.54, 5.17, 7.85), 4, "6.18.44-fc-v595", None)


def test_packages_that_ask_for_a_restart_are_told_once():
    assert parse_uptime(PLAIN + "reboot\nlibc6\nlinux-base\nlibc6\n").reboot_for == (
        "libc6",
        "linux-base",
    )
    assert parse_uptime(PLAIN + "reboot\n").reboot_for == ()


@pytest.mark.parametrize(
    "answer", ["", "x\n", "1.0 2.0\n1 2\n4\nk\n", PLAIN.replace("\n4\n", "\n\n"), PLAIN + "more\n"]
)
def test_anything_else_is_not_taken_for_it(answer: str):
    with pytest.raises(NotUnderstood):
        parse_uptime(answer)

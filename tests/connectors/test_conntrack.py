import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectors import conntrack
from connectors.command import Answer, find_failure
from connectors.conntrack import Conntrack, parse_conntrack
from connectors.errors import ParseError
from tests.connectors.understanding import is_understood

IN_USE = (Path(__file__).parent / "answers" / "conntrack" / "in-use.txt").read_text()


def test_conntrack_count_limit_and_drops_of_all_cpus_are_parsed():
    assert parse_conntrack(IN_USE) == Conntrack(1, 262144, 262144, 24683672 * 1024, 0, 0)
    first = IN_USE.rindex("00000001  ")
    names = next(line for line in IN_USE.splitlines() if line.startswith("entries ")).split()
    row = ["00000001"] + ["00000000"] * (len(names) - 1)
    row[names.index("drop")], row[names.index("early_drop")] = "0000000a", "00000010"
    dropped = parse_conntrack(IN_USE[:first] + " ".join(row) + "\n" + IN_USE[first:])
    assert (dropped.dropped, dropped.early_dropped) == (10, 16)


def test_conntrack_usage_is_a_share_of_the_limit():
    assert Conntrack(90, 100, 1, 1, 0, 0).usage == 0.9
    assert Conntrack(0, 0, 1, 1, 0, 0).usage == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "1\n2\n",
        IN_USE.replace("MemTotal", "Total"),
        IN_USE.replace(" early_drop ", " other "),
        IN_USE[: IN_USE.index("00000001  ")],
        IN_USE.replace("262144\n", "many\n", 1),
    ],
)
def test_invalid_conntrack_answer_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_conntrack(answer)


@pytest.mark.parametrize(
    ("output", "means"),
    [
        (
            "cat: /proc/sys/net/netfilter/nf_conntrack_count: No such file",
            "does not track connections",
        ),
        (
            'sysctl: setting key "net.netfilter.nf_conntrack_max": Invalid argument',
            "this is a container",
        ),
    ],
)
def test_conntrack_errors_say_what_to_do(output: str, means: str):
    assert means in str(
        find_failure(conntrack.set_maximum(1), Answer(2, "", output), frozenset({0}))
    )


def test_conntrack_limits_at_boot_are_parsed_by_sysctl_file():
    answer = (
        "/etc/sysctl.conf:net.netfilter.nf_conntrack_max=65536\n"
        "/etc/sysctl.d/10-fw.conf: net/netfilter/nf_conntrack_max = 131072\n"
    )
    assert conntrack.parse_boot_limits(answer) == {
        "/etc/sysctl.conf": 65536,
        "/etc/sysctl.d/10-fw.conf": 131072,
    }
    assert conntrack.parse_boot_limits("") == {}
    assert not is_understood(
        lambda: conntrack.parse_boot_limits(
            "/etc/sysctl.conf:net.netfilter.nf_conntrack_max = many\n"
        )
    )


def test_sysctl_file_that_keyturn_did_not_write_is_not_replaced(tmp_path: Path):
    script = next(
        r.script for r in conntrack.SUDO if r.script and r.script.name == "conntrack-boot"
    )
    file = tmp_path / "99-keyturn-conntrack.conf"
    there = replace(script, code=script.code.replace(conntrack.BOOT_FILE, str(file)))

    def run(limit: str) -> int:
        words = ["sh", "-c", there.text, "keyturn", limit]
        return subprocess.run(words, capture_output=True, check=False).returncode

    assert run("524288") == 0
    assert file.read_text() == ("# Written by Keyturn\nnet.netfilter.nf_conntrack_max = 524288\n")
    assert run("none") == 0
    assert not file.exists()
    file.write_text("# mine\n")
    assert run("none") == 1
    assert file.read_text() == "# mine\n"

"""Patterns of imported tasks: Ansible, RE2 and sed find the same lines, or they are refused."""

import re
import subprocess

import pytest

from bot.features.importing.drafts import Unclear
from bot.features.importing.patterns import delimit, read_pattern
from runbooks._declared_parsers import compile_pattern

LINES = (
    *("", "#", "##", "# Port 22", "Port 22", "Port  2222 # ssh", "Port22", "a", "ab/c", "a]", "]"),
    *("9", "x=1", "x =\t1", ")*A\t=", "[", "a|b", "PermitRootLogin yes", "PermitRootLogin"),
)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^#?\s*Port\s+\d+",
        r"^(#|\s)*Port[ =]",
        r"^PermitRootLogin\s",
        r"^Port(\s|$)",
        r"#\s[^]a]?",
        r"[^ =][]a]*",
        r"^[^]a]$",
        r" [^ =]$",
        r"\s\s$",
        r"^\w+ ?=\s*\d?$",
        r"^[.*x]|/c$|\[",
    ],
)
def test_pattern_finds_the_lines_that_ansible_finds(pattern: str):
    read = read_pattern(pattern)
    # Ansible looks for it in bytes, each line with its end.
    wanted = [bool(re.search(pattern.encode(), f"{line}\n".encode())) for line in LINES]
    assert [bool(compile_pattern(read).search(line)) for line in LINES] == wanted
    words = ["sed", "-nE", f"/{delimit(read)}/="]
    found = subprocess.run(words, input="\n".join(LINES) + "\n", capture_output=True, text=True)
    assert not found.stderr
    numbers = {int(number) for number in found.stdout.split()}
    assert [number in numbers for number in range(1, len(LINES) + 1)] == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"a^b",
            r"a$b",
            r"a+^$",
            r"[^ =][ab]?[^ =]$",
            r"a+?",
            r"(?i)a",
            r"(?=a)",
            r"a{2}",
        ),
        *(r"[[:alpha:]]", r"a||b", r"\bPort\b", r"(a)\1", r"[^]", r"[a\]"),
    ],
)
def test_pattern_that_may_mean_something_else_is_refused(pattern: str):
    with pytest.raises(Unclear, match="may mean something else to sed"):
        read_pattern(pattern)

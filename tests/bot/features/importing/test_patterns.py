"""Patterns of imported tasks: Ansible, RE2 and sed find the same lines, or they are refused."""

import re
import subprocess

import pytest

from bot.features.importing.drafts import Unclear
from bot.features.importing.kinds.patterns import (
    delimit,
    escape_new,
    read_pattern,
    read_replacement,
)
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
        r"^[\s]*Port[\s]+[\d]+|\\[\s]",
        r"=\t1|^A\t",
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
        *(r"[[:alpha:]]", r"a||b", r"\bPort\b", r"(a)\1", r"[^]", r"[a\]", r"[a[\s]]", r"[[\s]"),
    ],
)
def test_pattern_that_may_mean_something_else_is_refused(pattern: str):
    with pytest.raises(Unclear, match="may mean something else to sed"):
        read_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"#", ""),
        (r"Port ?", "a/b & c"),
        (r"^#? ?Port .*$", r"x"),
        (r"^(Port) [0-9]", r"\1\g<1>="),
        (r"[#x]=?", "y"),
        (r"^.*Root.*", "off"),
        (r"a?(ab)", "x"),
        (r"(\))\*(A)", r"\2\1"),
        (r"\|b", "#"),
        (r" +", "_"),
    ],
)
def test_texts_are_replaced_as_ansible_replaces_them(pattern: str, new: str):
    text = "\n".join(LINES) + "\n"
    read, plain = read_replacement(pattern, new)
    code = f"s/{delimit(read)}/{escape_new(plain)}/g"
    done = subprocess.run(["sed", "-E", code], input=text, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (re.sub(pattern, new, text, flags=re.MULTILINE), "")
    words = ["grep", "-oE", "-e", read]
    found = subprocess.run(words, input=text, capture_output=True, text=True).stdout
    assert found.splitlines() == [one[0] for one in re.finditer(pattern, text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        *((r"a|ab", "x"), (r"a*b*", "x"), (r"a", r"\\"), (r"\sa", "x"), (r"[^b]a", "x")),
        *((r"\da", "x"), (r"^", "x"), (r"a*", "x"), (r"(a+)", r"\1"), (r"(a)", r"\2")),
        *((r"a", "x\ny"), (r"a", r"\n"), (r"a??", "x"), (r"(?i)a", "x"), (r"(a", "x")),
        *((r"(a)+", "x"), (r"a{2}", "x"), (r"a\.*b*", "x"), (r"\wa", "x"), (r"=\t", "x")),
    ],
)
def test_replacement_that_may_mean_something_else_is_refused(pattern: str, new: str):
    with pytest.raises(Unclear):
        read_replacement(pattern, new)

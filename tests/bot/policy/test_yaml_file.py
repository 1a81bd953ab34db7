"""YAML files of the policy: both parsers agree, and errors are those of the pure one."""

import random
import re
import subprocess
import warnings
from pathlib import Path

import pytest
from ruamel.yaml.error import ReusedAnchorWarning

from bot.policy import yaml_file
from bot.policy.problem import NoPolicyError
from bot.policy.yaml_file import YamlFile

ROOT = Path(__file__).parents[3]
# Words that YAML 1.1 and 1.2 read differently, and what parsers are known to disagree about.
DOCUMENTS = (
    "a: on\nb: yes\nc: no\nd: off\ne: y\nf: Y\ng: True\nh: TRUE\ni: ~\nj: Null\nk: nULL\nl:",
    "a: 010\nb: 0o10\nc: 0x1f\nd: 0b11\ne: 1_000\nf: +1\ng: 08\nh: 0o8\ni: 1_\nj: _1\nk: 0x",
    "a: 22:30\nb: 1:2:3.5\nc: 190:20:30\nd: 1e3\ne: 1.5e+3\nf: .5\ng: .inf\nh: -.inf\ni: 1.\nj: .",
    "a: 2020-01-01\nb: 2020-01-01 10:00:00\nc: 2020-01-01T10:00:00Z\nd: 2001-1-1",
    "a: 2001-13-41", "a: 1\na: 2", "1: a\n0x1: b", "1: a\n1.0: b", "true: 1\n~: 2\n=: 3\n3: 4",
    "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", "a: *y", "a: &x [*x]", "&x a: &x b\nc: *x", "<<: 1",
    "a: !!str 1\nb: !!int '3'", "a: !foo x", "a: !", "a: !!set {x, y}", "a: !!binary aGVsbG8=",
    "a: !!python/object:os.system x", "a: [!!str 1]", "a: {b: !c d}", "a: wow!\nb: x !y",
    "a:\t1", "a: 1\t", "a: 1\t# x", "a:\n\tb: 1", "a: [1,\n\t2]", 'a: "x\n\ty"', "a: x\n\ty",
    "\ufeffa: 1", "a: \ufeffb", "a: 1\n\ufeff", "a: b\x85c: d", "a: b\u2028c: d", "a: \u2029",
    "a: \x07", "a: \x00", "a: \x7f", "a: \x9f", "a: \ud800", "a: \ufffe", "a: \U0001f600\nü: \xa0",
    "%YAML 1.1\n---\na: on\nb: 010", "%YAML 1.3\n---\na: on", "%YAML 2.0\n---\na: 1",
    "%FOO\n---\na: 1", "%TAG ! tag:x,500:\n---\na: !b c", "%YAML 1.1 # c\n---\na: yes",
    "---\na: 1\n---\nb: 2", "a: 1\n...\nb: 2", "a: 1\n...\n...", "---\n", "", "null", "- 1", "x",
    "a: |\n  x\n", "a: >\n  x\n  y\n\n  z", "a: |+\n  x\n\n", "a: |2\n   x", "a: |# c\n  b",
    "a: |\n\tx", "a: |0\n b", "a: x | y\nb: x > y\nc: x->y", "a: |", 'a: "\\x41\\u0041\\n\\/"',
    'a: "\\q"', "a: 'it''s'\nb: \"x\n  y\"\nc: x\n  y", "a: 'x", 'a: "x', "a: 'x'y",
    "a: b\r\nc: d\r\n", "a: b\rc: d", "a: 'b\r\nc'", " a: 1\nb: 2", "a: 1\n b: 2", "a: b: c",
    "a:\n- 1\n- 2", "a:\n - 1\n- 2", "a: {b:c}", "{a:1}", "[a:1]", "{a: http://x}", "a: {b: }",
    "{'a':1}", "a: {b}", "a: [a?b]", "a: [?x]", "a: [1,,2]", "a: {,}", "a: [a: b, c: d]", "a: [",
    "a: {", "]", "a: x]\nb: x, y", "a: @x", "a: `x", "a: %x", "a: x%", "a: &", "a: -x\nb: ?x",
    "? a\n: b", "? [a, b]\n: c", "? {a: 1}\n: c", "k" * 1025 + ": 1", "? " + "k" * 1025 + "\n: 1",
    "a: " + "[" * 500, "a: " + "{b: " * 500, "- " * 500, "? " * 500, "-\n" * 20,
)  # fmt: skip
FRAGMENTS = (
    "a", "b: ", "- ", "? ", ": ", ":", "\n", "\n  ", "\n ", "\n    ", " ", "[", "]", "{", "}", ",",
    "'", '"', "#", " #", "|", "|\n", ">", "|-", "|2", "&x ", "*x", "!t ", "!", "\t", "yes", "010",
    "1.5", "~", "null", "<<: ", "---\n", "...\n", "\r\n", "é", "\u2028", "\\", "-", "1:30", "=",
    "%", "@", "'b'", "a: 1\n", "b: {c: 1}\n", "a: &x {b: 1}\n", "\n- ", "\n: ", "[a, b]", '"\\\n"',
)  # fmt: skip


def read(text: str) -> str:
    try:
        # repr() tells 1 from True and 1.0, and shows the order of keys.
        return repr(YamlFile("people.yaml", text).parse_data())
    except NoPolicyError as error:
        return str(error)


def check_parsers_agree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings(), monkeypatch.context() as patch:
        warnings.simplefilter("ignore", ReusedAnchorWarning)
        found = read(text)
        patch.setattr(yaml_file, "NEEDS_PURE_PARSER", re.compile(""))
        assert found == read(text), f"parsers disagree on {text[:200]!r}"


def test_both_parsers_agree_on_tricky_documents(monkeypatch: pytest.MonkeyPatch):
    for text in DOCUMENTS:
        check_parsers_agree(text, monkeypatch)


def test_both_parsers_agree_on_random_documents(monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(20261129)  # noqa: S311 - test data
    for _ in range(1000):
        text = "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 12)))
        check_parsers_agree(f"k: 1\nv:\n  {text}", monkeypatch)


def test_both_parsers_agree_on_the_files_of_the_repository(monkeypatch: pytest.MonkeyPatch):
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.yaml", "*.yml"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    names = [name for name in listed.stdout.split("\0") if name]
    assert len(names) > 5
    for name in names:
        check_parsers_agree((ROOT / name).read_text(), monkeypatch)


def test_plain_files_are_read_by_the_c_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr("ruamel.yaml.parser.Parser")
    text = (ROOT / "bot/policy/starter/people.yaml").read_text()
    assert YamlFile("people.yaml", text).parse_data()["people"]
    assert YamlFile("people.yaml", "a: {b: 1}").build_problem("is odd", ["a", "b"]).line == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["hosts", "web1", "area"], 3),
        (["hosts", "web1", "missing"], 2),
        (["hosts", "web2", 1, "b"], 5),
        (["hosts", "web2", 7], 4),
        (["hosts", "web3", "tags"], 7),
        (["hosts", "web3", "area"], 6),
        ([8, "x"], 8),
        (["missing"], None),
    ],
)
@pytest.mark.parametrize("end", ["", "# read by the pure parser:\t\n"])
def test_problem_has_the_line_of_the_deepest_part_that_exists(
    path: list[str | int], line: int, end: str
):
    text = (
        "hosts:\n  web1: &web\n    area: edge\n  web2: [a,\n    {b: c}]\n"
        "  web3: {<<: *web,\n    tags: []}\n8: x\n"
    )
    problem = YamlFile("inventory.yaml", text + end).build_problem("is odd", path)
    assert problem.line == line

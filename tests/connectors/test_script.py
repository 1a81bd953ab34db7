"""Shell code in files, and the one line that is sent of it."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.script import SCRIPTS_DIRECTORY, Script, join_lines, load_code, load_script

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "connectors" / "scripts").glob("*.sh"))
# Programs that hosts have as files only: they are never joined.
PROGRAMS = {"run-signed"}
JOINED = [file for file in FILES if file.stem not in PROGRAMS]
SHELLS = (("dash",), ("bash", "--posix"), ("busybox", "sh"))


def _run_shell(*words: str, code: str) -> str:
    done = subprocess.run(words, input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def _print_parsed(code: str) -> list[str]:
    """Return the words of the code as bash prints it after parsing."""
    return _run_shell("bash", code=f"main() {{\n{code}\n}}\ndeclare -f main\n").split()


@pytest.mark.parametrize("file", JOINED, ids=lambda each: each.stem)
def test_joined_script_is_parsed_like_its_file(file: Path):
    code = load_code(file.stem)
    line = join_lines(code)
    assert "\n" not in line
    assert _print_parsed(line) == _print_parsed(code)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_scripts_are_valid_in_each_shell(shell: tuple[str, ...]):
    for file in FILES:
        _run_shell(*shell, "-n", code=load_code(file.stem))
    for file in JOINED:
        _run_shell(*shell, "-n", code=join_lines(load_code(file.stem)))


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("a\nb", "a; b"),
        ("# why\na\n\n  # and why\n  b\n", "a; b"),
        ("if a; then\n    b\nelse\n    c\nfi\nd", "if a; then b; else c; fi; d"),
        ("for x in 1 2; do\n    a\ndone", "for x in 1 2; do a; done"),
        (
            "case $1 in\na | b)\n    c\n    ;;\n*) d ;;\nesac",
            "case $1 in a | b) c ;; *) d ;; esac",
        ),
        ("a() {\n    b\n}\na", "a() { b; }; a"),
        ("a |\n    b &&\n    c ||\n    d", "a | b && c || d"),
        ("a &\nb", "a & b"),
        ("a \\\n    b", "a b"),
        ("awk '\n    { a }\n\n    { b }\n' x\nc", "awk ' { a } { b } ' x; c"),
        ("(\n    a\n)\nb", "( a; ); b"),
        ("x=$(\n    a |\n        b\n)\nc", "x=$( a | b; ); c"),
    ],
)
def test_lines_of_a_script_are_joined(code: str, line: str):
    assert join_lines(code) == line


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("a # why", "a line of its own"),
        ("awk '\n# why\n'", "cannot be within quotes"),
        ('a "b\nc"', "must end on their line"),
    ],
)
def test_script_that_would_change_when_joined_is_refused(code: str, message: str):
    with pytest.raises(ValueError, match=message):
        join_lines(code)


def test_script_includes_other_files_and_constants():
    code = load_code("probation-keep", NAME="it's", COUNT=3)
    assert code.startswith("NAME='it'\"'\"'s'\nCOUNT=3\n")
    assert ". ./probation.sh" not in code
    assert "unit=keyturn-probation-$name\n" in code


def test_installed_script_has_its_lines_and_its_digest_in_its_name():
    script = Script("try-it", "# Why.\na\nb", argument_count=2)
    assert script.file_text == '#!/bin/sh\n[ "$#" = 2 ] || exit\n# Why.\na\nb\n'
    assert script.text == '{ [ "$0 $#" = "keyturn 2" ] || exit; a; b; }'
    assert script.path.startswith(f"{SCRIPTS_DIRECTORY}/try-it-")
    assert script.path != Script("try-it", "# Why.\na\nc", argument_count=2).path
    assert load_script("probation-keep", argument_count=3).name == "probation-keep"


@pytest.mark.parametrize("name", ["Try", "try_it", "../x", ""])
def test_name_of_a_script_that_cannot_be_a_file_is_refused(name: str):
    with pytest.raises(ValueError, match="cannot be the name"):
        Script(name, "true")


_LONGEST = 99
# What only shell code has. Two of them make a text shell code.
_SHELL = re.compile(
    r"; then\b|\b(?:then|else)\n|\b(?:fi|done|esac)(?=[;\n]|$)|>&2|\|\| exit\b"
    r'|\$\(|"\$[@#1-9]"'
)


def _list_texts(file: Path) -> Iterator[str]:
    """Yield the strings of a module, also those in parts, with {} for each value."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts_of_text = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield "".join(map(str, parts_of_text))
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield str(node.value)


def _is_long_shell(text: str) -> bool:
    marks = _SHELL.findall(text)
    return len(marks) > 1 and (len(text) > _LONGEST or "\n" in text.strip())


def test_shell_code_longer_than_a_line_is_in_a_file():
    places = [
        file for top in ("connectors", "runbooks", "bot") for file in (ROOT / top).rglob("*.py")
    ]
    found = [
        (str(file.relative_to(ROOT)), text)
        for file in places
        for text in _list_texts(file)
        if _is_long_shell(text)
    ]
    assert found == []


def test_shell_code_in_a_string_is_found():
    assert _is_long_shell('for each; do\n    cat -- "$1"\ndone')
    assert _is_long_shell('if [ -e "$1" ]; then cat -- "$1"; fi; ' + "true; " * 15)
    assert not _is_long_shell('if [ -e "$1" ]; then cat -- "$1"; fi')
    assert not _is_long_shell("If this is done, do that, and then go on.\n" * 9)

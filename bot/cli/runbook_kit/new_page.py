"""The first page of a declared runbook, from the output of a command that reads."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.cli.runbook_kit.new_runbook import NewRunbookError, refuse_bad_words
from runbooks._declared_reads import refuse_change

_PAIR = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=.*")
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,60}")

_HEAD = """\
# Your editor completes this with the schema that `keyturn runbook schema` prints.
words: {words}
sentence: "TODO: say in one sentence what it is for"
examples: ["TODO: a host"]
read:
  # What `{command}` printed: {output}
  found:
    run: {run}
{parser}
"""
_CHECK = """\
report:
  summary: "{host} has {shown}"
  findings:
    - when: "TODO == found"
      text: "TODO: what is wrong, then what to do"
"""
_CHANGE = """\
current_state: "it is {shown}"
steps:
  - title: "TODO: what it does, in the imperative"
    # True until the change is in effect: compare what was found with what is requested.
    when: "TODO != found"
    do: {run: [/usr/bin/TODO], root: true}
    undo: {run: [/usr/bin/TODO], root: true}
undo: "TODO: what the undo does, in a few words"
takes_down: []
"""


@dataclass(frozen=True)
class _Guess:
    """How an output is read, and what a text says of it."""

    lines: Sequence[str]
    shown: str


def make_page(words: str, command: str, output: str, *, is_change: bool) -> Mapping[Path, str]:
    """Return the page of a new runbook, by its path in the directory.

    It has TODO wherever a person has to decide something, which the lint refuses. Raises
    NewRunbookError.
    """
    refuse_bad_words(words)
    guess = _guess_parser(output)
    run = split_command(command)
    text = _HEAD.format(
        words=words,
        command=command,
        output=json.dumps(output[:60], ensure_ascii=False),
        run=json.dumps(run, ensure_ascii=False),
        parser="\n".join(f"    {line}" for line in guess.lines),
    )
    text += (_CHANGE if is_change else _CHECK).replace("{shown}", guess.shown)
    return {Path("runbooks", f"{words.replace(' ', '_')}.yaml"): text}


def split_command(command: str) -> list[str]:
    """Return the words of a command that only reads. Raises NewRunbookError."""
    try:
        run = shlex.split(command)
        if not run:
            raise ValueError("the command is empty")
        refuse_change(run)
    except ValueError as error:
        raise NewRunbookError(f"{command!r}: {error}") from None
    return run


def _guess_parser(output: str) -> _Guess:
    lines = [line for line in output.splitlines() if line.strip()]
    if re.fullmatch(r"-?[0-9]{1,18}\s*", output):
        return _Guess(["as: number", "least: 0"], "{found}")
    if len(lines) == 1 and _WORD.fullmatch(lines[0].strip()):
        return _Guess(["as: text", 'pattern: "[A-Za-z0-9_.:+-]{1,60}"'], "{found}")
    if _is_json(output):
        return _Guess(["as: json"], "{found.TODO}")
    if lines and all(map(_PAIR.fullmatch, lines)):
        key = lines[0].partition("=")[0]
        return _Guess(["as: pairs"], f"{{found[{json.dumps(key)}]}}".replace('"', "'"))
    return _guess_table(lines)


def _is_json(output: str) -> bool:
    try:
        return isinstance(json.loads(output), (dict, list))
    except ValueError:
        return False


def _guess_table(lines: Sequence[str]) -> _Guess:
    widths = {len(line.split()) for line in lines[1:]} or {1}
    names = [f"column{number}" for number in range(1, min(widths) + 1)]
    guess = ["as: table", f"columns: [{', '.join(names)}]", "# The first line may be a heading."]
    return _Guess([*guess, "skip: 1"], "{count(found.size(), 'row')}")

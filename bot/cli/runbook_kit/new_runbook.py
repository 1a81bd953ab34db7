"""The files of a new runbook. Each fails a test or the lint until it is written."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

import connectors
import runbooks
from bot.model.errors import InvalidRequestError

_WORDS = re.compile(r"[a-z][a-z0-9]*( [a-z][a-z0-9]*)*", re.ASCII)

_CONNECTOR = '''\
"""TODO: name the program, and link the source of its output's format. No I/O."""

from connectors.command import Query$shell
from connectors.sudo import SudoRule


def query_state() -> Query[str]:
    # A command that only reads, as a list of words: Query(Shell(("cat", "/proc/…")), parse_state).
    raise NotImplementedError("write the query")


${set_state}\
def parse_state(output: str) -> str:
    # Return a frozen dataclass if there is more than one value. Raise ParseError for any output
    # that you do not know: an error must never look like an empty state.
    raise NotImplementedError("write the parser")


# One rule for each command with root=True, such as SudoRule("/usr/bin/tee", "--", "/proc/…").
SUDO: tuple[SudoRule, ...] = ()
'''
_SET_STATE = """\
def set_state(value: str) -> Shell:
    # A command that changes: Shell(("tee", "--", "/proc/…"), stdin=f"{value}\\n", root=True).
    raise NotImplementedError("write the command")


"""
_CONNECTOR_TEST = """\
import pytest

from connectors import $connector
from connectors.errors import ParseError


def test_recorded_output_is_parsed():
    # Record it: keyturn runbook try $words HOST --record before
    assert $connector.parse_state("TODO: the output of the real program") == "what it means"


def test_other_output_is_refused():
    with pytest.raises(ParseError):
        $connector.parse_state("bash: command not found")
"""
_CHECK = '''\
from connectors import $connector
from connectors.command import QueryRunner
from runbooks import Check, Host, Report


class $name(Check[str], words="$words", example="TODO"):
    """TODO: say in one sentence what it shows."""

    host: Host

    def read(self, run_query: QueryRunner) -> str:
        return run_query(self.host, $connector.query_state())

    def report(self, state: str) -> Report:
        raise NotImplementedError("write the report")
'''
_CHANGE = '''\
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from connectors import $connector
from connectors.command import QueryRunner
from runbooks import Change, Host, Leg, Plan, Step


class $name(
    Change[str],
    words="$words",
    example="TODO",
    # Without an undo, give each step NoUndo("reason") and leave this out.
    undo="sets what was set before",
    # What it gives a lasting value; leave it out for an act, such as a restart.
    sets="$words",
):
    """TODO: say in one sentence what it changes, and until when."""

    host: Host
    # No free text: a Literal, a pattern, or a type of `runbooks`, such as Address.
    value: Literal["TODO"] = Field(description="TODO: what the value means")

    def read(self, run_query: QueryRunner) -> str:
        return run_query(self.host, $connector.query_state())

    def plan(self, state: str) -> Plan:
        if state == self.value:
            return Plan(f"it is {state}")
        step = Step(
            f"Set it to {self.value}",
            self.host,
            do=$connector.set_state(self.value),
            undo=$connector.set_state(state),
            before=state,
            after=self.value,
        )
        return Plan(f"it is {state}", [step])

    def takes_down(self) -> Sequence[Leg]:
        # What may be down while it runs: [Leg(self.host, "nginx")]; () if nothing is.
        raise NotImplementedError("say what it takes down")
'''
_CHECK_TEST = """\
from runbooks.$module import $name

CHECK = $name.model_validate({"host": "web1"})


def test_a_healthy_host_is_reported_as_healthy():
    assert CHECK.report("TODO: a state").healthy
"""
_CHANGE_TEST = """\
from connectors import $connector
from runbooks.$module import $name

SET = $name.model_validate({"host": "web1", "value": "TODO"})


def test_another_state_is_changed_and_can_be_changed_back():
    (step,) = SET.plan("another state").steps
    assert step.do == $connector.set_state("TODO")
    assert step.undo == $connector.set_state("another state")


def test_the_same_state_needs_nothing():
    assert SET.plan("TODO").steps == ()


def test_what_it_takes_down_is_named():
    assert SET.takes_down() == ()
"""
_CONFTEST = '''\
"""Executes the runbooks of KEYTURN_RUNBOOKS: run `pytest` in this directory, as their author."""

from runbooks import enable_all, load_catalogue, set_enabled_source

set_enabled_source(enable_all)
load_catalogue()
'''


class NewRunbookError(InvalidRequestError):
    """The files cannot be written. The message says why and what to do."""


def make_files(words: str, *, is_change: bool) -> Mapping[Path, str]:
    """Return the text of each file of a new runbook, by its path in the directory.

    Raises NewRunbookError if the words cannot be those of a runbook.
    """
    refuse_bad_words(words)
    names = words.split()
    module, connector = "_".join(names), "_".join(names[:-1] or names)
    fields = {
        "words": words,
        "module": module,
        "connector": connector,
        "name": "".join(word.capitalize() for word in [names[-1], *names[:-1]]),
        "shell": ", Shell" if is_change else "",
        "set_state": _SET_STATE if is_change else "",
    }
    texts = {
        f"connectors/{connector}.py": _CONNECTOR,
        f"tests/connectors/test_{connector}.py": _CONNECTOR_TEST,
        f"runbooks/{module}.py": _CHANGE if is_change else _CHECK,
        f"tests/runbooks/test_{module}.py": _CHANGE_TEST if is_change else _CHECK_TEST,
        "tests/conftest.py": _CONFTEST,
    }
    return {Path(path): Template(text).substitute(fields) for path, text in texts.items()}


def refuse_bad_words(words: str) -> None:
    """Raise NewRunbookError if these cannot be the words of a runbook."""
    if not _WORDS.fullmatch(words) or len(words.split()) > 4:
        raise NewRunbookError(
            f"{words!r} cannot be the words of a runbook: use one to four words of lower-case "
            "letters and digits, such as 'mail queue check'"
        )


def write_files(directory: Path, files: Mapping[Path, str]) -> Iterator[Path]:
    """Write the files that do not exist yet, and yield their paths.

    A connector that exists, here or in Keyturn, is used as it is. Raises NewRunbookError if the
    runbook exists.
    """
    for path in files:
        if path.parent == Path("runbooks") and _find_existing(directory, path):
            raise NewRunbookError(f"{_find_existing(directory, path)} exists: choose other words")
    for path, text in files.items():
        if _find_existing(directory, path) is None:
            file = directory / path
            # Keyturn loads no module that others could have written.
            file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)
            yield file


def _find_existing(directory: Path, path: Path) -> Path | None:
    """Return the file if it exists in the directory, or among Keyturn's own modules."""
    own = {"connectors": connectors.__path__, "runbooks": runbooks.__path__}
    files = [directory / path, *(Path(each, path.name) for each in own.get(str(path.parent), ()))]
    if path.parent == Path("tests/connectors"):
        # A connector of Keyturn has its test there.
        files.append(Path(connectors.__path__[0], path.name.removeprefix("test_")))
    return next((file for file in files if file.exists()), None)

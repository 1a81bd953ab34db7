"""A draft of a declared runbook, and how its page is written.

A value of a request stands in texts as a mark, until it is known whether it becomes part of a word
({name}), of an expression (name) or of a text. What is left to a person is a text with the word
TODO: a page with one is never enabled.
"""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from bot.model.text import fold_to_ascii
from runbooks._declared import check_page, get_source, load_page
from runbooks._declared_yaml import PageError

MOST_STEPS = 20
_MOST_WIDE, _NOT_FOLDED = 96, 100_000
# Of the 1,000 characters of an expression.
_MOST_INLINE = 400
_MARK = re.compile("\x01([a-z][a-z0-9_]*)\x02")
# Also as `repr` shows it, in a message.
_SHOWN_MARK = re.compile(r"(?:\x01|\\x01)([a-z][a-z0-9_]*?)(?:\x02|\\x02)")
_PLACEHOLDER = re.compile(r"\{[a-z][a-z0-9_]*\}")
_RESERVED = frozenset({"host", "row"})
# A user or a group.
OWNER = re.compile("[a-z_][a-z0-9_-]{0,31}")


class Unclear(ValueError):
    """A step has no plain meaning. The message says why."""


class NextPage(Exception):
    """A step reads what one before it on the page changes, so it belongs on the next page."""


class Kind(StrEnum):
    """What became of a step."""

    TYPED = "carried over"
    BLIND = "blind"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Outcome:
    """What became of one step or setting of the file."""

    kind: Kind
    line: int
    what: str
    note: str = ""
    is_setting: bool = False
    """Whether it is no step, such as a schedule or a notification."""
    file: str = ""
    """The name of the file, if another one includes it."""
    place: tuple[int, ...] = ()
    """Its line, after those of the files that include it."""


@dataclass(frozen=True)
class Origin:
    """Where a step comes from."""

    file: Path
    line: int
    title: str


def mark(name: str) -> str:
    """Return what stands in a text for a value of the request."""
    return f"\x01{name}\x02"


def has_mark(text: str) -> bool:
    return _MARK.search(text) is not None


def is_value(text: str) -> bool:
    """Return whether a text is a value of the request, and nothing more."""
    return _MARK.fullmatch(text) is not None


def fill_marks(text: str) -> str:
    """Return a text with a letter for each value of the request, which any pattern allows."""
    return _MARK.sub("x", text)


def show_marks(text: str) -> str:
    """Return a text for people: values of the request as words in capital letters."""
    return _SHOWN_MARK.sub(lambda found: found[1].upper(), text)


def make_name(text: str) -> str:
    """Return a text as a name of the format."""
    plain = _MARK.sub(r"\1", fold_to_ascii(text))
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:32].strip("_")
    name = name if name[:1].isalpha() else f"x_{name}".rstrip("_")
    return f"{name}_value" if name in _RESERVED else name


def run_as_root(*words: str) -> dict[str, Any]:
    return {"run": [*words], "root": True}


def make_words(text: str) -> list[str]:
    """Return up to four words of a command."""
    words = re.findall(r"[a-z0-9]+", fold_to_ascii(text))
    return [word for word in words if word[0].isalpha()][:4] or ["x"]


@dataclass
class Draft:
    """The parts of one page."""

    words: str
    sentence: str
    source: Path
    fields: Mapping[str, dict[str, Any]]
    """The values that the job takes; those that a step uses are written."""
    used: set[str] = field(default_factory=set[str])
    read: dict[str, Any] = field(default_factory=dict[str, Any])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    current: list[str] = field(default_factory=list[str])
    """Parts of the sentence with the current state."""
    steps: list[tuple[Origin, str, dict[str, Any]]] = field(
        default_factory=list[tuple[Origin, str, dict[str, Any]]]
    )
    """Where each comes from, a comment, and the step."""
    refuse: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    down: list[str] = field(default_factory=list[str])
    claims: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """What steps set, such as whether a service runs, to what, and their number from 0."""
    protected: list[str] = field(default_factory=list[str])
    """Files on which logins depend, which the host saves before the change."""
    probation: dict[str, Any] = field(default_factory=dict[str, Any])
    checks: list[str] = field(default_factory=list[str])
    """Of a check: the readings whose lines it shows."""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def word(self, text: str) -> str:
        """Return a text as a word of a command. Raises Unclear."""
        if _PLACEHOLDER.search(text):
            raise Unclear(f"{text[:80]!r} has a word in braces")
        return self._use(text, "{%s}")

    def input(self, text: str) -> str:
        """Return a text as what a program reads. Raises Unclear."""
        if _PLACEHOLDER.search(text):
            # The format has no other sign for a brace before a name.
            brace = self.add_state("brace", {"value": '"{"', "pattern": r"\{"})
            text = _PLACEHOLDER.sub(lambda found: f"{{{brace}}}{found[0][1:]}", text)
        return self._use(text, "{%s}")

    def text(self, text: str) -> str:
        """Return a text as one of the page, without what people cannot see."""
        plain = " ".join(text.replace("{", "{{").replace("}", "}}").split())
        return self._use(plain, "{%s}")

    def expression(self, text: str) -> str:
        """Return a text as an expression in CEL."""
        parts = _MARK.split(text)
        shown = [
            part if at % 2 else json.dumps(part, ensure_ascii=False)
            for at, part in enumerate(parts)
            if part
        ]
        self._use(text, "%s")
        return " + ".join(shown) or '""'

    def set_pattern(self, value: str, pattern: str) -> None:
        """Give a value of the request the pattern of what it is used for, if it has none yet."""
        given = self.fields.get(value.strip("\x01\x02"), {}) if is_value(value) else {}
        if given.get("pattern") == "TODO":
            given["pattern"] = pattern

    def check_value(self, value: str, pattern: str, what: str) -> None:
        """Refuse what is not of a pattern, which a value of the request gets. Raises Unclear."""
        if not is_value(value) and not re.fullmatch(pattern, fill_marks(value)):
            raise Unclear(f"{show_marks(value)[:80]!r} is not {what}")
        self.set_pattern(value, pattern)

    def _use(self, text: str, shown: str) -> str:
        self.used.update(_MARK.findall(text))
        return _MARK.sub(lambda found: shown % found[1], text)

    def add_reading(self, name: str, reading: dict[str, Any]) -> str:
        """Add a reading, unless it is there already, and return its name."""
        return self._add(self.read, name, reading)

    def add_state(self, name: str, state: Any) -> str:
        return self._add(self.state, name, state)

    def _add(self, section: dict[str, Any], name: str, value: Any) -> str:
        base, number = make_name(name), 1
        name = base
        while name in {*self.read, *self.state, *self.fields}:
            if section.get(name) == value:
                return name
            number += 1
            name = f"{base}{number}"
        section[name] = value
        return name

    def add_step(self, origin: Origin, step: dict[str, Any], comment: str = "") -> None:
        self.steps.append((origin, comment, step))

    def ask_condition(
        self,
        condition: str,
        add: Callable[[], object],
        changed: Sequence[str] = (),
        shown: Sequence[str] = (),
    ) -> list[str]:
        """Add steps, and ask in each for a condition, if there is one.

        changed: the steps are only for when one of these holds. shown: and when all of these do.
        Returns when each step is needed, "" for one that asks.
        """
        before = len(self.steps)
        add()
        found: list[str] = []
        for _, _, step in self.steps[before:]:
            if changed and step["when"] != self.join_any(changed):
                step["when"] = f"({self.join_any(changed)}) && ({step['when']})"
            for one in shown if step["when"] != " && ".join(shown) else ():
                is_open = step["when"].startswith("TODO: ")
                step["when"] = (
                    f"{step['when']} && {one}" if is_open else f"{one} && ({step['when']})"
                )
            found.append("" if condition else step["when"])
            if condition:
                asked, rest = f"TODO: Ansible asked {condition}. ", step["when"]
                is_open = rest.startswith("TODO: ")
                rest = rest[6:7].upper() + rest[7:] if is_open else f"Add it to: {rest}"
                step["when"] = asked + rest
                step["when"] = step["when"][:1000]
        return found

    def join_any(self, conditions: Sequence[str]) -> str:
        """Return the condition that one of several holds; its parts are states if it is long."""
        parts = [f"({one})" for one in dict.fromkeys(conditions)]
        joined = ""
        for part in parts:
            if joined and len(joined) + len(part) > _MOST_INLINE:
                joined = self.add_state("is_changed", joined)
            joined = f"{joined} || {part}" if joined else part
        return joined

    def claim(self, thing: str, wanted: str) -> None:
        """Say to what the next step sets a thing."""
        self.claims.append((thing, wanted, len(self.steps)))

    def claim_once(self, thing: str, wanted: str) -> None:
        """As `claim`, of what would be done again by a second step, as both read the same.

        Raises Unclear if a step so far does it.
        """
        if any((one, other) == (thing, wanted) for one, other, _ in self.claims):
            raise Unclear(f"a step before it does the same: {show_marks(thing)[:120]}")
        self.claim(thing, wanted)

    def list_conditions(self, steps: Sequence[int] | None = None) -> list[str]:
        """Return when the steps so far, or those of these numbers, are needed, if it is known."""
        at = range(len(self.steps)) if steps is None else sorted({*steps})
        found = [self.steps[one][2]["when"] for one in at if one < len(self.steps)]
        return [one for one in dict.fromkeys(found) if "TODO" not in one]

    def list_writes(self, *paths: str) -> list[int]:
        """Return the numbers of the steps so far that change files below these paths, or name one.

        paths: the beginnings of paths.
        """
        return [at for at, (_, _, step) in enumerate(self.steps) if _names(step["do"], paths)]

    def join_steps(self, steps: Sequence[int]) -> str:
        """Return the condition that one of these steps is needed, or what asks for it."""
        if self.asks_when(steps):
            return "TODO: what that was read shows that one of the steps before it is needed?"
        return self.join_any([self.steps[at][2]["when"] for at in sorted({*steps})])

    def asks_when(self, steps: Sequence[int]) -> bool:
        """Return whether the draft asks when one of these steps is needed."""
        return any("TODO" in self.steps[at][2]["when"] for at in steps)

    def list_claims(self, *parts: str) -> list[int]:
        """Return the numbers of the steps that set a thing whose words begin with one of these."""
        return [
            at for thing, _, at in self.claims if any(f" {one}" in f" {thing}" for one in parts)
        ]

    def makes_account(self, user: str) -> bool:
        """Return whether a step so far adds a user if there is none."""
        return any(
            (one, wanted) == (f"the user {user}", "there") for one, wanted, _ in self.claims
        )

    def makes_file(self, path: str) -> bool:
        """Return whether a step so far makes a file if there is none."""
        return any((thing, wanted) == (path, "a file") for thing, wanted, _ in self.claims)

    def question_conflicts(self) -> None:
        """Ask when each step is needed where several set one thing to different values.

        All of a page is read before its first step, so such steps would not follow each other.
        """
        for thing in dict.fromkeys(thing for thing, _, _ in self.claims):
            claims = [(wanted, at) for one, wanted, at in self.claims if one == thing]
            if len({wanted for wanted, _ in claims}) < 2:
                continue
            shown = " and ".join(dict.fromkeys(wanted for wanted, _ in claims))
            for _, at in claims:
                step = self.steps[at][2]
                question = f"TODO: steps here set {show_marks(thing)} to {shown}. When is this one"
                step["when"] = f"{question} needed? {step['when']}"[:1000]

    @property
    def path(self) -> Path:
        return Path("runbooks", f"{self.words.replace(' ', '_')}.yaml")

    def render(self) -> str:
        """Return the page, with a comment where each step comes from."""
        return "".join(_iterate_lines(self))

    def list_questions(self) -> list[str]:
        """Return what the page still asks, and what else keeps it from being enabled."""
        try:
            runbook = load_page(self.path, self.render().encode())
            questions = get_source(runbook).page.list_questions()
            if not questions:
                check_page(runbook)
        except PageError as error:
            return [str(error)]
        return [str(one) for one in questions]


def _names(command: Mapping[str, Any], paths: tuple[str, ...]) -> bool:
    words = [*command.get("run", ())[1:], *command.get("arguments", ())]
    script = str(command.get("script", ""))
    return any(str(word).startswith(paths) for word in words) or any(
        path in script for path in paths
    )


def _iterate_lines(draft: Draft) -> Iterator[str]:
    yield f"# A draft from {draft.source.name}. `keyturn runbook lint` says what is open.\n"
    yield _dump({"words": draft.words, "sentence": draft.sentence})
    fields = {name: draft.fields[name] for name in draft.fields if name in draft.used}
    yield _dump({"examples": [" ".join(["web1", *map(_make_example, fields.values())])]})
    if fields:
        yield "# The pattern of a text decides what a request may hold. Such as [a-z0-9-]{1,40}\n"
        yield _dump({"fields": fields})
    question = "TODO: a command that only reads, and shows whether it is done"
    yield _dump({"read": draft.read or {"found": {"run": [question]}}})
    if draft.state:
        yield _dump({"state": draft.state})
    yield from _iterate_steps(draft) if draft.steps else _iterate_report(draft)


def _iterate_steps(draft: Draft) -> Iterator[str]:
    current = "; ".join(dict.fromkeys(draft.current)) or "TODO: what was read, as one sentence"
    yield _dump({"current_state": current})
    if draft.refuse:
        yield _dump({"refuse": draft.refuse})
    yield "steps:\n"
    for origin, comment, step in draft.steps:
        yield f"  # {origin.file.name}, line {origin.line}\n"
        yield from (f"  # {line}\n" for line in comment.splitlines())
        yield _dump([step])
    if any("undo" in step for _, _, step in draft.steps):
        yield _dump({"undo": "restores what was before, where a step says how"})
    yield _dump({"takes_down": list(dict.fromkeys(draft.down))})
    if draft.probation:
        yield _dump({"probation": draft.probation})
    if draft.notes:
        yield _dump({"notes": draft.notes})


def _iterate_report(draft: Draft) -> Iterator[str]:
    rows = [
        {"each": name, "cells": [_describe_run(draft.read[name]), "{row.line}"]}
        for name in draft.checks
    ]
    lines = " + ".join(f"{name}.size()" for name in draft.checks)
    yield _dump(
        {
            "report": {
                "summary": "{host} printed {count(" + lines + ', "line")}',
                "findings": [
                    {
                        "when": "TODO: which of these lines does a person have to act on?",
                        "text": "TODO: what is wrong then, and what to do",
                    }
                ],
                "table": {"columns": ["Command", "Line"], "rows": rows},
            }
        }
    )


def _describe_run(reading: Mapping[str, Any]) -> str:
    return " ".join(map(str, reading["run"]))


def _make_example(given: Mapping[str, Any]) -> str:
    """Return a value of a field, as it is typed."""
    if given.get("type") == "choice":
        return str(given["values"][0])
    return "nginx" if given.get("type") == "service" else "TODO"


def _dump(value: Any) -> str:
    folded = _write_yaml(value, _MOST_WIDE)
    # Folding may part a backslash from its letter.
    return _write_yaml(value, _NOT_FOLDED) if "\\" in folded else folded


def _write_yaml(value: Any, width: int) -> str:
    yaml = YAML()
    yaml.width = width
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_prepare(value), stream)
    return stream.getvalue()


def _prepare(value: Any) -> Any:
    if isinstance(value, str) and "\n" in value and all(map(_is_block_line, value.split("\n"))):
        return LiteralScalarString(value)
    if isinstance(value, Mapping):
        return {key: _prepare(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_prepare(each) for each in cast("Sequence[Any]", value)]
    return value


def _is_block_line(line: str) -> bool:
    return not line or (line.isprintable() and not line.endswith(" "))

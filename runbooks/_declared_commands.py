"""Commands of declared runbooks: words with values in them, and their sudo rules. No I/O.

A value fills one word or a part of one. It always has a pattern: that of its field's type, or the
one that a reading or a state is checked with, and the sudo rule of a command of root has the same.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, cast, get_origin, get_type_hints

from connectors.command import Query, Shell, Word
from connectors.errors import ParseError
from connectors.script import Script
from connectors.sudo import ADDRESS, RuleWord, SudoRule, WordPattern, make_range_pattern
from connectors.visible_text import refuse_invisible
from runbooks._declared_format import CommandPart
from runbooks._declared_parsers import compile_pattern

# Programs that run what their arguments say: with one, a word would be a program again.
_RUNNERS = re.compile(
    r"(ba|da|z|k|c|tc|a|fi)?sh|busybox|env|xargs|sudo|doas|su|runuser|chroot|nsenter|unshare|setsid|"
    r"nohup|timeout|nice|ionice|stdbuf|script|watch|parallel|flock|ssh|scp|sftp|g?awk|mawk|"
    r"python[0-9.]*|perl|ruby|node|lua|php[0-9.]*|tclsh|expect|find|eval|exec|systemd-run|at|batch"
)
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*[\\'\"A-Za-z_]")
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_PROGRAM = re.compile(r"(/[A-Za-z0-9_.-]+)*/?[A-Za-z0-9_.-]+")
_ROOT_PROGRAM = re.compile(r"(/[A-Za-z0-9_.-]+)+")
# Connectors that reach hosts by themselves.
_NO_QUERIES = frozenset(
    """
    api_client device fleet https key_file password permissions ssh ssh_pool ssh_stream
    ssh_transport
    """.split()  # noqa: SIM905
)

# Readings of several queries, in `runbooks/_NAME.py`.
_SHARED = frozenset({"bmc"})


@dataclass(frozen=True)
class Value:
    """What a word may hold in place of a name."""

    pattern: str = ""
    """A regular expression that sudo understands too; "" for a value that no word may hold."""
    problem: str = "give it some under `read` or `state`"
    """Why no word may hold it, or what to do."""

    def format(self, name: str, value: object) -> str:
        """Return the value as a part of a word. Raises ParseError."""
        text = str(value)
        if not self.pattern or not compile_pattern(self.pattern).fullmatch(text):
            raise ParseError(f"{name} is {text[:80]!r}, which no command may hold")
        return text


def make_number_value(least: int | None, most: int | None) -> Value:
    if least is not None and most is not None and 0 <= least <= most:
        return Value(make_range_pattern(least, most))
    return Value("-?[0-9]{1,19}")


def make_choice_value(values: Sequence[str]) -> Value:
    return Value("|".join(re.sub(r"[][\\.^$*+?{}()|#]", r"\\\g<0>", each) for each in values))


def make_pattern_value(pattern: str) -> Value:
    """Return a value with a pattern. Raises ValueError if sudo would understand it otherwise."""
    bare = pattern.removeprefix("^").removesuffix("$")
    if re.search(r"\)[*+{]", bare):
        raise ValueError(f"{pattern!r} repeats a group: repeat sets such as [a-z]+ only")
    WordPattern(bare)
    return Value(bare)


def make_text_value(pattern: str) -> Value:
    """Return the value of a field; no word may hold one with blanks, ends or repeated groups.

    Raises ValueError for a pattern that could match anything else that sudo would misread.
    """
    compile_pattern(pattern)
    try:
        return make_pattern_value(pattern)
    except ValueError as error:
        WordPattern(re.sub(r"^\^|[ $]", "", pattern))
        return Value(problem=str(error))


ADDRESS_VALUE = Value(ADDRESS)


@dataclass(frozen=True)
class WordTemplate:
    """One word, with at most some values in it."""

    source: str
    values: Mapping[str, Value]

    def fill(self, given: Mapping[str, object]) -> str:
        """Return the word. Raises ParseError."""
        return refuse_invisible(
            _PLACEHOLDER.sub(lambda m: self.values[m[1]].format(m[1], given[m[1]]), self.source)
        )

    @property
    def names(self) -> list[str]:
        return _PLACEHOLDER.findall(self.source)

    def make_rule_word(self) -> RuleWord:
        """Return the word of a sudo rule. Raises ValueError."""
        if not self.names:
            return self.source
        if len(self.names) > 1:
            raise ValueError(f"{self.source!r} has two values: a word of root has one")
        before, name, after = _PLACEHOLDER.split(self.source)
        return WordPattern(self.values[name].pattern, prefix=before, suffix=after)


def make_template(word: str | int, values: Mapping[str, Value]) -> WordTemplate:
    """Return a checked word. Raises ValueError."""
    source = refuse_invisible(str(word))
    if not source:
        raise ValueError("a word must not be empty")
    for name in _PLACEHOLDER.findall(source):
        if name not in values:
            raise ValueError(f"{source!r}: nothing has the name {name}")
        if not values[name].pattern:
            raise ValueError(
                f"{source!r}: a word may hold {name} only if it has a pattern or bounds: "
                f"{values[name].problem}"
            )
    if source.startswith("{") and (found := _PLACEHOLDER.match(source)):
        pattern = values[found[1]].pattern
        options = ("-", "--", "-a", "-1", "--a")
        if any(map(compile_pattern(f"({pattern}).*").fullmatch, options)):
            raise ValueError(f"{source!r} could begin with -, which programs take as an option")
    return WordTemplate(source, values)


@dataclass(frozen=True)
class Values:
    """The values of a request, of what was read, and of `state`, by name."""

    raw: Mapping[str, Any]
    """As Python has them."""
    plain: Mapping[str, Any]
    """As expressions have them."""


@dataclass(frozen=True)
class Command:
    """A command of a page, ready to be filled with values."""

    make: "Callable[[Values], Shell]"
    """Returns the command. Raises ParseError for a value that it must not hold."""
    rule: SudoRule | None = None
    """The sudo rule of an own command of root."""
    connector: ModuleType | None = None
    """The connector that has the command, with its rules."""


def make_command(
    part: CommandPart, values: Mapping[str, Value], get_arguments: "ArgumentMaker"
) -> Command:
    """Return the command of a step. Raises ValueError."""
    if sum(map(bool, (part.run, part.command, part.script))) != 1:
        raise ValueError("write one of `run`, `command` and `script`")
    if part.command and part.stdin:
        raise ValueError("`stdin` goes with `run` or `script`: a `command` has its own")
    if part.arguments and not part.script:
        raise ValueError("`arguments` go with `script`: write them as words of `run`")
    if part.given and not part.command:
        raise ValueError("`with` goes with `command`")
    if part.command:
        function, connector = find_function(part.command, Shell)
        arguments = get_arguments(function, part.given)
        return Command(lambda given: function(**arguments(given)), connector=connector)
    if part.script:
        return _make_script(part, values)
    return _make_words(part, values)


# Returns a function that makes the keyword arguments of a connector's function.
ArgumentMaker = Callable[
    [Callable[..., Any], Mapping[str, str | int]], Callable[[Values], dict[str, Any]]
]


def _make_words(part: CommandPart, values: Mapping[str, Value]) -> Command:
    words = make_words(part.run, values, root=part.root)
    stdin = _make_stdin(part, values)
    return Command(
        lambda given: Shell(
            tuple(word.fill(given.raw) for word in words),
            stdin=_fill_stdin(stdin, given.raw),
            root=part.root,
            deadline=part.seconds,
        ),
        make_rule(words) if part.root else None,
    )


def make_words(
    run: Sequence[str | int], values: Mapping[str, Value], *, root: bool, reads: bool = False
) -> tuple[WordTemplate, ...]:
    """Return the checked words of a command. Raises ValueError.

    reads: whether it is one of a reading, whose arguments `refuse_change` looks at.
    """
    program = str(run[0])
    if not _PROGRAM.fullmatch(program):
        raise ValueError(f"{program!r} is not a program: name it, or give its path")
    name = program.rpartition("/")[2]
    if _RUNNERS.fullmatch(name) and not (reads and name == "find"):
        raise ValueError(
            f"{program} runs other programs: name the program itself, or write a `script`"
        )
    if root and not _ROOT_PROGRAM.fullmatch(program):
        raise ValueError(f"name {program} by its path, such as /usr/bin/{program}, for root")
    return tuple(make_template(word, values) for word in run)


def make_rule(words: Sequence[WordTemplate], *, read_only: bool = False) -> SudoRule:
    """Return the sudo rule of a command. Raises ValueError."""
    program, *rest = words
    return SudoRule(program.source, *(word.make_rule_word() for word in rest), read_only=read_only)


def _make_stdin(part: CommandPart, values: Mapping[str, Value]) -> WordTemplate:
    stdin = WordTemplate(part.stdin, values)
    for name in stdin.names:
        make_template(f"x{{{name}}}", values)
    return stdin


def _fill_stdin(stdin: WordTemplate, given: Mapping[str, object]) -> str:
    lines = stdin.source.split("\n")
    return "\n".join(WordTemplate(line, stdin.values).fill(given) for line in lines)


def make_script(name: str, lines: str, argument_count: int) -> Script:
    """Return a script of a page. Raises ValueError."""
    if _HERE_DOCUMENT.search(lines):
        raise ValueError("a here-document (<<) cannot be sent as one line: use printf")
    script = Script(name, lines.rstrip("\n"), argument_count)
    if not script.line:
        raise ValueError("the script is empty")
    return script


def _make_script(part: CommandPart, values: Mapping[str, Value]) -> Command:
    words = tuple(make_template(word, values) for word in part.arguments)
    stdin = _make_stdin(part, values)
    script = make_script("declared-step", part.script, len(words))
    rule = SudoRule(script, *(word.make_rule_word() for word in words))

    def make(given: Values) -> Shell:
        filled: tuple[Word | Script, ...] = tuple(word.fill(given.raw) for word in words)
        return Shell(
            (script, *filled),
            stdin=_fill_stdin(stdin, given.raw),
            root=part.root,
            deadline=part.seconds,
        )

    return Command(make, rule if part.root else None)


@lru_cache(maxsize=500)
def find_function(name: str, returns: type) -> tuple[Callable[..., Any], ModuleType]:
    """Return a function of a connector that makes a command or a query. Raises ValueError."""
    module_name, _, function_name = name.partition(".")
    kind = "query" if returns is Query else "command"
    unknown = ValueError(f"Keyturn has no {kind} {name}: name it as connector.function")
    try:
        module = find_connector(module_name)
    except ValueError:
        raise unknown from None
    function = vars(module).get(function_name)
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        raise unknown
    if not _has_result(function, returns):
        raise unknown
    return cast("Callable[..., Any]", function), module


def find_connector(name: str) -> ModuleType:
    """Return a connector that does no I/O, or what runbooks share. Raises ValueError."""
    if name in _SHARED:
        return importlib.import_module(f"runbooks._{name}")
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in _NO_QUERIES:
        with suppress(ImportError):
            return importlib.import_module(f"connectors.{name}")
    raise ValueError(f"Keyturn has no connector {name}")


def list_connectors(module: ModuleType) -> dict[str, ModuleType]:
    """Return a connector, or those that a module of runbooks uses, by its name there."""
    name = module.__name__.rpartition(".")[2]
    if name.removeprefix("_") not in _SHARED:
        return {name: module}
    used = [one for one in vars(module).values() if isinstance(one, ModuleType)]
    return {one.__name__.rpartition(".")[2]: one for one in used}


def _has_result(function: Callable[..., Any], returns: type) -> bool:
    result: object = get_type_hints(function).get("return")
    if returns is Query:
        return (get_origin(result) or result) is Query or is_reader(function)
    return result is returns


@lru_cache(maxsize=500)
def list_parameters(function: Callable[..., Any]) -> Mapping[str, bool]:
    """Return the parameters that a page gives a function, and whether each is required."""
    parameters = inspect.signature(function).parameters
    names = [*parameters][2:] if is_reader(function) else [*parameters]
    return {name: parameters[name].default is inspect.Parameter.empty for name in names}


def is_reader(function: Callable[..., Any]) -> bool:
    """Return whether a function runs the queries of one host itself, and returns the result."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return names[:2] == ("run_query", "host")

"""YAML files of the policy, with the line of each value. Pure."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from bot.policy.problem import NoPolicyError, PolicyProblem

KeyPath = Sequence[str | int]


# Messages of the YAML parser, and plain ones with a fix.
_MESSAGES = (
    (re.compile(r"found character '\\t' .*"), "contains a tab: indent with spaces"),
    (
        re.compile(r'found duplicate key "(.*?)".*', re.DOTALL),
        r'duplicate key "\1": remove one of the two',
    ),
    (
        re.compile(r"expected (the node content|',' or '[]}]'), but .*"),
        "a bracket is not closed, or a comma or a value is missing",
    ),
    (re.compile(r"found unexpected end of stream"), "a quotation mark is not closed"),
    (
        re.compile(r"expected <block end>, but found .*"),
        "is indented differently from the lines that it belongs to",
    ),
    (
        re.compile(r"mapping values are not allowed here"),
        "has a colon too many, or the line above lacks one: put text with a colon and a space "
        "into quotation marks",
    ),
    (
        re.compile(r"found character '(.)' that cannot start any token"),
        r"a value cannot begin with \1: put it into quotation marks",
    ),
    (
        re.compile(r"found undefined alias .*"),
        "a value cannot begin with *: put it into quotation marks",
    ),
)

# What the C library reads otherwise than YAML 1.2 says, or nests so deeply that it crashes: tabs
# and rare line breaks, tags, block scalars, directives, ends of documents, rows of dashes.
NEEDS_PURE_PARSER = re.compile(
    r"""
    [^\n\r\ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]
    | (?<![^\s\[{,:]) !
    | (?<!\S) [|>] [-+\d]* (?: \s | \# | \Z)
    | ^%
    | ^\.\.\.
    | (?: [-?] \s+ ){9}
    """,
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True)
class YamlFile:
    """A YAML file: its name and its text."""

    name: str
    text: str

    def parse_data(self) -> dict[str, Any]:
        """Return the parsed content. Raises NoPolicyError if it is not a valid mapping."""
        try:
            data = _parse(self.text, lambda parser: parser.load(self.text))
        except RecursionError:
            raise NoPolicyError(PolicyProblem("is nested too deeply", self.name)) from None
        except TypeError:
            message = "a key is a list or a mapping: it must be a word"
            raise NoPolicyError(PolicyProblem(message, self.name)) from None
        # An assertion refuses a version of YAML that does not exist.
        except (ValueError, AssertionError) as error:
            raise NoPolicyError(PolicyProblem(str(error), self.name)) from None
        except YAMLError as error:
            mark: Any = getattr(error, "problem_mark", None)
            message = _describe_yaml_error(str(getattr(error, "problem", None) or error))
            raise NoPolicyError(
                PolicyProblem(message, self.name, mark.line + 1 if mark else None)
            ) from None
        if not isinstance(data, dict):
            example = f"{self.name.split('.')[0]}:"
            raise NoPolicyError(
                PolicyProblem(
                    f"must be a mapping that starts with a key such as {example}", self.name
                )
            )
        return cast("dict[str, Any]", data)

    def build_problem(self, message: str, path: KeyPath) -> PolicyProblem:
        """Return a problem with the line of the deepest part of the path that exists."""
        return PolicyProblem(message, self.name, self._find_line_and_depth(path)[0] or None)

    def has_path(self, path: KeyPath) -> bool:
        return self._find_line_and_depth(path)[1] == len(path)

    @cached_property
    def _root(self) -> Any:
        return _parse(self.text, lambda parser: parser.compose(self.text))

    def _find_line_and_depth(self, path: KeyPath) -> tuple[int, int]:
        """Return the line of the deepest part that exists (0 for none), and its depth."""
        node, line = self._root, 0
        for depth, key in enumerate(path):
            place, node = _find_member(node, key)
            if place is None:
                return line, depth
            line = int(place.start_mark.line) + 1
        return line, len(path)


class _Yaml12Resolver(VersionedResolver):
    """Reads all plain words as YAML 1.2 says, without looking up the version for each."""

    @property
    def processing_version(self) -> tuple[int, int]:
        return (1, 2)


def _parse(text: str, read: Callable[[YAML], Any]) -> Any:
    """Return what *read* does with the C parser, or where that fails or differs, the pure one.

    The messages and places of errors are those of the pure parser.
    """
    if not NEEDS_PURE_PARSER.search(text):
        parser = YAML(typ="safe")
        parser.Resolver = _Yaml12Resolver
        with suppress(YAMLError, ValueError, RecursionError):
            return read(parser)
    return read(YAML(typ="safe", pure=True))


def _find_member(node: Any, key: str | int) -> tuple[Any, Any]:
    """Return where the member of a mapping or list is, and the member; None if it has none."""
    if isinstance(node, SequenceNode) and isinstance(key, int):
        members = cast("list[Any]", node.value)
        return (members[key], members[key]) if key < len(members) else (None, None)
    if isinstance(node, MappingNode):
        for name, member in cast("list[tuple[Any, Any]]", node.value):
            if name.value == str(key):
                return name, member
    return None, None


def _describe_yaml_error(message: str) -> str:
    for pattern, replacement in _MESSAGES:
        message = pattern.sub(replacement, message)
    return message

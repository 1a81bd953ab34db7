"""YAML files of the policy, with the line of each value. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

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


@dataclass(frozen=True)
class YamlFile:
    """A YAML file: its name and its text."""

    name: str
    text: str

    def parse_data(self) -> dict[str, Any]:
        """Return the parsed content. Raises NoPolicyError if it is not a valid mapping."""
        try:
            data = YAML(typ="safe").load(self.text)
        except RecursionError:
            raise NoPolicyError(PolicyProblem("is nested too deeply", self.name)) from None
        except ValueError as error:
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

    def _find_line_and_depth(self, path: KeyPath) -> tuple[int, int]:
        """Return the line of the deepest part that exists (0 for none), and its depth."""
        node: Any = YAML(typ="rt").load(self.text)
        line = 0
        for depth, key in enumerate(path):
            try:
                # Mappings know the place of their keys, and lists of their items.
                place = node.lc.item(key) if isinstance(key, int) else node.lc.key(key)
                line, node = int(place[0]) + 1, node[key]
            except (AttributeError, KeyError, IndexError, TypeError):
                return line, depth
        return line, len(path)


def _describe_yaml_error(message: str) -> str:
    for pattern, replacement in _MESSAGES:
        message = pattern.sub(replacement, message)
    return message

"""A file of the policy as it is written: what it holds, and on which line. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bot.policy.problem import NoPolicyError, PolicyProblem

KeyPath = Sequence[str | int]


# What the reader of YAML says, and what people need to hear.
_MESSAGES = (
    (re.compile(r"found character '\\t' .*"), "there is a tab: indent by spaces"),
    (re.compile(r'found duplicate key "(.*?)".*', re.DOTALL), r'"\1" stands here a second time'),
    (
        re.compile(r"expected (the node content|',' or '[]}]'), but .*"),
        "a bracket is opened and not closed, or a comma or a value is missing",
    ),
    (re.compile(r"found unexpected end of stream"), "a quotation mark is opened and not closed"),
    (
        re.compile(r"expected <block end>, but found .*"),
        "is indented otherwise than the lines that it belongs to",
    ),
    (
        re.compile(r"mapping values are not allowed here"),
        "there is a colon too many, or none ends the line above: text with a colon and a space in "
        "it goes into quotation marks",
    ),
    (
        re.compile(r"found character '(.)' that cannot start any token"),
        r"nothing begins with \1: put it into quotation marks",
    ),
    (
        re.compile(r"found undefined alias .*"),
        "nothing begins with *: put it into quotation marks",
    ),
)


@dataclass(frozen=True)
class YamlFile:
    """name: of the file. text: all of it."""

    name: str
    text: str

    def parse_data(self) -> dict[str, Any]:
        """Return what it holds. Raises NoPolicy."""
        try:
            data = YAML(typ="safe").load(self.text)
        except RecursionError:
            raise NoPolicyError(
                PolicyProblem("is nested too deeply to be read", self.name)
            ) from None
        except ValueError as error:
            raise NoPolicyError(PolicyProblem(str(error), self.name)) from None
        except YAMLError as error:
            mark: Any = getattr(error, "problem_mark", None)
            what = _describe_yaml_error(str(getattr(error, "problem", None) or error))
            raise NoPolicyError(
                PolicyProblem(what, self.name, mark.line + 1 if mark else None)
            ) from None
        if not isinstance(data, dict):
            example = f"{self.name.split('.')[0]}:"
            raise NoPolicyError(
                PolicyProblem(f"must hold a mapping, such as {example}", self.name)
            )
        return cast("dict[str, Any]", data)

    def build_problem(self, message: str, path: KeyPath) -> PolicyProblem:
        """Return what is wrong at the deepest part of the path that is written."""
        return PolicyProblem(message, self.name, self._find_line_and_depth(path)[0] or None)

    def has_path(self, path: KeyPath) -> bool:
        return self._find_line_and_depth(path)[1] == len(path)

    def _find_line_and_depth(self, path: KeyPath) -> tuple[int, int]:
        """Return the line of the deepest part, 0 if none is there, and how deep that is."""
        node: Any = YAML(typ="rt").load(self.text)
        line = 0
        for depth, key in enumerate(path):
            try:
                # Mappings know where their keys are, and lists where their items are.
                where = node.lc.item(key) if isinstance(key, int) else node.lc.key(key)
                line, node = int(where[0]) + 1, node[key]
            except (AttributeError, KeyError, IndexError, TypeError):
                return line, depth
        return line, len(path)


def _describe_yaml_error(message: str) -> str:
    for said, plainly in _MESSAGES:
        message = said.sub(plainly, message)
    return message

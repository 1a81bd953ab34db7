"""Read a page of YAML as data, with the place of each value. Pure.

Only what data needs: no tags, no anchors, no aliases, and the plain words of YAML 1.2, so `on` and
22:30 stay text. libyaml parses it, whose events need no recursion however deeply a page is nested.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

KeyPath = tuple[str | int, ...]

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
_NULL = frozenset({"", "~", "null"})
_BOOLEANS = {"true": True, "false": False}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_QUESTION = re.compile(r"\bTODO\b")


class PageError(ValueError):
    """A page cannot be used: where, what is wrong, and what to do."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message, self.line, self.column = message, line, column


@dataclass(frozen=True)
class Document:
    """The content of a file of YAML, and where each part begins."""

    data: Any
    places: Mapping[KeyPath, tuple[int, int]]
    quoted: Set[KeyPath] = frozenset()
    """The texts in quotation marks, or written as blocks."""

    def make_error(self, path: KeyPath, message: str) -> PageError:
        """Return an error at the deepest part of the path that exists."""
        while path and path not in self.places:
            path = path[:-1]
        return PageError(message, *self.places[path])

    def list_questions(self) -> list[PageError]:
        """Return what a draft still asks: each text with the word TODO."""
        return [
            self.make_error(path, f"{_name(path)} is not answered yet: {_shorten(text)}")
            for path, text in _iterate_texts(self.data, ())
            if _QUESTION.search(text)
        ]


class Page(Document):
    """The content of a page, which is a mapping."""

    data: Mapping[str, Any]


def _iterate_texts(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, object]", value).items():
            yield from _iterate_texts(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(cast("list[object]", value)):
            yield from _iterate_texts(each, (*path, at))


def _shorten(text: str) -> str:
    return "replace TODO" if text == "TODO" else " ".join(text.split())[:300]


def _name(path: KeyPath) -> str:
    """Return the last key of a path."""
    return next((each for each in reversed(path) if isinstance(each, str)), "the page")


def read_page(content: bytes) -> Page:
    """Return the content of a page. Raises PageError."""
    document = read_document(content, MAX_BYTES)
    if not isinstance(document.data, dict):
        raise PageError("must be a mapping that starts with a key such as words:")
    return Page(cast("dict[str, Any]", document.data), document.places)


def read_document(
    content: bytes, max_bytes: int, rewrite: Callable[[Iterator[Any]], Iterator[Any]] = iter
) -> Document:
    """Return the content of a file of YAML, or of JSON. Raises PageError.

    rewrite: takes the events of the parser, and returns those that are read.
    """
    if len(content) > max_bytes:
        raise PageError(f"the file has more than {max_bytes // 1024} KiB: split it")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PageError("is not UTF-8: save it as UTF-8", line) from None
    builder = _Builder(rewrite(_iterate_events(text)))
    return Document(builder.build_document(), builder.places, builder.quoted)


def _iterate_events(text: str) -> Iterator[Any]:
    try:
        yield from YAML(typ="safe").parse(text)
    except MarkedYAMLError as error:
        facts: Mapping[str, Any] = vars(error)
        mark = facts["problem_mark"] or facts["context_mark"]
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise PageError(_describe(facts["problem"] or facts["context"]), *place) from None
    except YAMLError:
        raise PageError("has a character that YAML does not allow: remove it") from None


def _describe(problem: str) -> str:
    advice = {
        "found character that cannot start any token": "put the value into quotation marks, and "
        "indent with spaces",
        "mapping values are not allowed in this context": "put text with a colon and a space into "
        "quotation marks",
        "did not find expected key": "check the indentation, and close quotation marks",
        "could not find expected ':'": "write `key: value`",
    }.get(problem, "check the indentation, brackets and quotation marks")
    return f"{problem}: {advice}"


class _Builder:
    """Builds values from the events of the parser."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self.places: dict[KeyPath, tuple[int, int]] = {(): (1, 1)}
        self.quoted = set[KeyPath]()

    def build_document(self) -> object:
        data: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _make_error(event, "begins a second document: one file is one runbook")
                data = self._build(next(self._events), ())
        return data

    def _build(self, event: Any, path: KeyPath) -> object:
        _refuse_odd_event(event, path)
        self.places.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
        if isinstance(event, ScalarEvent):
            if not cast("Any", event).implicit[0]:
                self.quoted.add(path)
            return _build_scalar(cast("Any", event))
        if isinstance(event, SequenceStartEvent):
            return self._build_list(path)
        return self._build_mapping(path)

    def _build_list(self, path: KeyPath) -> list[object]:
        values: list[object] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            values.append(self._build(event, (*path, len(values))))
        return values

    def _build_mapping(self, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent) or event.anchor or event.tag:
                raise _make_error(event, "a key must be a plain word")
            key = str(cast("Any", event).value)
            if key in values:
                raise _make_error(event, f'duplicate key "{key}": remove one of the two')
            self.places[*path, key] = (event.start_mark.line + 1, event.start_mark.column + 1)
            values[key] = self._build(next(self._events), (*path, key))
        return values


def _refuse_odd_event(event: Any, path: KeyPath) -> None:
    if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
        raise _make_error(event, "anchors and aliases are not allowed: write the value out")
    if getattr(event, "tag", None):
        raise _make_error(event, "tags are not allowed: remove the word that begins with !")
    if len(path) > MAX_DEPTH:
        raise _make_error(event, "is nested too deeply")


def _make_error(event: Any, message: str) -> PageError:
    return PageError(message, event.start_mark.line + 1, event.start_mark.column + 1)


def _build_scalar(event: Any) -> object:
    text = str(event.value)
    if not event.implicit[0]:
        return text
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    return int(text) if _NUMBER.fullmatch(text) else text

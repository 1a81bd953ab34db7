"""Files of other tools as data, with the line of each value."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from defusedxml import DefusedXmlException
from defusedxml.sax import parseString
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from bot.features.importing.drafts import Unclear
from bot.model.errors import InvalidRequestError
from runbooks._declared_yaml import Document, KeyPath, PageError, read_document

MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 30
_MOST_EXPANDED = 20_000


class SourceError(InvalidRequestError):
    """The file cannot be read. The message has its name, the line, and what to do."""


# What YAML 1.1, which Ansible reads, takes for a number or a time: 0644, 1_000, 1.10, 1e3, 12:30.
_OTHER_NUMBER = re.compile(
    r"[+-]?(0[0-9_]+|0[xb][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*|[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*"
    r"|[0-9_.]+e[+-]?[0-9]+|[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?|\.(inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?)",
    re.IGNORECASE,
)
_OTHER_FLAGS = {
    **dict.fromkeys(("yes", "on", "true"), True),
    **dict.fromkeys(("no", "off", "false"), False),
}


class Plain(str):
    """A word without quotation marks that YAML 1.1 takes for yes, no or a number."""

    __slots__ = ()

    def read(self) -> bool:
        """Return what it says if it is yes or no. Raises Unclear for a number."""
        if self.lower() not in _OTHER_FLAGS:
            raise Unclear(f"{self} without quotation marks is another number to Ansible")
        return _OTHER_FLAGS[self.lower()]


def _keep_plain(document: Document, value: object, path: KeyPath) -> object:
    if isinstance(value, dict):
        pairs = as_mapping(cast("object", value)).items()
        found = {key: _keep_plain(document, each, (*path, key)) for key, each in pairs}
        return _merge(found) if "<<" in found else found
    if isinstance(value, list):
        parts = enumerate(as_list(cast("object", value)))
        return [_keep_plain(document, each, (*path, at)) for at, each in parts]
    if not isinstance(value, str) or path in document.quoted:
        return value
    is_other = value.lower() in _OTHER_FLAGS or _OTHER_NUMBER.fullmatch(value)
    return Plain(value) if is_other else value


def _merge(given: Mapping[str, object]) -> dict[str, object]:
    """Return a mapping with those under the key <<, of which the first comes before the others."""
    others = as_list(given["<<"]) or [given["<<"]]
    return {key: each for one in reversed(others) for key, each in as_mapping(one).items()} | {
        key: each for key, each in given.items() if key != "<<"
    }


def _expand_aliases(events: Iterator[Any]) -> Iterator[Any]:
    """Yield events with those of an anchor in the place of each alias. Raises PageError."""
    kept: dict[str, list[Any]] = {}
    # The anchors whose values are being read, and how deep they began.
    within: list[tuple[str, int]] = []
    depth = count = 0
    for event in events:
        is_alias = isinstance(event, AliasEvent)
        name = str(getattr(event, "anchor", None) or "")
        found = kept.get(name) if is_alias else [event]
        if found is None or any(name == each for each, _ in within if is_alias):
            line, column = event.start_mark.line + 1, event.start_mark.column + 1
            raise PageError(f"the alias *{name} has no anchor before it", line, column)
        if not is_alias and name:
            event.anchor = None
            kept[name] = []
            within.append((name, depth))
        count += len(found) if is_alias else 0
        if count > _MOST_EXPANDED:
            line = event.start_mark.line + 1
            raise PageError(f"its aliases stand for more than {_MOST_EXPANDED:,} parts", line)
        for each, _ in within:
            kept[each] += found
        yield from found
        depth += isinstance(event, MappingStartEvent | SequenceStartEvent)
        depth -= isinstance(event, MappingEndEvent | SequenceEndEvent)
        while within and depth == within[-1][1]:
            within.pop()


def as_mapping(value: object) -> dict[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def is_list(value: object) -> bool:
    return isinstance(value, list)


def is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def is_list_of_mappings(value: object) -> bool:
    return is_list(value) and all(map(is_mapping, as_list(value)))


def is_true(value: object) -> bool:
    """Return whether a word of YAML, old or new, or of XML says yes."""
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")


def is_false(value: object) -> bool:
    """Return whether such a word says no. A word may say neither."""
    return str(value).lower() in ("false", "no", "off", "0", "n", "f")


def is_file_within(path: Path, directory: Path) -> bool:
    """Return whether there is such a file in a directory, also where links lead."""
    try:
        return path.is_file() and path.resolve().is_relative_to(directory.resolve())
    # No name can have every character, or any length.
    except (OSError, ValueError):
        return False


def read_bytes(file: Path) -> bytes:
    """Return the content of a file of at most 1 MiB. Raises SourceError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise SourceError(f"{file} has more than {MAX_BYTES // 1024} KiB: export fewer jobs")
    return content


def read_yaml(file: Path, content: bytes) -> Document:
    """Return the content of YAML or JSON. Raises SourceError."""
    try:
        document = read_document(content, MAX_BYTES, _expand_aliases)
    except PageError as error:
        raise SourceError(f"{file}: {error}") from None
    return replace(document, data=_keep_plain(document, document.data, ()))


@dataclass
class Element:
    """An element of XML."""

    name: str
    line: int
    attributes: Mapping[str, str]
    children: "list[Element]" = field(default_factory=list["Element"])
    text: str = ""

    def find(self, *names: str) -> "Element | None":
        """Return the first element on a path of names."""
        found: Element | None = self
        for name in names:
            found = next((one for one in found.children if one.name == name), None)
            if found is None:
                return None
        return found

    def list(self, *names: str) -> "list[Element]":
        """Return all elements with the last name, below a path of names."""
        above = self.find(*names[:-1])
        return [one for one in above.children if one.name == names[-1]] if above else []

    def get_text(self, *names: str) -> str:
        found = self.find(*names)
        return found.text.strip() if found else ""


class _Builder(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", 1, {})
        self._open = [self.root]
        self._locator: Locator | None = None

    def setDocumentLocator(self, locator: Locator) -> None:  # noqa: N802 - as SAX calls it
        self._locator = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - as SAX calls it
        line = (self._locator and self._locator.getLineNumber()) or 1
        if len(self._open) > _MAX_DEPTH:
            raise SAXException(f"line {line}: is nested too deeply")
        values = {key: str(attrs.getValue(key)) for key in attrs.getNames()}
        element = Element(name, line, values)
        self._open[-1].children.append(element)
        self._open.append(element)

    def endElement(self, name: str) -> None:  # noqa: ARG002, N802 - as SAX calls it
        self._open.pop()

    def characters(self, content: str) -> None:
        self._open[-1].text += content


def read_xml(file: Path, content: bytes) -> Element:
    """Return the outermost element. Raises SourceError; entities and DTDs are refused."""
    builder = _Builder()
    try:
        cast("Any", parseString)(content, builder, forbid_dtd=True)
    except DefusedXmlException:
        raise SourceError(
            f"{file}: has a DTD or entities, which are not read: remove them, or export the job "
            "again"
        ) from None
    except SAXParseException as error:
        raise SourceError(
            f"{file}: line {error.getLineNumber()}: is not XML: {error.getMessage()}"
        ) from None
    except (SAXException, LookupError, ValueError) as error:
        raise SourceError(f"{file}: {error}: export the job again") from None
    return builder.root.children[0]

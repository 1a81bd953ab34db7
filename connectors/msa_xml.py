"""Answers of the XML API of HP MSA arrays: objects with properties, and a status. No I/O.

The elements are those of the CLI reference guides of the P2000 G3, the MSA 1040 and the MSA 2040,
chapter "XML API basetype properties"; Dell's ME4 has the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element
from xml.etree.ElementTree import ParseError as XmlError

from defusedxml import DefusedXmlException, ElementTree

from connectors.errors import CommandError, ParseError
from connectors.rows import Rows, parse_each
from connectors.visible_text import quote_text


@dataclass(frozen=True)
class MsaObject:
    """A part of the array, such as a disk."""

    kind: str
    """Its `basetype`: controllers, drives, volumes …"""
    properties: Mapping[str, str]

    def get(self, *names: str) -> str:
        """Return the first of these properties that the firmware has; "" if it has none."""
        return next((self.properties[name] for name in names if self.properties.get(name)), "")


def parse_objects(answer: str) -> Rows[MsaObject]:
    """Return the objects of an answer, also nested ones, without its status.

    Raises CommandError if the status says that the command failed, and ParseError.
    """
    objects = _parse(answer)
    _raise_error(objects)
    return objects.parse(lambda each: None if each.kind == "status" else each)


def parse_login(answer: str) -> str:
    """Return the session key that a login returned. Raises CommandError if it was refused."""
    objects = _parse(answer)
    _raise_error(objects)
    (status,) = [each for each in objects if each.kind == "status"][:1] or [_NONE]
    key = status.get("response")
    # Some firmware reports a refused login as a success with a sentence instead of a key.
    if not key.isascii() or not key.isalnum():
        raise CommandError(quote_text(key[:200] or "no session key"))
    return key


_NONE = MsaObject("", {})


def _parse(answer: str) -> Rows[MsaObject]:
    try:
        root = ElementTree.fromstring(answer.strip().encode(), forbid_dtd=True)
    # LookupError: an unknown encoding.
    except (XmlError, DefusedXmlException, ValueError, LookupError, RecursionError):
        root = None
    if root is None or root.tag != "RESPONSE":
        raise ParseError(f"the array returned {quote_text(answer[:80])}: not an answer of its API")
    others = [each for each in root if each.tag not in ("OBJECT", "COMP")]
    rows = [*root.iter("OBJECT"), *others]
    texts = [" ".join((each.tail or "").split()) for each in root]
    return parse_each([*map(_list_parts, rows), *filter(None, texts)], _parse_object)


def _list_parts(element: Element) -> tuple[str, list[tuple[str, str]]]:
    """Return the kind of an object, and its properties; "" for another element."""
    parts = [
        (each.get("name", ""), " ".join((each.text or "").split()))
        for each in element
        if each.tag == "PROPERTY"
    ]
    return element.get("basetype", "") if element.tag == "OBJECT" else "", parts


def _parse_object(row: str | tuple[str, list[tuple[str, str]]]) -> MsaObject:
    if isinstance(row, str) or not row[0] or not all(name for name, _ in row[1]):
        raise ParseError("it is no object of the array's API")
    return MsaObject(row[0], dict(row[1]))


def _raise_error(objects: Iterable[MsaObject]) -> None:
    for each in objects:
        if each.kind == "status" and each.get("response-type").lower() == "error":
            raise CommandError(f"the array answered {quote_text(each.get('response')[:300])}")

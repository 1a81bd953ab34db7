"""Redaction: the secrets that Keyturn knows, and what looks like one, are taken out of any text.

A host may answer with a password that Keyturn logs in with, plain or encoded. What is recorded,
shown or logged goes through here first; what is sent to hosts never does.
"""

import base64
import html
import json
import re
import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import quote, quote_plus

from bot.model.canonical import Canonical

MARK = "[secret]"
# As it is written, decoded once, decoded twice.
_MAX_DECODINGS = 3

# What is not shown, so that it may stand between the letters of a secret: space, control and
# format characters.
_INVISIBLE_CHARACTERS = (
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]++"
)
# The same, and whole sequences for terminals (ECMA-48).
_TERMINAL_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[ -/]++[0-~]"
)
_NOISE_PATTERN = re.compile(_INVISIBLE_CHARACTERS)
_TERMINAL_NOISE_PATTERN = re.compile(f"(?:{_TERMINAL_SEQUENCE}|{_INVISIBLE_CHARACTERS})++")
# A letter as HTML, addresses and programming languages write it.
_ENCODED_PATTERN = re.compile(
    r"&(?:#[0-9]{1,20}|#[xX][0-9a-fA-F]{1,20}|[A-Za-z][A-Za-z0-9]{1,31});?"
    r"|(?:%[0-9a-fA-F]{2})+"
    r"|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U000[0-9a-fA-F]{5}|\\[0-3][0-7]{2}"
)

# A shorter word would be found in text that has nothing to do with it.
MIN_SECRET_LENGTH = 8

_SECRET_PATTERN = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"
    r"|\bx(?:ox[a-z]|app)-[A-Za-z0-9-]{10,}"
    r"|\bA[KS]IA[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bkt_[0-9a-f]{8}_[A-Za-z0-9_-]{43}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|\$(?:1|2[aby]|5|6|y|gy|argon2id?)\$[./A-Za-z0-9$,=+]{20,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?i:(?<=authorization: )(?:basic|bearer) [A-Za-z0-9+/=._~-]{8,})",
    re.DOTALL,
)
# Each of them has one of these in it, which is found in a small part of the time. The last is of
# "authorization", in small letters: other letters of it have a third form.
_SECRET_MARKERS = (
    "PRIVATE KEY-----",
    "xox",
    "xapp-",
    "KIA",
    "SIA",
    "gh",
    "kt_",
    "eyJ",
    "$",
    "://",
)
_SECRET_MARKER_ANY_CASE = "zat"  # noqa: S105 - not a secret


class Redactor:
    """Knows secrets and takes them out. Any thread may use it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._spellings: tuple[str, ...] = ()
        self._hex_spellings: tuple[str, ...] = ()
        self.add_secrets(*secrets)

    def add_secrets(self, *secrets: str) -> None:
        """Take these out from now on, in every spelling; what is too short to tell is passed."""
        long_enough = [secret for secret in secrets if len(secret.strip()) >= MIN_SECRET_LENGTH]
        exact = {form for secret in long_enough for form in _iterate_spellings(secret.strip())}
        digits = {
            form for secret in long_enough for form in _iterate_hex_spellings(secret.strip())
        }
        with self._lock:
            # The longest first: a spelling may hold another one.
            self._spellings = _sort_longest_first(exact.union(self._spellings))
            self._hex_spellings = _sort_longest_first(digits.union(self._hex_spellings))

    def redact_text(self, text: str) -> str:
        """Return *text* with a mark in the place of each secret, even of one broken over lines."""
        spans = [*self._find_known_secrets(text)] if self._spellings else []
        if _has_secret_marker(text):
            spans += [found.span() for found in _SECRET_PATTERN.finditer(text)]
        if not spans:
            return text
        kept: list[str] = []
        end = 0
        for first, last in sorted(spans):
            if first >= end:
                kept += [text[end:first], MARK]
            end = max(end, last)
        return "".join([*kept, text[end:]])

    def redact_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Do so with several: what holds nothing secret as a whole holds none in its parts."""
        return [*map(self.redact_text, texts)] if self.has_secret("\n".join(texts)) else texts

    def has_secret(self, text: str) -> bool:
        return self.redact_text(text) != text

    def redact_value(self, content: Canonical) -> Canonical:
        """Return *thing* with every text in it redacted."""
        if isinstance(content, str):
            return self.redact_text(content)
        if isinstance(content, Mapping):
            known = cast("Mapping[str, Canonical]", content)
            return {
                self.redact_text(name): self.redact_value(value) for name, value in known.items()
            }
        if isinstance(content, Sequence):
            return [self.redact_value(value) for value in content]
        return content

    def _find_known_secrets(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the registered secrets are, whatever stands between their letters."""
        readings = [text]
        # Twice, for what was encoded twice, such as `&amp;#115;`.
        while (
            len(readings) < _MAX_DECODINGS and (more := _decode_text(readings[-1])) != readings[-1]
        ):
            readings.append(more)
        for n, reading in enumerate(readings):
            found = [*self._find_places(reading)]
            for encoded in reversed(readings[:n]):
                found = _map_places_to_encoded(encoded, found)
            yield from found

    def _find_places(self, text: str) -> Iterator[tuple[int, int]]:
        yield from self._find_places_ignoring_noise(_NOISE_PATTERN, text)
        if "\x1b" in text or "\x9b" in text:
            yield from self._find_places_ignoring_noise(_TERMINAL_NOISE_PATTERN, text)

    def _find_places_ignoring_noise(
        self, noise: re.Pattern[str], text: str
    ) -> Iterator[tuple[int, int]]:
        squeezed = _remove_noise(noise, text)
        folded = _lower_in_place(squeezed)
        # Nearly every text holds none, which is soon seen.
        if not _contains_any(self._spellings, squeezed) and not _contains_any(
            self._hex_spellings, folded
        ):
            return
        at = array("q")
        end = 0
        for found in noise.finditer(text):
            at.extend(range(end, found.start()))
            end = found.end()
        at.extend(range(end, len(text)))
        for first, last in (
            *_find_forms(squeezed, self._spellings),
            *_find_forms(folded, self._hex_spellings),
        ):
            yield at[first], at[last - 1] + 1


def _remove_noise(noise: re.Pattern[str], text: str) -> str:
    """Return only what stands between the noise."""
    squeezed = "".join(text.split())
    if squeezed.isascii() and squeezed.isprintable():
        return squeezed
    return noise.sub("", text)


def _decode_text(text: str) -> str:
    return _ENCODED_PATTERN.sub(_decode_match, text)


def _decode_match(match: re.Match[str]) -> str:
    """Return the letters that an encoded word stands for."""
    word = match[0]
    if word[0] == "&":
        return html.unescape(word)
    if word[0] == "%":
        return bytes.fromhex(word.replace("%", "")).decode(errors="replace")
    code = int(word[1:], 8) if word[1].isdigit() else int(word[2:], 16)
    return chr(code) if code <= sys.maxunicode else word


def _map_places_to_encoded(
    encoded: str, places: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return where what stands at these places once it is decoded stands in the encoded text."""
    if not places:
        return []
    first, last = array("q"), array("q")
    end = 0
    for found in _ENCODED_PATTERN.finditer(encoded):
        first.extend(range(end, found.start()))
        last.extend(range(end + 1, found.start() + 1))
        letters = len(_decode_match(found))
        first.extend([found.start()] * letters)
        last.extend([found.end()] * letters)
        end = found.end()
    first.extend(range(end, len(encoded)))
    last.extend(range(end + 1, len(encoded) + 1))
    return [(first[begun], last[ended - 1]) for begun, ended in places]


def _has_secret_marker(text: str) -> bool:
    return _contains_any(_SECRET_MARKERS, text) or _SECRET_MARKER_ANY_CASE in text.lower()


def _contains_any(forms: Iterable[str], text: str) -> bool:
    return any(map(text.__contains__, forms))


def _find_forms(text: str, forms: Iterable[str]) -> Iterator[tuple[int, int]]:
    for form in forms:
        first = text.find(form)
        while first >= 0:
            yield first, first + len(form)
            first = text.find(form, first + len(form))


def _iterate_spellings(secret: str) -> Iterator[str]:
    """Yield the ways in which programs write a text, without spaces."""
    data = secret.encode()
    written = (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        html.escape(secret, quote=False),
        repr(secret)[1:-1],
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
        *_iterate_base64_spellings(data),
        *(
            twice
            for once in _iterate_base64_spellings(data)
            for twice in _iterate_base64_spellings(once.encode())
        ),
    )
    for form in written:
        squeezed = _remove_noise(_NOISE_PATTERN, form)
        if len(squeezed) >= MIN_SECRET_LENGTH:
            yield squeezed


def _iterate_base64_spellings(data: bytes) -> Iterator[str]:
    """Yield what is certain of it in base64, wherever in the encoded text it begins."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # The first and the last letter hold bits of what is beside it.
        certain = encoded[(0, 2, 3)[before] : len(encoded) - bool((before + len(data)) % 3)]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")


def _iterate_hex_spellings(secret: str) -> Iterator[str]:
    """Yield it byte by byte in hexadecimal digits, in small letters."""
    pairs = [f"{byte:02x}" for byte in secret.encode()]
    for prefix in ("", "%", "\\x", "0x"):
        yield "".join(prefix + pair for pair in pairs)
    for between in (":", "-", ",0x"):
        yield between.join(pairs)


def _sort_longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _lower_in_place(text: str) -> str:
    """Return it in small letters, each in its place: some others become two."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)

"""Redaction: replace known secrets, and text that looks like a secret, by a mark.

The output of a host can contain a password that Keyturn uses, plain or encoded. Everything that is
recorded, shown or logged is redacted first; what is sent to hosts is not.
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
# As written, decoded once, decoded twice.
_MAX_DECODINGS = 3

# Invisible characters that can be inserted into a secret: space, control and format characters.
_INVISIBLE_CHARACTERS = (
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]++"
)
# Escape sequences for terminals (ECMA-48).
_TERMINAL_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[ -/]++[0-~]"
)
_NOISE_PATTERN = re.compile(_INVISIBLE_CHARACTERS)
_TERMINAL_NOISE_PATTERN = re.compile(f"(?:{_TERMINAL_SEQUENCE}|{_INVISIBLE_CHARACTERS})++")
# A character as encoded by HTML, URLs and programming languages.
_ENCODED_PATTERN = re.compile(
    r"&(?:#[0-9]{1,20}|#[xX][0-9a-fA-F]{1,20}|[A-Za-z][A-Za-z0-9]{1,31});?"
    r"|(?:%[0-9a-fA-F]{2})+"
    r"|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U000[0-9a-fA-F]{5}|\\[0-3][0-7]{2}"
)

# Shorter secrets would match unrelated text.
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
# Every match of _SECRET_PATTERN contains one of these, which are much faster to find. The marker
# of "authorization" is matched in lower case; it avoids letters with a third form in Unicode.
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
    """Redacts known secrets and patterns of secrets. Thread-safe."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._spellings: tuple[str, ...] = ()
        self._hex_spellings: tuple[str, ...] = ()
        self.add_secrets(*secrets)

    def add_secrets(self, *secrets: str) -> None:
        """Redact these secrets from now on, in every spelling; short ones are not redacted."""
        long_enough = [secret for secret in secrets if len(secret.strip()) >= MIN_SECRET_LENGTH]
        exact = {form for secret in long_enough for form in _iterate_spellings(secret.strip())}
        digits = {
            form for secret in long_enough for form in _iterate_hex_spellings(secret.strip())
        }
        with self._lock:
            # Longest first: a spelling can contain another one.
            self._spellings = _sort_longest_first(exact.union(self._spellings))
            self._hex_spellings = _sort_longest_first(digits.union(self._hex_spellings))

    def redact_text(self, text: str) -> str:
        """Return *text* with a mark in place of each secret, also if it spans several lines."""
        spans = [*self._find_known_secrets(text)] if self._spellings else []
        if _has_secret_marker(text):
            spans += [match.span() for match in _SECRET_PATTERN.finditer(text)]
        if not spans:
            return text
        kept: list[str] = []
        end = 0
        for first, last in sorted(spans):
            if first >= end:
                kept += [text[end:first], MARK]
            end = max(end, last)
        return "".join([*kept, text[end:]])

    def redact_for_storage(self, text: str) -> str:
        """Return *text* redacted, and with NUL spelt out.

        Hosts can return any bytes, and PostgreSQL text cannot contain NUL.
        """
        return self.redact_text(text).replace("\0", "\\x00")

    def redact_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Redact several texts. Faster than one by one, as they are searched together first."""
        return [*map(self.redact_text, texts)] if self.has_secret("\n".join(texts)) else texts

    def has_secret(self, text: str) -> bool:
        return self.redact_text(text) != text

    def redact_value(self, content: Canonical) -> Canonical:
        """Return *content* with every text in it redacted."""
        if isinstance(content, str):
            return self.redact_text(content)
        if isinstance(content, Mapping):
            mapping = cast("Mapping[str, Canonical]", content)
            return {
                self.redact_text(name): self.redact_value(value) for name, value in mapping.items()
            }
        if isinstance(content, Sequence):
            return [self.redact_value(value) for value in content]
        return content

    def _find_known_secrets(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of known secrets, ignoring noise between their characters."""
        readings = [text]
        # Decode twice, for text that was encoded twice, such as `&amp;#115;`.
        while (
            len(readings) < _MAX_DECODINGS and (more := _decode_text(readings[-1])) != readings[-1]
        ):
            readings.append(more)
        for n, reading in enumerate(readings):
            spans = [*self._find_places(reading)]
            for encoded in reversed(readings[:n]):
                spans = _map_places_to_encoded(encoded, spans)
            yield from spans

    def _find_places(self, text: str) -> Iterator[tuple[int, int]]:
        yield from self._find_places_ignoring_noise(_NOISE_PATTERN, text)
        if "\x1b" in text or "\x9b" in text:
            yield from self._find_places_ignoring_noise(_TERMINAL_NOISE_PATTERN, text)

    def _find_places_ignoring_noise(
        self, noise: re.Pattern[str], text: str
    ) -> Iterator[tuple[int, int]]:
        squeezed = _remove_noise(noise, text)
        folded = _lower_in_place(squeezed)
        # Fast path: most texts contain no secret.
        if not _contains_any(self._spellings, squeezed) and not _contains_any(
            self._hex_spellings, folded
        ):
            return
        at = array("q")
        end = 0
        for match in noise.finditer(text):
            at.extend(range(end, match.start()))
            end = match.end()
        at.extend(range(end, len(text)))
        for first, last in (
            *_find_forms(squeezed, self._spellings),
            *_find_forms(folded, self._hex_spellings),
        ):
            yield at[first], at[last - 1] + 1


def _remove_noise(noise: re.Pattern[str], text: str) -> str:
    """Return the text without noise."""
    squeezed = "".join(text.split())
    if squeezed.isascii() and squeezed.isprintable():
        return squeezed
    return noise.sub("", text)


def _decode_text(text: str) -> str:
    return _ENCODED_PATTERN.sub(_decode_match, text)


def _decode_match(match: re.Match[str]) -> str:
    """Return the characters of an encoded sequence."""
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
    """Map spans of the decoded text to spans of the encoded text."""
    if not places:
        return []
    first, last = array("q"), array("q")
    end = 0
    for match in _ENCODED_PATTERN.finditer(encoded):
        first.extend(range(end, match.start()))
        last.extend(range(end + 1, match.start() + 1))
        letters = len(_decode_match(match))
        first.extend([match.start()] * letters)
        last.extend([match.end()] * letters)
        end = match.end()
    first.extend(range(end, len(encoded)))
    last.extend(range(end + 1, len(encoded) + 1))
    return [(first[start], last[stop - 1]) for start, stop in places]


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
    """Yield the encodings of a secret that programs use, without spaces."""
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
        re.sub("%..", lambda match: match[0].lower(), quote(secret, safe="")),
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
    """Yield the base64 characters of *data* that do not depend on the bytes around it."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # The first and last characters contain bits of the neighbouring bytes.
        certain = encoded[(0, 2, 3)[before] : len(encoded) - bool((before + len(data)) % 3)]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")


def _iterate_hex_spellings(secret: str) -> Iterator[str]:
    """Yield the hexadecimal encodings of a secret, in lower case."""
    pairs = [f"{byte:02x}" for byte in secret.encode()]
    for prefix in ("", "%", "\\x", "0x"):
        yield "".join(prefix + pair for pair in pairs)
    for between in (":", "-", ",0x"):
        yield between.join(pairs)


def _sort_longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _lower_in_place(text: str) -> str:
    """Return the text in lower case with the same length: some characters would become two."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)

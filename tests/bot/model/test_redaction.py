"""Redaction of known secrets in every spelling."""

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.redaction import MARK, Redactor

SECRET = 'hunter2/"Käse"+&%=end'


def _spread_secret(*between: str) -> str:
    return "".join(letter + between[n % len(between)] for n, letter in enumerate(SECRET))


_SPELLINGS = {
    "with zero-width characters": _spread_secret("\u200b", "\u2060", "\ufeff", "\xad", "\u200d"),
    "with control characters": _spread_secret("\0", "\x08", "\x7f", "\x85", "\x1b"),
    "with colours": _spread_secret("\x1b[1;31m", "\x1b[0m", "\x9b4m"),
    "with links of a terminal": _spread_secret("\x1b]8;;http://x\x1b\\", "\x1b]0;t\x07", "\x1b(B"),
    "with bidi controls and tags": _spread_secret("\u202e", "\u2066", "\U000e0061", "\ufe0f"),
    "behind the start of a sequence": f"\x1b[{SECRET}",
    "numbers of HTML": "".join(f"&#{ord(letter)};" for letter in SECRET),
    "hexadecimal numbers of HTML": "".join(f"&#x{ord(letter):04X};" for letter in SECRET),
    "numbers of HTML, some letters only": "".join(
        f"&#{ord(letter)};" if n % 3 == 0 else letter for n, letter in enumerate(SECRET)
    ),
    "names of HTML": SECRET.replace("&", "&amp;").replace("ä", "&auml;").replace("=", "&equals;"),
    "HTML within HTML": "".join(f"&amp;#{ord(letter)};" for letter in SECRET),
    "some letters in an address": SECRET.replace("u", "%75").replace("e", "%65"),
    "escapes of a program": "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
    "some escapes of a program": SECRET.replace("u", "\\x75").replace("e", "\\145"),
    "base64 twice": base64.b64encode(base64.b64encode(SECRET.encode())).decode(),
    **{
        f"base64 twice, {n} and {m} on": base64.b64encode(
            b"a" * m + base64.b64encode(b"a" * n + SECRET.encode() + b"xyz")
        ).decode()
        for n in range(3)
        for m in range(3)
    },
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 one on": base64.b64encode(b":" + SECRET.encode() + b"x").decode(),
    "base64 two on": base64.b64encode(b"a:" + SECRET.encode() + b"xyz").decode(),
    "base64 for addresses": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "hexadecimal": SECRET.encode().hex(),
    "hexadecimal in capitals": SECRET.encode().hex().upper(),
    "hexadecimal with colons": SECRET.encode().hex(":"),
    "in an address": quote(SECRET, safe=""),
    "every letter in an address": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
    "JSON": json.dumps(SECRET),
    "JSON as it is": json.dumps(SECRET, ensure_ascii=False),
    "over lines": "\n".join(SECRET[at : at + 5] for at in range(0, len(SECRET), 5)),
    "base64 over lines": base64.b64encode(SECRET.encode() * 4).decode()[:20]
    + "\n"
    + base64.b64encode(SECRET.encode() * 4).decode()[20:],
}


@pytest.mark.parametrize("spelt", _SPELLINGS.values(), ids=_SPELLINGS.keys())
def test_known_secret_is_redacted_in_every_spelling(spelt: str):
    text = f"before {spelt} after"
    redacted = Redactor([SECRET]).redact_text(text)
    assert MARK in redacted
    assert spelt not in redacted
    assert (redacted[:7], redacted[-6:]) == ("before ", " after")
    # The twin: who does not know it, lets it through.
    assert Redactor().redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n"
        "-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow, and then it was cut off",
        "xoxb-123456789012-abcdefghijkl",
        "$6$rounds=5000$usesomesillystri$D4IrlXatmP7rx3P3InaxBeoomnAihCKRVQ",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "xapp-1-A0123456789-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        *(f"gh{kind}_{'0aZ' * 12}" for kind in "pousr"),
        f"kt_0123abcd_{'aZ9' * 14}b",
        "$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/",
    ],
)
def test_text_that_looks_like_a_secret_is_redacted(text: str):
    assert Redactor().redact_text(f"a {text}") == f"a {MARK}"


@pytest.mark.parametrize("header", ["Authorization", "AUTHORIZATION", "authorızatİon"])
def test_authorization_header_value_is_redacted(header: str):
    assert Redactor().redact_text(f"{header}: Bearer c2VjcmV0LXNlY3JldA") == f"{header}: {MARK}"


def test_password_in_a_database_url_is_redacted():
    text = "postgresql://keyturn:s3cr3t@db.example.com/keyturn"
    assert Redactor().redact_text(text) == f"postgresql://{MARK}@db.example.com/keyturn"


def test_secrets_in_nested_values_are_redacted():
    redacted = Redactor([SECRET]).redact_value({"a": ["x", f"y{SECRET}"], "n": 1, "none": None})
    assert redacted == {"a": ["x", f"y{MARK}"], "n": 1, "none": None}


def test_overlapping_secrets_are_redacted():
    assert Redactor(["first-secret", "secret-second"]).redact_text("first-secret-second") == MARK


@given(
    st.lists(st.text() | st.sampled_from([SECRET, *_SPELLINGS.values(), SECRET[:6]]), max_size=5)
)
def test_texts_redacted_together_equal_texts_redacted_alone(texts: list[str]):
    redactor = Redactor([SECRET])
    assert [*redactor.redact_texts(texts)] == [redactor.redact_text(one) for one in texts]


@pytest.mark.parametrize("short", ["", "root", "secret"])
def test_secret_shorter_than_the_minimum_is_not_redacted(short: str):
    assert Redactor([short]).redact_text("the root of a secret") == "the root of a secret"


@given(st.text(), st.text(), st.binary(min_size=8, max_size=40))
def test_a_secret_is_redacted_at_any_position(before: str, after: str, random: bytes):
    secret = "S" + random.hex()
    redacted = Redactor([secret]).redact_text(before + secret + after)
    assert secret not in "".join(redacted.split())


@given(st.text(max_size=300))
def test_text_without_secrets_is_not_redacted(text: str):
    assert Redactor(["a-secret-nobody-says"]).redact_text(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "a word ",
        "&#65;",
        "%41",
        "\\x41",
        "\x1b[31mx",
        "\x1b[",
        "\x1b]",
        "\u200b",
        "&",
        "&amp;#",
        SECRET + " ",
    ],
    ids=repr,
)
def test_redaction_time_grows_linearly_with_the_text(part: str):
    redactor = Redactor([SECRET, "another-secret-of-ours"])

    def seconds(length: int) -> float:
        text = part * (length // len(part))
        begun = time.process_time()
        redactor.redact_text(text)
        return time.process_time() - begun

    short = min(seconds(2**16) for _ in range(3))
    assert seconds(2**19) < 8 * short * 4 + 0.05

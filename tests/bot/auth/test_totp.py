"""TOTP codes: which are valid, how often and for how long."""

from urllib.parse import parse_qs, urlsplit

import pytest
from pyotp.totp import TOTP

from bot.auth import totp

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
NOW = 1_800_000_000_000_000
STEP = 30_000_000


def get_code(at: int) -> str:
    return TOTP(SECRET).at(at // 1_000_000)


def test_totp_matches_the_test_vectors_of_rfc_6238() -> None:
    # RFC 6238, appendix B, shortened to six digits.
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    for seconds, wanted in ((59, "287082"), (1111111109, "081804"), (20000000000, "353130")):
        step = totp.find_time_step(secret, wanted, now=seconds * 1_000_000, last_step=-1)
        assert step == seconds // 30


@pytest.mark.parametrize(
    ("steps", "right"), [(-3, False), (-2, False), (-1, True), (0, True), (1, True), (2, False)]
)
def test_totp_accepts_a_clock_that_is_one_time_step_off(steps: int, right: bool) -> None:
    step = totp.find_time_step(SECRET, get_code(NOW + steps * STEP), now=NOW, last_step=0)
    assert (step is not None) is right


def test_totp_code_is_rejected_after_it_or_a_later_one_was_used() -> None:
    used = totp.find_time_step(SECRET, get_code(NOW), now=NOW, last_step=0)
    assert used
    assert totp.find_time_step(SECRET, get_code(NOW), now=NOW, last_step=used) is None
    assert totp.find_time_step(SECRET, get_code(NOW - STEP), now=NOW, last_step=used) is None
    assert totp.find_time_step(SECRET, get_code(NOW + STEP), now=NOW, last_step=used) == used + 1
    # The twin: without remembering the step, it would work again.
    assert totp.find_time_step(SECRET, get_code(NOW), now=NOW, last_step=0) == used


@pytest.mark.parametrize(
    "typed", ["", "12345", "1234567", "12345x", "１２３４５６", "-12345", " 12345", "123456\n"]
)
def test_malformed_totp_code_matches_no_time_step(typed: str) -> None:
    assert totp.find_time_step(SECRET, typed, now=NOW, last_step=0) is None


def test_totp_secrets_are_unique_and_their_digest_does_not_reveal_them() -> None:
    one, other = totp.create_secret(), totp.create_secret()
    assert one != other
    assert len(one) == 32
    assert totp.hash_secret(one) != totp.hash_secret(other)
    assert one.lower() not in totp.hash_secret(one)


def test_totp_qr_code_is_an_inline_svg_of_the_provisioning_uri() -> None:
    address = totp.build_provisioning_uri(SECRET, person="olga", host="keyturn.example.com")
    parts = urlsplit(address)
    assert parts.scheme == "otpauth"
    assert parse_qs(parts.query)["secret"] == [SECRET]
    assert totp.render_qr_code(address).startswith("data:image/svg+xml")

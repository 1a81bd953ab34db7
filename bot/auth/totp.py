"""Six-digit codes of authenticator apps, new every 30 seconds (RFC 6238). Pure."""

import hmac
import re

from bot.model.canonical import hash_canonical

TOTP_KIND = "totp"
STEP_SECONDS = 30
# How many steps the clock of a phone may differ.
_MAX_DRIFT_STEPS = 1
_DIGEST_DIGITS = 32


def create_secret() -> str:
    """Return 160 random bits in base 32, the form that apps read."""
    from pyotp import random_base32

    return random_base32()


def hash_secret(secret: str) -> str:
    """Return 32 hex digits that identify a secret without revealing it."""
    return hash_canonical({"kind": TOTP_KIND, "secret": secret})[:_DIGEST_DIGITS]


def find_time_step(secret: str, code: str, *, now: int, last_step: int) -> int | None:
    """Return the time step of a code; None if the code is wrong or not newer than *last_step*.

    Each code works once if the caller stores the step and passes it as *last_step*. now:
    microseconds since 1970.
    """
    from pyotp.totp import TOTP

    if not re.fullmatch(r"[0-9]{6}", code):
        return None
    generator = TOTP(secret)
    current = now // (STEP_SECONDS * 1_000_000)
    found: int | None = None
    for step in range(current - _MAX_DRIFT_STEPS, current + _MAX_DRIFT_STEPS + 1):
        # All steps are compared, so that the time taken reveals nothing.
        if hmac.compare_digest(generator.generate_otp(step), code):
            found = step
    return found if found is not None and found > last_step else None


def build_provisioning_uri(secret: str, *, person: str, host: str) -> str:
    """Return the otpauth:// URI that apps read from a QR code."""
    from pyotp.totp import TOTP

    return TOTP(secret).provisioning_uri(name=person, issuer_name=f"Keyturn {host}")


def render_qr_code(uri: str) -> str:
    """Return the QR code of a URI, as an SVG in a data URI."""
    import segno

    return segno.make_qr(uri, error="m").svg_data_uri(border=3, light="white", scale=4)

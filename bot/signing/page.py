"""The signing page: one static file that shows a plan from its own bytes and asks a passkey.

It runs no code of Keyturn's and requests nothing, so it may be served from anywhere. It sends
signatures to one address only, which is written into it.
"""

import base64
import hashlib
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from bot.model.plan import ResolvedPlan

_FOLDER = Path(__file__).parent
_VERIFY = {"verify": "yes"}


@lru_cache(2)
def render_signing_page(base_url: str) -> str:
    """Return the file for the Keyturn at this address."""
    return (
        _read("page.html")
        .replace("{policy}", build_content_policy(base_url))
        .replace("{style}", _read("page.css"))
        .replace("{script}", _render_script(base_url))
    )


def hash_signing_page(base_url: str) -> str:
    """Return the SHA-256 of the file, 64 hex digits, as `sha256sum` prints it."""
    return hashlib.sha256(render_signing_page(base_url).encode()).hexdigest()


@lru_cache(2)
def build_content_policy(base_url: str) -> str:
    """Return the Content-Security-Policy: the page's own script and style, and this address."""
    return (
        f"default-src 'none'; script-src {_hash_source(_render_script(base_url))}; "
        f"style-src {_hash_source(_read('page.css'))}; form-action {base_url}; base-uri 'none'"
    )


def build_fragment(
    plan: "ResolvedPlan",
    *,
    person: str,
    then: str = "",
    reason: str = "",
    needs_verified_user: bool = False,
) -> str:
    """Return what follows `#` in the address of the page: the plan, and who signs it.

    Args:
        plan: What is signed.
        person: Who signs it.
        then: What is to be signed next, `all` for every plan that waits for the person.
        reason: `required` or `optional` if the page asks for a reason.
        needs_verified_user: Whether the device has to ask for a fingerprint or a PIN.
    """
    texts = {"document": plan.document, "sections": [one.text for one in plan.sections]}
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = packer.compress(json.dumps(texts).encode()) + packer.flush()
    encoded = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    more = {"then": then, "reason": reason, **(_VERIFY if needs_verified_user else {})}
    given = {name: value for name, value in more.items() if value}
    return urlencode({"plan": encoded, "person": person, **given})


def build_key_address(page: str, *, person: str, needs_verified_user: bool) -> str:
    """Return the address at which a person makes a passkey. page: the address of the page."""
    verify = _VERIFY if needs_verified_user else {}
    return f"{page}#{urlencode({'new': person, **verify})}"


def _render_script(base_url: str) -> str:
    return _read("page.js").replace('"{keyturn}"', json.dumps(base_url))


@lru_cache(4)
def _read(name: str) -> str:
    return (_FOLDER / name).read_text()


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

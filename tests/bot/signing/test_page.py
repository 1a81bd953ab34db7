"""The file of the signing page, and what Keyturn takes back from it."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from urllib.parse import parse_qs

import pytest

from bot.model.errors import InvalidRequestError
from bot.signing.assertion import parse_assertion
from bot.signing.page import build_fragment, hash_signing_page, render_signing_page
from bot.signing.sshsig import PLAN_NAMESPACE, SignatureError, verify_signature
from tests.bot.harness import Harness
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.toy import SetSwitch

HERE = "https://keyturn.example.com"
LAMP = SetSwitch(host="lb1", name="lamp", value="on")
MESSAGE = b"keyturn-plan 1\n"


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_signing_page_runs_only_its_own_script_and_sends_to_one_address():
    page = render_signing_page(HERE)
    script = page.split("<script>")[1].split("</script>")[0]
    style = page.split("<style>")[1].split("</style>")[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert policy[1] == (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
        f"style-src 'sha256-{_hash(style)}'; form-action {HERE}; base-uri 'none'"
    )
    assert re.findall(r"https?://[^\"' ]+", page) == [f"{HERE};", HERE]
    assert re.findall(r"\b(fetch|XMLHttpRequest|WebSocket|eval|innerHTML|import)\b", script) == []
    assert hash_signing_page(HERE) == hashlib.sha256(page.encode()).hexdigest()
    assert render_signing_page("https://other.example.com") != page


def test_fragment_holds_document_and_sections(harness: Harness):
    plan = harness.request(LAMP).plan
    assert plan
    fields = parse_qs(build_fragment(plan, person="olga", then="all"))
    packed = base64.urlsafe_b64decode(fields["plan"][0] + "==")
    texts = json.loads(zlib.decompress(packed, -zlib.MAX_WBITS))
    assert texts == {"document": plan.document, "sections": [plan.sections[0].text]}
    assert (fields["person"], fields["then"]) == (["olga"], ["all"])


def _encode(blob: bytes) -> str:
    return base64.urlsafe_b64encode(blob).decode().rstrip("=")


def _sign(passkey: SoftPasskey, message: bytes) -> Mapping[str, str]:
    """Return what the page sends, of a passkey in software."""
    made = passkey.answer_browser(message)
    return {name: _encode(blob) for name, blob in made.items()}


def test_answer_of_a_browser_becomes_a_signature_of_ssh_keygen():
    passkey = SoftPasskey()
    signature = parse_assertion(**_sign(passkey, MESSAGE)).wrap(passkey.public)
    assert verify_signature(signature, MESSAGE, namespace=PLAN_NAMESPACE) == passkey.public
    with pytest.raises(SignatureError, match="another text"):
        verify_signature(signature, b"other", namespace=PLAN_NAMESPACE)


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": ""},
        {"signature": "x"},
        {"signature": _encode(b"\x30\x00")},
        {"client_data": _encode(b"{}")},
        {"client_data": _encode(b"[]")},
        {"client_data": _encode(b"\xff")},
        {"client_data": "a b"},
        {"authenticator_data": ""},
        {"authenticator_data": _encode(bytes(38))},
        {"authenticator_data": _encode(bytes(36))},
        {"authenticator_data": "ü"},
    ],
)
def test_broken_answer_of_a_browser_is_refused_with_a_sentence(changed: Mapping[str, str]):
    sent = {**_sign(SoftPasskey(), MESSAGE), **changed}
    with pytest.raises(InvalidRequestError, match=r"the (browser|device)"):
        parse_assertion(**sent)

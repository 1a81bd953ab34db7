"""Security keys: what a browser must bring so that a key counts as shown."""

import json
import os
from dataclasses import replace

import pytest

from bot.auth import webauthn
from bot.auth.webauthn import KeyNotVerifiedError, RelyingParty, StoredPublicKey
from tests.authenticator import Authenticator

HOME = RelyingParty("keyturn.example.com", "https://keyturn.example.com")


def enrolled(device: Authenticator) -> StoredPublicKey:
    challenge = os.urandom(32)
    options = webauthn.build_registration_options(
        HOME, person="olga", name="Olga", challenge=challenge, known_keys=[]
    )
    return webauthn.verify_registration(HOME, device.enrol(options), challenge=challenge)[0]


def test_a_key_that_was_enrolled_proves_itself() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrolled(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    assert webauthn.parse_chosen_key_id(answer) == key.id
    assert (
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)
        == 1
    )


def test_what_was_signed_for_another_question_is_worth_nothing() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrolled(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(
            HOME, answer, challenge=os.urandom(32), key=key, last_count=0
        )


def test_what_was_signed_on_another_page_is_worth_nothing() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrolled(device), os.urandom(32)
    device.origin = "https://keyturn.example.org"
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)


def test_another_key_is_worth_nothing() -> None:
    device, other = Authenticator(HOME.origin), Authenticator(HOME.origin)
    key, challenge = enrolled(device), os.urandom(32)
    forged = replace(other, id=device.id)
    answer = forged.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)


def test_a_key_that_was_used_less_often_than_before_is_a_copy() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrolled(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=7)


@pytest.mark.parametrize(
    "answer",
    ["", "{}", "[]", "null", '{"id": 3}', "x" * 5000, "[" * 5000, '{"id": "a", "rawId": "b"}'],
)
def test_garbage_proves_nothing_and_breaks_nothing(answer: str) -> None:
    device = Authenticator(HOME.origin)
    key = enrolled(device)
    assert webauthn.parse_chosen_key_id(answer) in {"", "a"}
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_registration(HOME, answer, challenge=b"1")
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=b"1", key=key, last_count=0)


def test_a_key_is_not_enrolled_twice() -> None:
    device = Authenticator(HOME.origin)
    key = enrolled(device)
    options = json.loads(
        webauthn.build_registration_options(
            HOME, person="olga", name="Olga", challenge=b"1" * 32, known_keys=[key]
        )
    )
    assert [known["id"] for known in options["excludeCredentials"]] == [key.id]
    assert options["user"]["name"] == "olga"


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://keyturn.example.com", "keyturn.example.com"),
        ("https://keyturn.example.com:8443", "keyturn.example.com"),
        ("http://localhost:8080", "localhost"),
        ("http://127.0.0.1:8080", None),
        ("https://192.0.2.1", None),
        ("https://[2001:db8::1]", None),
        ("http://keyturn.example.com", None),
    ],
)
def test_keys_belong_to_a_name_that_browsers_let_them_belong_to(
    base_url: str, name: str | None
) -> None:
    relying_party = webauthn.build_relying_party(base_url)
    assert (relying_party and relying_party.host) == name

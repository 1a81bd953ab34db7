"""WebAuthn: the answers of a browser that prove a security key."""

import json
import os
from dataclasses import replace

import pytest

from bot.auth import webauthn
from bot.auth.webauthn import KeyNotVerifiedError, RelyingParty, StoredPublicKey
from tests.authenticator import Authenticator

HOME = RelyingParty("keyturn.example.com", "https://keyturn.example.com")


def enrol_device(device: Authenticator) -> StoredPublicKey:
    challenge = os.urandom(32)
    options = webauthn.build_registration_options(
        HOME, person="olga", name="Olga", challenge=challenge, known_keys=[]
    )
    return webauthn.verify_registration(HOME, device.enrol(options), challenge=challenge)[0]


def test_enrolled_security_key_is_verified() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrol_device(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    assert webauthn.parse_chosen_key_id(answer) == key.id
    assert (
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)
        == 1
    )


def test_security_key_signature_of_another_challenge_is_rejected() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrol_device(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(
            HOME, answer, challenge=os.urandom(32), key=key, last_count=0
        )


def test_security_key_signature_of_another_origin_is_rejected() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrol_device(device), os.urandom(32)
    device.origin = "https://keyturn.example.org"
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)


def test_signature_of_another_security_key_is_rejected() -> None:
    device, other = Authenticator(HOME.origin), Authenticator(HOME.origin)
    key, challenge = enrol_device(device), os.urandom(32)
    forged = replace(other, id=device.id)
    answer = forged.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=0)


def test_security_key_with_a_lower_counter_is_rejected_as_a_copy() -> None:
    device = Authenticator(HOME.origin)
    key, challenge = enrol_device(device), os.urandom(32)
    answer = device.sign(
        webauthn.build_authentication_options(HOME, challenge=challenge, keys=[key])
    )
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=challenge, key=key, last_count=7)


@pytest.mark.parametrize(
    "answer",
    ["", "{}", "[]", "null", '{"id": 3}', "x" * 5000, "[" * 5000, '{"id": "a", "rawId": "b"}'],
)
def test_malformed_webauthn_answer_is_rejected(answer: str) -> None:
    device = Authenticator(HOME.origin)
    key = enrol_device(device)
    assert webauthn.parse_chosen_key_id(answer) in {"", "a"}
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_registration(HOME, answer, challenge=b"1")
    with pytest.raises(KeyNotVerifiedError):
        webauthn.verify_authentication(HOME, answer, challenge=b"1", key=key, last_count=0)


def test_enrolled_security_key_is_excluded_from_a_second_enrolment() -> None:
    device = Authenticator(HOME.origin)
    key = enrol_device(device)
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
def test_security_keys_need_https_or_localhost_and_a_host_name(
    base_url: str, name: str | None
) -> None:
    relying_party = webauthn.build_relying_party(base_url)
    assert (relying_party and relying_party.host) == name

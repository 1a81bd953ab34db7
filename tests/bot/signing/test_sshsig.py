"""Signatures of ssh-keygen are verified, and ours are verified by ssh-keygen."""

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.signing.sshsig import (
    PLAN_NAMESPACE,
    PublicKey,
    SignatureError,
    parse_public_key,
    verify_signature,
)
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.signing.ssh_key import SshKey

MESSAGE = b"keyturn-plan 1\nrun 12\n"
PASSKEY = SoftPasskey()
SIGNED = PASSKEY.sign(MESSAGE)


def _verify_with_ssh_keygen(
    directory: Path, line: str, signature: str, *, options: str = ""
) -> bool:
    (directory / "signers").write_text(f'olga {options}namespaces="{PLAN_NAMESPACE}" {line}\n')
    (directory / "signature").write_text(signature)
    command = ["ssh-keygen", "-Y", "verify", "-f", directory / "signers", "-I", "olga"]
    more = ["-n", PLAN_NAMESPACE, "-s", directory / "signature"]
    done = subprocess.run([*command, *more], input=MESSAGE, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa-256", "ecdsa-384", "ecdsa-521"])
def test_signature_of_ssh_keygen_is_verified_with_its_key(tmp_path: Path, kind: str):
    key = SshKey.create(tmp_path, kind)
    signer = verify_signature(key.sign(MESSAGE), MESSAGE, namespace=PLAN_NAMESPACE)
    assert signer == parse_public_key(key.line)
    assert signer.fingerprint == key.fingerprint


def test_signature_of_a_passkey_is_verified_by_ssh_keygen_too(tmp_path: Path):
    signer = verify_signature(SIGNED, MESSAGE, namespace=PLAN_NAMESPACE)
    assert signer == PASSKEY.public == parse_public_key(PASSKEY.public.line)
    assert _verify_with_ssh_keygen(tmp_path, PASSKEY.public.line, SIGNED)
    assert not _verify_with_ssh_keygen(tmp_path, SoftPasskey().public.line, SIGNED)


@pytest.mark.parametrize(("flags", "counts"), [(0x01, False), (0x05, True)])
def test_fingerprint_or_pin_is_in_the_signature_and_ssh_keygen_ignores_it(
    tmp_path: Path, flags: int, counts: bool
):
    signature = PASSKEY.sign(MESSAGE, flags=flags)
    line = PASSKEY.public.line
    assert _verify_with_ssh_keygen(tmp_path, line, signature)
    # In a file of signers, ssh-keygen knows no such option: it would refuse everyone.
    assert not _verify_with_ssh_keygen(tmp_path, line, signature, options="verify-required,")
    assert verify_signature(signature, MESSAGE, namespace=PLAN_NAMESPACE)
    if counts:
        assert _verify_strictly(signature)
        return
    with pytest.raises(SignatureError, match="without a fingerprint or PIN"):
        _verify_strictly(signature)


def _verify_strictly(signature: str) -> PublicKey:
    return verify_signature(signature, MESSAGE, namespace=PLAN_NAMESPACE, needs_verified_user=True)


def test_key_in_a_file_asks_for_no_fingerprint(tmp_path: Path):
    with pytest.raises(SignatureError, match="without a fingerprint or PIN"):
        _verify_strictly(SshKey.create(tmp_path).sign(MESSAGE))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PASSKEY.sign(MESSAGE + b"\n"), "another text"),
        (PASSKEY.sign(MESSAGE, flags=0x04), "without a touch"),
        (PASSKEY.sign(MESSAGE, flags=0x85), "extensions that its flags do not name"),
        (PASSKEY.sign(MESSAGE, namespace="git"), "sign with `-n keyturn-plan`"),
        (PASSKEY.sign(MESSAGE, kind="webauthn.create"), "not made for signing"),
        (PASSKEY.sign(MESSAGE, origin="https://evil.example.com"), "another page"),
        (PASSKEY.sign(MESSAGE, origin="http://keyturn.example.com"), "another page"),
        (PASSKEY.sign(MESSAGE, origin="https://keyturn.example.com.evil"), "another page"),
        (SIGNED.replace("BEGIN SSH", "BEGIN PGP"), "does not begin with"),
        (SIGNED + SIGNED, "does not begin with"),
        (SIGNED.replace("\n", "\n\N{SNOWMAN}", 1), "not base64"),
        ("", "does not begin with"),
        (SIGNED + " " * 9000, "longer than"),
    ],
)
def test_signature_is_refused_with_the_reason(text: str, why: str):
    with pytest.raises(SignatureError, match=why):
        verify_signature(text, MESSAGE, namespace=PLAN_NAMESPACE)


def test_signature_is_refused_when_it_was_made_for_another_purpose(tmp_path: Path):
    key = SshKey.create(tmp_path, "ed25519")
    with pytest.raises(SignatureError, match="for another purpose"):
        verify_signature(key.sign(MESSAGE, "file"), MESSAGE, namespace=PLAN_NAMESPACE)


def _alter(change: Callable[[bytearray], object], text: str = SIGNED) -> str:
    head, *lines, end = text.strip().splitlines()
    blob = bytearray(base64.b64decode("".join(lines)))
    change(blob)
    return "\n".join([head, base64.b64encode(blob).decode(), end])


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_signature_is_refused_when_one_byte_differs(place: int, difference: int):
    def flip(blob: bytearray) -> None:
        blob[place % len(blob)] ^= difference

    with pytest.raises(SignatureError):
        verify_signature(_alter(flip), MESSAGE, namespace=PLAN_NAMESPACE)


@given(st.binary(max_size=300))
def test_signature_is_refused_when_it_is_anything_else(content: bytes):
    text = base64.b64encode(b"SSHSIG\0\0\0\1" + content).decode()
    with pytest.raises(SignatureError):
        verify_signature(
            f"-----BEGIN SSH SIGNATURE-----\n{text}\n-----END SSH SIGNATURE-----",
            MESSAGE,
            namespace=PLAN_NAMESPACE,
        )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ssh-ed25519",
        "ssh-rsa AAAAB3NzaC1yc2E=",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 !",
        f"ssh-ed25519 {PASSKEY.public.line.split()[1]}",
    ],
)
def test_public_key_is_refused_when_it_is_of_another_kind_or_damaged(line: str):
    with pytest.raises(SignatureError):
        parse_public_key(line)

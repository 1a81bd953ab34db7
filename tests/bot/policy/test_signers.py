"""Who signs with which keys, as pages, commands and checks list it."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.cli.policy_page import render_html, render_text
from bot.health import check_signing_keys
from bot.policy import NoPolicyError, Policy
from bot.policy.matrix import build_matrix
from bot.policy.signers import SigningPerson
from bot.signing.sshsig import SignatureError, encode_string, parse_public_key
from tests.bot.harness import Harness, open_harness
from tests.bot.policy.test_matrix import ALL, NOW
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.signing.ssh_key import SshKey
from tests.policies import get_signed_rules, give_signing_key, write_policy

PASSKEY = SoftPasskey()


def _list_signers(policy: Policy) -> dict[str, SigningPerson]:
    return {one.person: one for one in build_matrix(policy, ALL, now=NOW).signers}


def test_keys_are_listed_with_kind_fingerprint_and_comment_and_what_needs_one(tmp_path: Path):
    policies = write_policy(tmp_path / "policy", rules=get_signed_rules("both"))
    key = SshKey.create(tmp_path, name="olga")
    give_signing_key(policies.path, "olga", f"{key.line} olga at work")
    policy = policies.get_policy()
    found = _list_signers(policy)
    [listed] = found["olga"].keys
    assert (listed.kind, listed.fingerprint) == ("ssh-ed25519", key.fingerprint)
    assert (listed.comment, listed.line) == ("olga at work", key.line)
    assert {one.partition(" of ")[0] for one in found["olga"].signs} == {"approvals"}
    assert {one.partition(" of ")[0] for one in found["dora"].signs} == {"requests"}
    assert [name for name, one in found.items() if one.lacks_key] == ["adam", "dora", "stan"]
    matrix = build_matrix(policy, ALL, now=NOW)
    assert key.fingerprint in render_text(matrix)
    assert "None yet" in render_html(matrix)


def test_people_without_keys_are_not_listed_where_no_one_signs(tmp_path: Path):
    policies = write_policy(tmp_path / "policy")
    assert _list_signers(policies.get_policy()) == {}
    give_signing_key(policies.path, "olga", PASSKEY.public.line)
    assert [*_list_signers(policies.get_policy())] == ["olga"]


def test_enrolled_host_needs_keys_and_its_neighbour_does_not(tmp_path: Path):
    policies = write_policy(tmp_path / "policy")
    inventory = policies.path / "inventory.yaml"
    inventory.write_text(
        inventory.read_text().replace("lb2: {area: edge,", "lb2: {area: edge, signed: true,")
    )
    found = _list_signers(policies.get_policy())
    assert {*found} == {"dora", "olga", "adam", "stan"}
    assert all("lb2" in what for one in found.values() for what in one.signs)
    assert not any(what.startswith("approvals") for what in found["stan"].signs)
    every = "every reversible change and every irreversible change"
    assert found["adam"].signs == [f"requests and approvals of {every} (lb2)"]


def _check(harness: Harness) -> list[str]:
    with harness.database.reading() as tx:
        return [one.message for one in check_signing_keys(tx, harness.policies.get_policy())]


def test_health_warns_of_people_without_keys_and_of_what_no_one_can_approve(tmp_path: Path):
    with open_harness(tmp_path, rules=get_signed_rules("approver")) as harness:
        give_signing_key(harness.policies.path, "olga", PASSKEY.public.line)
        lacking, *never = _check(harness)
        assert lacking.startswith(
            "Adam Admin, Stan Storage have no signing key, but plans to sign"
        )
        assert {"storage" in one for one in never} == {True}
        assert all("too few approvers have one" in one for one in never)
        for person in ("adam", "stan"):
            give_signing_key(harness.policies.path, person, SoftPasskey().public.line)
        assert _check(harness) == ["3 keys of 3 people"]


def test_one_key_does_not_stand_for_two_people_in_another_form(tmp_path: Path):
    policies = write_policy(tmp_path / "policy")
    numbers = PASSKEY.key.public_key()
    point = numbers.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    same = b"".join(map(encode_string, (b"ecdsa-sha2-nistp256", b"nistp256", point)))
    give_signing_key(policies.path, "olga", PASSKEY.public.line)
    give_signing_key(
        policies.path, "dora", f"ecdsa-sha2-nistp256 {base64.b64encode(same).decode()}"
    )
    with pytest.raises(NoPolicyError, match="belongs to both dora and olga"):
        policies.get_policy()
    short = numbers.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    blob = b"".join(map(encode_string, (b"ecdsa-sha2-nistp256", b"nistp256", short)))
    with pytest.raises(SignatureError, match="another form than OpenSSH writes"):
        parse_public_key(f"ecdsa-sha2-nistp256 {base64.b64encode(blob).decode()}")

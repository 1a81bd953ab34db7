"""Approvals that must be signatures: over exactly this plan, with a key of this person."""

import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log, events
from bot.db import runs, tables
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import Run, State
from bot.policy import NoPolicyError
from bot.policy.explain import evaluate_request
from bot.queries import pending
from bot.queries.approval_count import build_policy_request
from bot.queries.run_view import Viewer, build_run_view
from tests.bot.harness import Harness, open_harness
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.signing.ssh_key import SshKey
from tests.policies import get_signed_rules, get_starter_rules, give_signing_key
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
PASSKEY = SoftPasskey()
_VERIFIER = Path(__file__).parents[3] / "docs" / "verify_signatures.py"


def _give_key(harness: Harness, person: str, line: str) -> None:
    give_signing_key(harness.policies.path, person, line)


def _take_keys(harness: Harness) -> None:
    file = harness.policies.path / "people.yaml"
    file.write_text(re.sub(r'signing_keys: \["[^"]*"\]', "signing_keys: []", file.read_text()))


@pytest.fixture
def signing(tmp_path: Path) -> Generator[Harness]:
    """A harness in which owners sign what developers request."""
    with open_harness(tmp_path, rules=get_signed_rules("approver")) as harness:
        yield harness


@pytest.fixture
def olga(signing: Harness, tmp_path: Path) -> SshKey:
    key = SshKey.create(tmp_path, name="olga")
    _give_key(signing, "olga", key.line)
    return key


def _get_document(run: Run) -> bytes:
    assert run.plan
    return run.plan.document.encode()


def _approve(harness: Harness, run: Run, signature: str, person: str = "olga") -> Run:
    harness.service.approve_run(run.id, person=person, digest=run.digest, signature=signature)
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_signed_approval_counts_and_is_logged_with_signature_and_key(
    signing: Harness, olga: SshKey
):
    run = signing.request(LAMP_ON)
    signature = olga.sign(_get_document(run))
    assert _approve(signing, run, signature).state is State.SUCCEEDED
    with signing.database.reading() as tx:
        [entry] = change_log.list_entries_of_run(tx, run.id, [events.Approved.kind])
    assert isinstance(entry.event, events.Approved)
    assert (entry.event.signature, entry.event.signing_key) == (signature, olga.fingerprint)


def test_passkey_signs_an_approval(signing: Harness):
    _give_key(signing, "olga", PASSKEY.public.line)
    run = signing.request(LAMP_ON)
    assert _approve(signing, run, PASSKEY.sign(_get_document(run))).state is State.SUCCEEDED


def test_approval_is_refused_without_a_signature_over_this_plan_with_a_key_of_this_person(
    signing: Harness, olga: SshKey, tmp_path: Path
):
    run, other = signing.request(LAMP_ON), signing.request(LAMP_ON)
    document = _get_document(run)
    stranger = SshKey.create(tmp_path, name="stranger")
    _give_key(signing, "adam", stranger.line)
    for person, signature, why in (
        ("olga", "", f"type `keyturn sign {run.id}`"),
        ("olga", olga.sign(_get_document(other)), "another text than this plan"),
        ("olga", olga.sign(document + b"\n"), "another text than this plan"),
        ("olga", stranger.sign(document), "does not name as a signing key of olga"),
        ("adam", olga.sign(document), "does not name as a signing key of adam"),
        ("olga", olga.sign(document, "file"), "sign with `-n keyturn-plan`"),
        ("olga", PASSKEY.sign(document, flags=0), "without a touch"),
    ):
        with pytest.raises(InvalidRequestError, match=why):
            _approve(signing, run, signature, person)
    with pytest.raises(NotAllowed, match="you requested it"):
        _approve(signing, run, olga.sign(document), "dora")
    assert signing.get_run(run.id).state is State.PENDING
    assert signing.fleet.sent == []
    assert _approve(signing, run, olga.sign(document)).state is State.SUCCEEDED


def test_signature_of_an_earlier_plan_does_not_count_for_a_renewed_one(
    signing: Harness, olga: SshKey
):
    run = signing.request(LAMP_ON)
    signature = olga.sign(_get_document(run))
    stale = signing.service.withdraw_run(run.id, person="dora")
    assert stale.state is State.WITHDRAWN
    again = signing.request(LAMP_ON)
    assert again.plan
    assert run.plan
    assert [*again.plan.steps] == [*run.plan.steps]
    with pytest.raises(InvalidRequestError, match="another text than this plan"):
        _approve(signing, again, signature)


def test_signature_without_a_rule_is_checked_all_the_same(harness: Harness, tmp_path: Path):
    key = SshKey.create(tmp_path)
    run = harness.request(LAMP_ON)
    with pytest.raises(InvalidRequestError, match="does not name as a signing key"):
        _approve(harness, run, key.sign(_get_document(run)))


def _verify_export(
    harness: Harness, directory: Path, *keys: SshKey, strict: bool = False
) -> tuple[int, str]:
    """Run the stand-alone script as a stranger does. keys: of olga."""
    with harness.database.reading() as tx:
        entries = [json.dumps(vars(entry)) for entry in change_log.list_entries_after(tx, 0)]
    (directory / "export.jsonl").write_text("".join(f"{line}\n" for line in entries))
    signers = "".join(f'olga namespaces="keyturn-plan" {key.line}\n' for key in keys)
    (directory / "signers").write_text(signers)
    options = ["--verify-user"] * strict
    files = [directory / "export.jsonl", directory / "signers"]
    command = [sys.executable, _VERIFIER, *options, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_stranger_verifies_who_signed_what_with_ssh_keygen(
    signing: Harness, olga: SshKey, tmp_path: Path
):
    run = signing.request(LAMP_ON)
    _approve(signing, run, olga.sign(_get_document(run)))
    status, text = _verify_export(signing, tmp_path, olga)
    assert (status, text.count("\n")) == (0, 2)
    assert f"run {run.id}, approved by olga, plan {run.digest}\n1 signatures, 0 not" in text
    other = SshKey.create(tmp_path, name="other")
    assert _verify_export(signing, tmp_path, other)[0] == 1
    with signing.database.transaction() as tx:
        untouched = PASSKEY.sign(_get_document(run), flags=0)
        event = events.Approved(digest=run.digest, signature=untouched, signing_key="")
        change_log.append_entry(tx, event, run=run, person="olga")
    key = SshKey(tmp_path / "passkey")
    (tmp_path / "passkey.pub").write_text(PASSKEY.public.line)
    status, text = _verify_export(signing, tmp_path, olga, key)
    assert (status, text.count("NOT VALID")) == (1, 1)


def test_policy_can_require_that_devices_ask_for_a_fingerprint_or_pin(
    signing: Harness, tmp_path: Path
):
    people = signing.policies.path / "people.yaml"
    _give_key(signing, "olga", PASSKEY.public.line)
    touched = signing.request(LAMP_ON)
    touch = PASSKEY.sign(_get_document(touched), flags=1)
    queued = signing.service.approve_run(
        touched.id, person="olga", digest=touched.digest, signature=touch
    )
    assert queued.state is State.QUEUED
    people.write_text(f"verify_user: true\n{people.read_text()}")
    signing.run_queued_work()
    assert signing.get_run(touched.id).state is not State.SUCCEEDED
    assert signing.fleet.sent == []
    run = signing.request(LAMP_ON)
    with pytest.raises(InvalidRequestError, match="without a fingerprint or PIN"):
        _approve(signing, run, PASSKEY.sign(_get_document(run), flags=1))
    assert _approve(signing, run, PASSKEY.sign(_get_document(run))).state is State.SUCCEEDED
    key = SshKey(tmp_path / "passkey")
    (tmp_path / "passkey.pub").write_text(PASSKEY.public.line)
    assert _verify_export(signing, tmp_path, key)[1].count("NOT VALID") == 0
    strict = _verify_export(signing, tmp_path, key, strict=True)[1]
    assert [line.split(":")[0] for line in strict.splitlines()[:2]] == ["NOT VALID", "valid"]


# --- the gate ---


def _queue_approved(harness: Harness, key: SshKey) -> Run:
    """Return an approved run that no one has started yet."""
    run = harness.request(LAMP_ON)
    signature = key.sign(_get_document(run))
    return harness.service.approve_run(
        run.id, person="olga", digest=run.digest, signature=signature
    )


def test_approval_does_not_count_at_the_gate_when_its_key_was_removed(
    signing: Harness, olga: SshKey
):
    run = _queue_approved(signing, olga)
    assert run.state is State.QUEUED
    _take_keys(signing)
    signing.run_queued_work()
    pending = signing.get_run(run.id)
    assert (pending.state, signing.fleet.sent) == (State.PENDING, [])
    with signing.database.reading() as tx:
        [entry] = change_log.list_entries_of_run(tx, run.id, [events.MoreApprovalsNeeded.kind])
    assert isinstance(entry.event, events.MoreApprovalsNeeded)
    assert "Only signatures with a key that people.yaml names" in entry.event.reason


@pytest.mark.parametrize("forged", ["", "of another plan"])
def test_approval_does_not_count_at_the_gate_when_its_row_was_altered(
    signing: Harness, olga: SshKey, forged: str
):
    run = _queue_approved(signing, olga)
    other = olga.sign(b"another plan\n") if forged else ""
    with signing.database.transaction() as tx:
        tx.sql.execute(update(tables.decision).values(signature=other))
    signing.run_queued_work()
    assert signing.get_run(run.id).state is State.REFUSED
    assert "does not confirm that olga approved it" in signing.get_run(run.id).summary
    assert signing.fleet.sent == []


def test_unsigned_approval_does_not_count_when_the_rule_comes_later(
    harness: Harness, tmp_path: Path
):
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    (harness.policies.path / "policy.cedar").write_text(get_signed_rules("approver"))
    harness.run_queued_work()
    assert harness.fleet.sent == []
    assert harness.get_run(run.id).state is not State.SUCCEEDED


def test_policy_is_refused_when_two_people_have_the_same_signing_key(
    signing: Harness, olga: SshKey
):
    _give_key(signing, "dora", olga.line)
    with pytest.raises(NoPolicyError, match=r"belongs to both dora and olga: each person signs"):
        signing.policies.get_policy()


def test_policy_is_refused_when_a_signing_key_is_of_a_kind_that_is_not_accepted(signing: Harness):
    _give_key(signing, "dora", "ssh-rsa AAAAB3NzaC1yc2E=")
    with pytest.raises(NoPolicyError, match="not rsa"):
        signing.policies.get_policy()


# --- requests ---


def test_requester_signs_before_the_approvers_where_both_have_to(tmp_path: Path):
    with open_harness(tmp_path, rules=get_signed_rules("both")) as harness:
        dora, olga = (SshKey.create(tmp_path, name=name) for name in ("dora", "olga"))
        _give_key(harness, "dora", dora.line)
        _give_key(harness, "olga", olga.line)
        run = harness.request(LAMP_ON)
        document = _get_document(run)
        with pytest.raises(InvalidRequestError, match="Dora Developer, who requested run"):
            _approve(harness, run, olga.sign(document))

        def sign(person: str, signature: str) -> Run:
            return harness.service.sign_request(
                run.id, person=person, digest=run.digest, signature=signature
            )

        with pytest.raises(NotAllowed, match="only Dora Developer"):
            sign("olga", olga.sign(document))
        with pytest.raises(InvalidRequestError, match="signing key of dora"):
            sign("dora", olga.sign(document))
        sign("dora", dora.sign(document))
        with pytest.raises(TooLate, match="already signed"):
            sign("dora", dora.sign(document))
        assert harness.get_run(run.id).state is State.PENDING
        assert _approve(harness, run, olga.sign(document)).state is State.SUCCEEDED
        assert "request signed" in harness.list_entry_kinds(run)


def test_run_waits_for_its_requester_until_it_is_signed_and_then_for_its_approvers(tmp_path: Path):
    with open_harness(tmp_path, rules=get_signed_rules("both")) as harness:
        dora, olga = (SshKey.create(tmp_path, name=name) for name in ("dora", "olga"))
        _give_key(harness, "dora", dora.line)
        _give_key(harness, "olga", olga.line)
        run = harness.request(LAMP_ON)
        assert _list_waiting(harness) == {"dora": {run.id}}
        harness.service.ask_question(run.id, person="olga", text="Why this lamp?")
        assert _list_waiting(harness) == {"dora": {run.id}}
        harness.service.sign_request(
            run.id, person="dora", digest=run.digest, signature=dora.sign(_get_document(run))
        )
        harness.service.answer_question(run.id, person="dora", text="The cellar is dark")
        assert _list_waiting(harness) == {"olga": {run.id}, "adam": {run.id}}
        # Another key counts no more: the requester signs again.
        _take_keys(harness)
        assert _list_waiting(harness) == {"dora": {run.id}}


def test_approval_from_before_the_rules_required_signatures_is_asked_for_again(tmp_path: Path):
    with open_harness(tmp_path) as harness:
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(get_starter_rules().replace('@approvals("1")', '@approvals("2")', 1))
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        assert _list_waiting(harness) == {"adam": {run.id}}
        _give_key(harness, "olga", SshKey.create(tmp_path, name="olga").line)
        rules.write_text(get_signed_rules("approver"))
        assert _list_waiting(harness) == {"adam": {run.id}, "olga": {run.id}}
        policy = harness.policies.get_policy()
        with harness.database.reading() as tx:
            # The run has what its rules required when it was planned.
            assert not runs.get_run(tx, run.id).requirements.requires_signature
            inbox = pending.read_inbox(tx, policy, "olga")
            view = build_run_view(tx, run.id, policy, Viewer("olga"))
        assert (inbox.next_to_sign, view.can_sign) == (run.id, True)
        assert view.run.requirements.requires_signature
        assert inbox.runs[0].requirements.requires_signature


def test_approvers_are_reminded_only_from_the_signature_of_the_requester_on(tmp_path: Path):
    with open_harness(tmp_path, rules=get_signed_rules("both")) as harness:
        dora = SshKey.create(tmp_path, name="dora")
        _give_key(harness, "dora", dora.line)
        run = harness.request(LAMP_ON)
        assert _remind(harness, run) == []
        harness.service.sign_request(
            run.id, person="dora", digest=run.digest, signature=dora.sign(_get_document(run))
        )
        assert harness.service.advancer.remind_approvers() == []
        assert _remind(harness, run) == [run.id]
        assert harness.list_entry_kinds(run)[-2:] == ["request signed", "reminded"]


def _remind(harness: Harness, run: Run) -> list[int]:
    """Remind the approvers as if the run were pending for an hour."""
    with harness.database.transaction() as tx:
        hour_ago = tx.now - 3600 * 1_000_000
        runs.amend_run(tx, runs.lock_run(tx, run.id), pending_since=hour_ago)
    return [one.id for one in harness.service.advancer.remind_approvers()]


def _list_waiting(harness: Harness) -> dict[str, set[int]]:
    """Return by person the runs of each inbox that has some. The badge counts the same."""
    policy = harness.policies.get_policy()
    found: dict[str, set[int]] = {}
    with harness.database.reading() as tx:
        counts = pending.count_waiting(tx, policy, policy.organisation.people)
        for person in policy.organisation.people:
            inbox = pending.read_inbox(tx, policy, person)
            assert counts[person] == inbox.count
            assert inbox.to_sign == {run.id for run in inbox.runs if run.requested_by == person}
            if inbox.runs:
                found[person] = {run.id for run in inbox.runs}
    return found


def test_gate_refuses_a_run_whose_requester_no_longer_has_the_key(tmp_path: Path):
    with open_harness(tmp_path, rules=get_signed_rules("both")) as harness:
        dora, olga = (SshKey.create(tmp_path, name=name) for name in ("dora", "olga"))
        _give_key(harness, "dora", dora.line)
        _give_key(harness, "olga", olga.line)
        run = harness.request(LAMP_ON)
        harness.service.sign_request(
            run.id, person="dora", digest=run.digest, signature=dora.sign(_get_document(run))
        )
        harness.service.approve_run(
            run.id, person="olga", digest=run.digest, signature=olga.sign(_get_document(run))
        )
        file = harness.policies.path / "people.yaml"
        newer = SshKey.create(tmp_path, name="newer")
        file.write_text(file.read_text().replace(dora.line, newer.line))
        harness.run_queued_work()
        assert (harness.get_run(run.id).state, harness.fleet.sent) == (State.PENDING, [])
        signature = newer.sign(_get_document(run))
        harness.service.sign_request(run.id, person="dora", digest=run.digest, signature=signature)
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("who", "sentence"),
    [
        ("approver", "Approvers sign the plan."),
        ("both", "You sign the plan first, and then the approvers."),
    ],
)
def test_preview_says_who_signs(tmp_path: Path, who: str, sentence: str):
    with open_harness(tmp_path, rules=get_signed_rules(who)) as harness:
        run = harness.request(LAMP_ON)
        request = build_policy_request(run, now=run.requested_at)
        assert sentence in evaluate_request(harness.policies.get_policy(), request).describe()


def test_signature_of_the_request_is_refused_where_no_rule_requires_it(
    signing: Harness, olga: SshKey
):
    run = signing.request(LAMP_ON)
    with pytest.raises(InvalidRequestError, match="does not require you to sign"):
        signing.service.sign_request(
            run.id, person="dora", digest=run.digest, signature=olga.sign(_get_document(run))
        )

"""Check signatures of people over plans: with which key of theirs, and over exactly this plan."""

from collections.abc import Sequence

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.audit.inclusion import list_vouched_entries
from bot.db import runs
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan
from bot.model.run import Decision, Run
from bot.policy import Policy
from bot.signing.assertion import PASSKEY_KIND, Assertion
from bot.signing.sshsig import (
    PLAN_NAMESPACE,
    PublicKey,
    SignatureError,
    verify_signature,
)

# The same whatever is wrong: who has signed nothing learns nothing of runs and people.
WRONG_PASSKEY_SIGNATURE = (
    "this is no signature of the plan of this run by a passkey that people.yaml names for this "
    "person: open the page again, or have the passkey added"
)


def check_plan_signature(
    policy: Policy, person: str, signature: str, plan: ResolvedPlan | None
) -> PublicKey:
    """Return the key with which this person signed this plan. Raises InvalidRequestError."""
    document = plan.document if plan else ""
    try:
        key = verify_signature(
            signature,
            document.encode(),
            namespace=PLAN_NAMESPACE,
            needs_verified_user=policy.organisation.verify_user,
        )
    except SignatureError as error:
        raise InvalidRequestError(f"the signature {error}") from None
    known = policy.find_person(person)
    if known is None or key not in known.signing_keys:
        raise InvalidRequestError(
            f"the signature is of the key {key.fingerprint}, which people.yaml does not name as a "
            f"signing key of {person}: sign with one that it names, or have it added"
        )
    return key


def find_passkey_signature(
    policy: Policy, person: str, assertion: Assertion, plan: ResolvedPlan | None
) -> str:
    """Return what a browser returned as the signature of this person over this plan.

    Raises InvalidRequestError if none of the person's passkeys made it.
    """
    known = policy.find_person(person)
    for key in known.signing_keys if known else ():
        if plan is None or key.kind != PASSKEY_KIND:
            continue
        signature = assertion.wrap(key)
        try:
            check_plan_signature(policy, person, signature, plan)
        except InvalidRequestError:
            continue
        return signature
    raise InvalidRequestError(WRONG_PASSKEY_SIGNATURE)


def list_signatures(tx: Transaction, run: Run) -> Sequence[str]:
    """Return the signatures over the plan of a run: of the requester, then of approvers."""
    requested = [
        event.signature
        for entry in change_log.list_entries_of_run(tx, run.id, [events.RequestSigned.kind])
        if isinstance(event := entry.event, events.RequestSigned) and event.digest == run.digest
    ]
    approved = [
        vote.signature
        for vote in runs.list_decisions(tx, run.id)
        if vote.approves and vote.digest == run.digest and vote.signature
    ]
    return [*requested, *approved]


def has_valid_signature(policy: Policy, decision: Decision, approved: Run) -> bool:
    """Return whether an approval is a signature over the plan, with a key that still counts."""
    return _is_plan_signed(policy, decision.person, decision.signature, approved)


def _is_plan_signed(policy: Policy, person: str, signature: str, run: Run) -> bool:
    if not signature or run.plan is None or not run.plan.has_digest(run.digest):
        return False
    try:
        check_plan_signature(policy, person, signature, run.plan)
    except InvalidRequestError:
        return False
    return True


def is_request_signed(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Return whether the requester has signed the plan, with a key that still counts."""
    logged = change_log.list_entries_of_run(tx, run.id, [events.RequestSigned.kind])
    return _has_request_signature(policy, run, list_vouched_entries(tx, logged))


def list_unsigned(tx: Transaction, policy: Policy, wanted: Sequence[Run]) -> frozenset[int]:
    """Return the numbers of those of the runs that is_request_signed() denies, read together."""
    logged = change_log.list_entries_of_runs(
        tx, [run.id for run in wanted], [events.RequestSigned.kind]
    )
    return frozenset(
        run.id
        for run in wanted
        if not _has_request_signature(
            policy, run, list_vouched_entries(tx, logged.get(run.id, ()))
        )
    )


def _has_request_signature(policy: Policy, run: Run, vouched: Sequence[Entry]) -> bool:
    return any(
        isinstance(event := entry.event, events.RequestSigned)
        and entry.person == run.requested_by
        and event.digest == run.digest
        and _is_plan_signed(policy, run.requested_by, event.signature, run)
        for entry in vouched
    )

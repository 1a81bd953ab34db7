"""The file of an offline plan: what people sign, their signatures, and what became of it. Pure.

docs/offline.md describes the format.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan, parse_plan
from bot.model.plan_text import PlanTextError
from bot.policy import Policy
from bot.signing.sshsig import PLAN_NAMESPACE, PublicKey, SignatureError, verify_signature
from connectors.errors import DomainError, ParseError
from connectors.run_signed import SignedTexts, parse_texts

# The name of the installation in offline plans. Their run is 0, which no run of a service is.
OFFLINE = "offline"
_HEAD = "keyturn-offline 1"
_MAX_LENGTH = 4 * 1024 * 1024


class OfflineRefused(DomainError):
    """A plan that is not made, signed or run. The message says why."""

    code, status = "refused", 403


@dataclass(frozen=True)
class PlanFile:
    """What the file holds."""

    texts: SignedTexts
    events: Sequence[str] = ()
    """What happened, a sentence each, once it ran."""

    @property
    def plan(self) -> ResolvedPlan:
        """The plan, from the bytes that people sign. Raises InvalidRequestError."""
        return parse_offline_plan(self.texts)

    def add_signature(self, signature: str) -> "PlanFile":
        signatures = (*self.texts.signatures, signature)
        return replace(self, texts=replace(self.texts, signatures=signatures))

    def format(self) -> str:
        events = [f"e {event}" for event in self.events]
        return "".join(f"{line}\n" for line in (_HEAD, *self.texts.lines, *events))


def parse_plan_file(text: str) -> PlanFile:
    """Return what a file holds. Raises InvalidRequestError."""
    if len(text) > _MAX_LENGTH:
        raise InvalidRequestError("this is no offline plan: it is larger than 4 MiB")
    # Mail programs write carriage returns; the format has none.
    head, *lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if head != _HEAD:
        raise InvalidRequestError(f"this is no offline plan: its first line is not “{_HEAD}”")
    events = [line[2:] for line in lines if line.startswith("e ")]
    try:
        texts = parse_texts([line for line in lines if not line.startswith("e ")])
    except ParseError as error:
        raise InvalidRequestError(f"this file cannot be read: {error}") from None
    return PlanFile(texts, events)


def parse_offline_plan(texts: SignedTexts) -> ResolvedPlan:
    """Return the plan of an offline document and its only section. Raises InvalidRequestError."""
    try:
        plan = parse_plan(texts.document, [texts.section])
    except PlanTextError as error:
        raise InvalidRequestError(str(error)) from None
    if (plan.run, plan.installation) != (0, OFFLINE) or len(plan.sections) != 1:
        raise InvalidRequestError("this is no offline plan for one host: do not sign it")
    return plan


@dataclass(frozen=True)
class PlanSigner:
    """One signature over a plan."""

    person: str
    key: PublicKey
    signature: str


def find_signer(policy: Policy, signature: str, plan: ResolvedPlan) -> PlanSigner:
    """Return who signed a plan with a key that people.yaml names. Raises InvalidRequestError."""
    try:
        key = verify_signature(
            signature,
            plan.document.encode(),
            namespace=PLAN_NAMESPACE,
            needs_verified_user=policy.organisation.verify_user,
        )
    except SignatureError as error:
        raise InvalidRequestError(f"a signature {error}") from None
    people = policy.organisation.people.values()
    owners = [one.id for one in people if key in one.signing_keys]
    if len(owners) != 1:
        raise InvalidRequestError(
            f"a signature is of the key {key.fingerprint}, which people.yaml names for "
            f"{len(owners) or 'no'} {'people' if owners else 'one'}"
        )
    return PlanSigner(owners[0], key, signature)

"""Stepping up: a second factor shown on the web, which counts for a few minutes in one session.

A chat account can be taken over by whoever runs the chat. So what the rules mark with @stepup, and
breaking the glass, takes something that no chat account has.
"""

import logging

from bot.audit import change_log
from bot.audit.evidence import STEPPED_UP_KIND
from bot.auth import second_factors, sessions, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.secret_box import CannotOpenError
from bot.auth.webauthn import KeyNotVerified, RelyingParty, StoredPublicKey
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.second_factor import is_factor_removed, is_factor_valid

log = logging.getLogger(__name__)

STEP_UP_REFUSED = "step-up refused"
# How often somebody may be wrong: with three codes good at a time, a guesser needs centuries.
_ATTEMPT_LIMITS = ((5, 15 * 60, "a quarter of an hour"), (20, 86400, "a day"))
# A code is good for two minutes at the most: nobody steps up more often meanwhile.
_MAX_STEP_UPS = 50
_SECOND = 1_000_000


class StepUpActions:
    """Raises Unfit if what was shown is not right, and NotYours if nothing would count."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def step_up_by_code(self, person: str, session: str, code: str) -> None:
        """Take the code that the person's authenticator app shows now."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            trouble = get_lockout_message(tx, person)
            mine = self._lock_valid_factors(tx, policy, person, totp.TOTP_KIND)
            found = None if trouble else self._find_factor_of_code(tx, mine, code)
            if not trouble and found is None:
                trouble = (
                    "This code is not right, or was used before. Wait for the next one, and see "
                    "that the clock of your phone is right."
                )
                _log_refusal(tx, person, "a code")
            if found is not None:
                factor, step = found
                _record_step_up(tx, session, factor, counter=step)
        if trouble:
            raise InvalidRequestError(trouble)

    def create_key_challenge(self, person: str, session: str, relying_party: RelyingParty) -> str:
        """Return what one of the person's keys is to sign, as JSON for the browser."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            mine = self._lock_valid_factors(tx, policy, person, webauthn.PASSKEY_KIND)
            challenge = sessions.create_challenge(tx, session)
            keys = [self._load_public_key(factor) for factor in mine]
        return webauthn.build_authentication_options(relying_party, challenge=challenge, keys=keys)

    def step_up_by_key(
        self, person: str, session: str, relying_party: RelyingParty, response: str
    ) -> None:
        """Take what a key has signed."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            trouble = get_lockout_message(tx, person)
            challenge = sessions.take_challenge(tx, session)
            mine = self._lock_valid_factors(tx, policy, person, webauthn.PASSKEY_KIND)
            found = next(
                (
                    f
                    for f in mine
                    if self._load_public_key(f).id == webauthn.parse_chosen_key_id(response)
                ),
                None,
            )
            if not trouble:
                trouble = self._step_up_if_signed(
                    tx, session, relying_party, response, challenge, found
                )
                if trouble:
                    _log_refusal(tx, person, "a key")
        if trouble:
            raise InvalidRequestError(trouble)

    def _step_up_if_signed(
        self,
        tx: Transaction,
        session: str,
        relying_party: RelyingParty,
        response: str,
        challenge: bytes | None,
        factor: SecondFactor | None,
    ) -> str:
        """Step up, or say why not."""
        if challenge is None:
            return "That took too long. Try it again."
        if factor is None:
            return "This key is not among those of yours that count."
        try:
            count = webauthn.verify_authentication(
                relying_party,
                response,
                challenge=challenge,
                key=self._load_public_key(factor),
                last_count=get_last_used_counter(tx, factor),
            )
        except KeyNotVerified as why:
            log.warning("a key of %s proved nothing: %s", factor.person, why)
            return "The key did not prove itself. Try it again."
        _record_step_up(tx, session, factor, counter=count)
        return ""

    def _lock_valid_factors(
        self, tx: Transaction, policy: Policy, person: str, kind: str
    ) -> list[SecondFactor]:
        """Return the person's factors of this kind that count, kept from being used meanwhile."""
        mine = [
            f
            for f in second_factors.lock_factors(tx, person)
            if f.kind == kind
            and is_factor_valid(policy, f)
            and not is_factor_removed(tx, f.digest)
        ]
        if not mine:
            raise NotAllowed("You have no second factor of this kind that counts yet.")
        return mine

    def _find_factor_of_code(
        self, tx: Transaction, factors: list[SecondFactor], code: str
    ) -> tuple[SecondFactor, int] | None:
        plain = code.replace(" ", "")
        for factor in factors:
            after = get_last_used_counter(tx, factor)
            step = totp.find_time_step(
                self._open_secret(factor), plain, now=tx.now, last_step=after
            )
            if step is not None:
                return factor, step
        return None

    def _load_public_key(self, factor: SecondFactor) -> StoredPublicKey:
        return StoredPublicKey.from_json(self._open_secret(factor))

    def _open_secret(self, factor: SecondFactor) -> str:
        try:
            return second_factors.open_factor_secret(self._context.secret_box, factor)
        except CannotOpenError:
            log.critical("factor %s of %s was altered in the database", factor.id, factor.person)
            raise NotAllowed(
                "Your second factor was altered in the database, so it counts no more. Tell "
                "whoever looks after Keyturn."
            ) from None


def get_lockout_message(tx: Transaction, person: str) -> str:
    """Say how long somebody who was wrong too often has to wait; "" if they need not."""
    for most, seconds, span in _ATTEMPT_LIMITS:
        since = tx.now - seconds * _SECOND
        wrong = change_log.list_newest_entries_of_kind(
            tx, STEP_UP_REFUSED, person=person, limit=most
        )
        if sum(entry.at > since for entry in wrong) >= most:
            return f"That was wrong {most} times within {span}: wait until that time is over."
    return ""


def _log_refusal(tx: Transaction, person: str, shown: str) -> None:
    change_log.append_entry(tx, STEP_UP_REFUSED, person=person, source="web", method=shown)


def get_last_used_counter(tx: Transaction, factor: SecondFactor) -> int:
    """Return up to which code or count it is used up, by its row or by the log: whoever puts its
    row back as it was makes no code good again."""
    told = change_log.list_newest_entries_of_kind(
        tx, STEPPED_UP_KIND, person=factor.person, limit=_MAX_STEP_UPS
    )
    counts = [e.facts.get("counter") for e in told if e.facts.get("factor") == factor.digest]
    return max([factor.last_counter, *(count for count in counts if isinstance(count, int))])


def _record_step_up(tx: Transaction, session: str, factor: SecondFactor, *, counter: int) -> None:
    second_factors.record_counter(tx, factor, counter=counter)
    sessions.record_step_up(tx, session, factor_digest=factor.digest)
    change_log.append_entry(
        tx,
        STEPPED_UP_KIND,
        person=factor.person,
        source="web",
        method=factor.kind,
        factor=factor.digest,
        counter=counter,
    )

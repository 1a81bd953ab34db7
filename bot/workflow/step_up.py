"""Step-up: a second factor entered on the web, which counts for a few minutes in one session.

An administrator of the chat service can take over chat accounts. Break-glass, and what the rules
mark with @stepup, therefore require a factor that no chat account has.
"""

import logging

from bot.audit import change_log, events
from bot.auth import second_factors, sessions, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.secret_box import CannotOpenError
from bot.auth.webauthn import KeyNotVerifiedError, RelyingParty, StoredPublicKey
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.times import SECOND
from bot.policy import Policy
from bot.queries.second_factor import is_factor_removed, is_factor_valid
from bot.workflow.context import WorkflowContext

log = logging.getLogger(__name__)

# The most failures for each period: with three valid codes at a time, guessing takes centuries.
_ATTEMPT_LIMITS = ((5, 15 * 60, "15 minutes"), (20, 86400, "a day"))
# A code is valid for two minutes at most; no one steps up more often within them.
_MAX_STEP_UPS = 50


class StepUpActions:
    """Verifies second factors.

    Methods raise InvalidRequestError if the factor is wrong, and NotAllowed if the person has no
    valid factor of the kind.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def step_up_by_code(self, person: str, session: str, code: str) -> None:
        """Verify the current code of the person's authenticator app."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            error = get_lockout_message(tx, person)
            factors = self._lock_valid_factors(tx, policy, person, totp.TOTP_KIND)
            found = None if error else self._find_factor_of_code(tx, factors, code)
            if not error and found is None:
                error = (
                    "The code is not correct, or was used before. Check the clock of your phone, "
                    "then enter the next code."
                )
                _log_refusal(tx, person, "a code")
            if found is not None:
                factor, step = found
                _record_step_up(tx, session, factor, counter=step)
        if error:
            raise InvalidRequestError(error)

    def create_key_challenge(self, person: str, session: str, relying_party: RelyingParty) -> str:
        """Return the challenge for one of the person's keys, as JSON for the browser."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            factors = self._lock_valid_factors(tx, policy, person, webauthn.PASSKEY_KIND)
            challenge = sessions.create_challenge(tx, session)
            keys = [self._load_public_key(factor) for factor in factors]
        return webauthn.build_authentication_options(relying_party, challenge=challenge, keys=keys)

    def step_up_by_key(
        self, person: str, session: str, relying_party: RelyingParty, response: str
    ) -> None:
        """Verify the signature of a key."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            error = get_lockout_message(tx, person)
            challenge = sessions.take_challenge(tx, session)
            factors = self._lock_valid_factors(tx, policy, person, webauthn.PASSKEY_KIND)
            found = next(
                (
                    f
                    for f in factors
                    if self._load_public_key(f).id == webauthn.parse_chosen_key_id(response)
                ),
                None,
            )
            if not error:
                error = self._step_up_if_signed(
                    tx, session, relying_party, response, challenge, found
                )
                if error:
                    _log_refusal(tx, person, "a key")
        if error:
            raise InvalidRequestError(error)

    def _step_up_if_signed(
        self,
        tx: Transaction,
        session: str,
        relying_party: RelyingParty,
        response: str,
        challenge: bytes | None,
        factor: SecondFactor | None,
    ) -> str:
        """Step up, or return why not."""
        if challenge is None:
            return "That took too long. Try again."
        if factor is None:
            return "This key is not one of your valid second factors."
        try:
            count = webauthn.verify_authentication(
                relying_party,
                response,
                challenge=challenge,
                key=self._load_public_key(factor),
                last_count=get_last_used_counter(tx, factor),
            )
        except KeyNotVerifiedError as error:
            log.warning("a key of %s failed verification: %s", factor.person, error)
            return "The key could not be verified. Try again."
        _record_step_up(tx, session, factor, counter=count)
        return ""

    def _lock_valid_factors(
        self, tx: Transaction, policy: Policy, person: str, kind: str
    ) -> list[SecondFactor]:
        """Lock and return the person's valid factors of this kind."""
        factors = [
            f
            for f in second_factors.lock_factors(tx, person)
            if f.kind == kind
            and is_factor_valid(policy, f)
            and not is_factor_removed(tx, f.digest)
        ]
        if not factors:
            raise NotAllowed(
                "You have no valid second factor of this kind: enrol one, and have it confirmed."
            )
        return factors

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
                "Your second factor was altered in the database, so it is not valid any more. "
                "Contact your Keyturn administrator."
            ) from None


def get_lockout_message(tx: Transaction, person: str) -> str:
    """Return how long a person with too many failures has to wait; "" if they need not."""
    for most, seconds, span in _ATTEMPT_LIMITS:
        since = tx.now - seconds * SECOND
        failures = change_log.list_newest_entries_of_kind(
            tx, events.StepUpRefused.kind, person=person, limit=most
        )
        if sum(entry.at > since for entry in failures) >= most:
            return f"Too many wrong attempts ({most} within {span}): try again later."
    return ""


def _log_refusal(tx: Transaction, person: str, shown: str) -> None:
    change_log.append_entry(tx, events.StepUpRefused(source="web", method=shown), person=person)


def get_last_used_counter(tx: Transaction, factor: SecondFactor) -> int:
    """Return the highest counter used, by the factor's row and by the log.

    The log prevents a used code from being valid again after the row was restored.
    """
    entries = change_log.list_newest_entries_of_kind(
        tx, events.SteppedUp.kind, person=factor.person, limit=_MAX_STEP_UPS
    )
    counts = [
        event.counter
        for event in (entry.event for entry in entries)
        if isinstance(event, events.SteppedUp) and event.factor == factor.digest
    ]
    return max([factor.last_counter, *counts])


def _record_step_up(tx: Transaction, session: str, factor: SecondFactor, *, counter: int) -> None:
    second_factors.record_counter(tx, factor, counter=counter)
    sessions.record_step_up(tx, session, factor_digest=factor.digest)
    change_log.append_entry(
        tx,
        events.SteppedUp(source="web", method=factor.kind, factor=factor.digest, counter=counter),
        person=factor.person,
    )

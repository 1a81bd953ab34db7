"""Enrol, confirm and remove second factors.

Anyone with a person's chat account can sign in and enrol an app or a key. A factor is therefore
valid only once it is confirmed: the policy directory contains its digest, or an owner with a valid
second factor has compared the digest with its person and confirmed it.
"""

from bot.audit import change_log, events
from bot.auth import second_factors, sessions, totp, webauthn
from bot.auth.second_factors import SecondFactor
from bot.auth.secret_box import CannotOpenError
from bot.auth.webauthn import KeyNotVerifiedError, RelyingParty, StoredPublicKey
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired
from bot.policy import Policy
from bot.queries.second_factor import get_shown_factor, is_area_owner
from bot.workflow.context import WorkflowContext
from bot.workflow.step_up import get_lockout_message

_MAX_FACTORS = 5


class FactorEnrolment:
    """What people may do about their second factors."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def begin_app_enrolment(self, person: str) -> SecondFactor:
        """Create the secret for an authenticator app. Replaces an unfinished enrolment."""
        secret = totp.create_secret()
        with self._context.database.transaction() as tx:
            self._make_room(tx, person)
            return second_factors.add_factor(
                tx,
                self._context.secret_box,
                person=person,
                kind=totp.TOTP_KIND,
                digest=totp.hash_secret(secret),
                secret=secret,
            )

    def get_app_secret(self, person: str, number: int) -> str:
        """Return the secret of an app whose first code was not entered yet; never afterwards."""
        with self._context.database.reading() as tx:
            factor = next(
                (f for f in second_factors.list_factors(tx, person) if f.id == number), None
            )
        if factor is None or factor.verified_at is not None or factor.kind != totp.TOTP_KIND:
            raise InvalidRequestError("this app is already enrolled, or was removed: start again")
        try:
            return second_factors.open_factor_secret(self._context.secret_box, factor)
        except CannotOpenError:
            raise InvalidRequestError(
                "this app was altered in the database: start again"
            ) from None

    def finish_app_enrolment(self, person: str, number: int, code: str) -> SecondFactor:
        """Verify the first code, which proves that the app has the secret."""
        secret = self.get_app_secret(person, number)
        with self._context.database.transaction() as tx:
            factor = second_factors.find_factor(tx, number)
            error = get_lockout_message(tx, person)
            plain = code.replace(" ", "")
            step = None if error else totp.find_time_step(secret, plain, now=tx.now, last_step=0)
            if factor is not None and step is not None:
                second_factors.mark_verified(tx, factor, counter=step)
                _log_factor(tx, events.FactorEnrolled, factor, person)
                return factor
            if not error:
                change_log.append_entry(
                    tx, events.StepUpRefused(source="web", method="a first code"), person=person
                )
        raise InvalidRequestError(
            error
            or "The code is not correct. Check the clock of your phone, then enter the next code."
        )

    def begin_key_enrolment(self, person: str, session: str, relying_party: RelyingParty) -> str:
        """Return the options with which the browser creates a key, as JSON."""
        known = self._context.policies.get_policy().find_person(person)
        with self._context.database.transaction() as tx:
            mine = [
                f
                for f in second_factors.list_factors(tx, person)
                if f.kind == webauthn.PASSKEY_KIND
            ]
            challenge = sessions.create_challenge(tx, session)
        keys = [
            StoredPublicKey.from_json(
                second_factors.open_factor_secret(self._context.secret_box, factor)
            )
            for factor in mine
        ]
        name = known.name if known else person
        return webauthn.build_registration_options(
            relying_party, person=person, name=name, challenge=challenge, known_keys=keys
        )

    def finish_key_enrolment(
        self, person: str, session: str, relying_party: RelyingParty, response: str
    ) -> SecondFactor:
        """Verify and store the public key of a new key."""
        with self._context.database.transaction() as tx:
            challenge = sessions.take_challenge(tx, session)
        if challenge is None:
            raise InvalidRequestError("That took too long. Try again.")
        try:
            key, count = webauthn.verify_registration(relying_party, response, challenge=challenge)
        except KeyNotVerifiedError:
            raise InvalidRequestError("The key could not be enrolled. Try again.") from None
        with self._context.database.transaction() as tx:
            self._make_room(tx, person)
            factor = second_factors.add_factor(
                tx,
                self._context.secret_box,
                person=person,
                kind=webauthn.PASSKEY_KIND,
                digest=key.digest,
                secret=key.to_json(),
            )
            second_factors.mark_verified(tx, factor, counter=count)
            _log_factor(tx, events.FactorEnrolled, factor, person)
        return factor

    def confirm_factor(self, person: str, session: str, number: int, digest: str) -> SecondFactor:
        """Confirm another person's factor by the digest that they read out."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            factor = second_factors.find_factor(tx, number)
            if factor is None or factor.verified_at is None:
                raise InvalidRequestError("this factor does not exist any more: reload the page")
            self._check_can_confirm(tx, policy, person, session, factor)
            if not is_same_digest(digest, factor.digest):
                raise InvalidRequestError(
                    "these are not the first ten digits of that factor: ask its person to "
                    "read them to you, and never confirm digits that someone else has sent you"
                )
            if not factor.confirmed_by:
                second_factors.confirm_factor(
                    tx, self._context.secret_box, factor, confirmed_by=person
                )
                _log_factor(tx, events.FactorConfirmed, factor, person)
        return factor

    def remove_factor(self, person: str, number: int) -> SecondFactor:
        """Remove the person's own factor or, as an owner, anyone's."""
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            factor = second_factors.find_factor(tx, number)
            if factor is None:
                raise InvalidRequestError("this factor does not exist any more")
            if factor.person != person and not is_area_owner(policy, person):
                raise NotAllowed("only its person, or an owner of an area, can remove it")
            second_factors.remove_factor(tx, factor)
            _log_factor(tx, events.FactorRemoved, factor, person)
        return factor

    def _make_room(self, tx: Transaction, person: str) -> None:
        """Remove unfinished enrolments; refuse to exceed the limit of factors."""
        mine = second_factors.lock_factors(tx, person)
        for factor in mine:
            if factor.verified_at is None:
                second_factors.remove_factor(tx, factor)
        if sum(factor.verified_at is not None for factor in mine) >= _MAX_FACTORS:
            raise InvalidRequestError(f"you have {_MAX_FACTORS} second factors: remove one first")

    def _check_can_confirm(
        self, tx: Transaction, policy: Policy, person: str, session: str, factor: SecondFactor
    ) -> None:
        if factor.person == person:
            raise NotAllowed(
                "you cannot confirm your own factor: ask an owner to confirm it, or to add its "
                "digest to the policy directory"
            )
        if not is_area_owner(policy, person):
            raise NotAllowed(
                "only an owner of an area can confirm it, or add its digest to the policy"
            )
        if not get_shown_factor(tx, policy, person=person, session=session):
            raise StepUpRequired("Enter your own second factor first.")


def is_same_digest(typed: str, digest: str) -> bool:
    """Return whether the typed text is at least the first ten digits; spaces are ignored."""
    plain = "".join(typed.split()).lower()
    return len(plain) >= 10 and digest.startswith(plain)


def _log_factor(
    tx: Transaction,
    event_type: type[events.FactorEnrolled | events.FactorConfirmed | events.FactorRemoved],
    factor: SecondFactor,
    person: str,
) -> None:
    event = event_type(source="web", owner=factor.person, method=factor.kind, factor=factor.digest)
    change_log.append_entry(tx, event, person=person)

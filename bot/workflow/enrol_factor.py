"""Enrolling: how something becomes somebody's second factor.

Whoever has a chat account can sign in and show us an app or a key. It counts only once somebody
else has vouched for it: the policy directory names its digest, or another person, who is an owner
and shows a second factor of their own that counts, has compared the digest and confirmed it.
"""

from bot.audit import change_log
from bot.auth import second_factors, sessions, totp, webauthn
from bot.auth.second_factors import Factor
from bot.auth.secret_box import DoesNotOpen
from bot.auth.webauthn import KeyScope, NotProven, PublicKey
from bot.db.database import Transaction
from bot.policy import Policy
from bot.workflow.approvals import NotAllowed, StepUpRequired
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest
from bot.workflow.second_factor import REMOVED, get_shown_factor, is_owner
from bot.workflow.step_up import REFUSED, why_wait

_MOST = 5


class FactorEnrolment:
    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def begin_app(self, person: str) -> Factor:
        """Make the secret for an authenticator app. Another that was begun is forgotten."""
        secret = totp.new_secret()
        with self._parts.database.transaction() as tx:
            self._room(tx, person)
            return second_factors.add_factor(
                tx,
                self._parts.safe,
                person=person,
                kind=totp.KIND,
                digest=totp.hash_secret(secret),
                secret=secret,
            )

    def secret(self, person: str, number: int) -> str:
        """Return the secret of an app that has not yet shown a code; never afterwards."""
        with self._parts.database.reading() as tx:
            factor = next(
                (f for f in second_factors.list_factors(tx, person) if f.id == number), None
            )
        if factor is None or factor.proven is not None or factor.kind != totp.KIND:
            raise InvalidRequest("this app is enrolled already, or not any more: begin anew")
        try:
            return second_factors.open_secret(self._parts.safe, factor)
        except DoesNotOpen:
            raise InvalidRequest("this app was altered in the database: begin anew") from None

    def finish_app(self, person: str, number: int, code: str) -> Factor:
        """Take the first code, which shows that the app has the secret."""
        secret = self.secret(person, number)
        with self._parts.database.transaction() as tx:
            factor = second_factors.get_factor(tx, number)
            trouble = why_wait(tx, person)
            plain = code.replace(" ", "")
            step = None if trouble else totp.find_time_step(secret, plain, now=tx.now, after=0)
            if factor is not None and step is not None:
                second_factors.mark_proven(tx, factor, used=step)
                _log(tx, "factor enrolled", factor, person)
                return factor
            if not trouble:
                change_log.append_entry(tx, REFUSED, person=person, door="web", by="a first code")
        raise InvalidRequest(
            trouble
            or "This code is not right. Wait for the next one, and see that the clock of your "
            "phone is right."
        )

    def begin_key(self, person: str, session: str, home: KeyScope) -> str:
        """Return what the browser needs to make a key, as JSON."""
        known = self._parts.policies.current().person(person)
        with self._parts.database.transaction() as tx:
            mine = [f for f in second_factors.list_factors(tx, person) if f.kind == webauthn.KIND]
            challenge = sessions.create_challenge(tx, session)
        keys = [
            PublicKey.from_json(second_factors.open_secret(self._parts.safe, factor))
            for factor in mine
        ]
        name = known.name if known else person
        return webauthn.registration_options(
            home, person=person, name=name, challenge=challenge, known=keys
        )

    def finish_key(self, person: str, session: str, home: KeyScope, answer: str) -> Factor:
        """Take the public half of a new key."""
        with self._parts.database.transaction() as tx:
            challenge = sessions.take_challenge(tx, session)
        if challenge is None:
            raise InvalidRequest("That took too long. Try it again.")
        try:
            key, count = webauthn.verify_registration(home, answer, challenge=challenge)
        except NotProven:
            raise InvalidRequest("The key could not be enrolled. Try it again.") from None
        with self._parts.database.transaction() as tx:
            self._room(tx, person)
            factor = second_factors.add_factor(
                tx,
                self._parts.safe,
                person=person,
                kind=webauthn.KIND,
                digest=key.digest,
                secret=key.to_json(),
            )
            second_factors.mark_proven(tx, factor, used=count)
            _log(tx, "factor enrolled", factor, person)
        return factor

    def confirm(self, person: str, session: str, number: int, digest: str) -> Factor:
        """Vouch for somebody else's factor, by the digest that they told you themselves."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            factor = second_factors.get_factor(tx, number)
            if factor is None or factor.proven is None:
                raise InvalidRequest("this factor is not there any more: look at the page again")
            self._may_confirm(tx, policy, person, session, factor)
            if not is_same_digest(digest, factor.digest):
                raise InvalidRequest(
                    "these are not the first ten digits of that factor: have its owner read them "
                    "to you, and confirm nothing that somebody else has sent you"
                )
            if not factor.confirmed_by:
                second_factors.confirm_factor(tx, self._parts.safe, factor, by=person)
                _log(tx, "factor confirmed", factor, person)
        return factor

    def remove(self, person: str, number: int) -> Factor:
        """Forget a factor of one's own, or, as an owner, of anybody."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            factor = second_factors.get_factor(tx, number)
            if factor is None:
                raise InvalidRequest("this factor is not there any more")
            if factor.person != person and not is_owner(policy, person):
                raise NotAllowed("only its owner, or an owner of an area, can remove it")
            second_factors.remove_factor(tx, factor)
            _log(tx, REMOVED, factor, person)
        return factor

    def _room(self, tx: Transaction, person: str) -> None:
        """Forget what was begun and not finished; refuse more than anybody needs."""
        mine = second_factors.lock_factors(tx, person)
        for factor in mine:
            if factor.proven is None:
                second_factors.remove_factor(tx, factor)
        if sum(factor.proven is not None for factor in mine) >= _MOST:
            raise InvalidRequest(f"you have {_MOST} second factors: remove one first")

    def _may_confirm(
        self, tx: Transaction, policy: Policy, person: str, session: str, factor: Factor
    ) -> None:
        if factor.person == person:
            raise NotAllowed("nobody confirms their own: an owner does, or the policy directory")
        if not is_owner(policy, person):
            raise NotAllowed("an owner of an area can confirm it, or the policy directory")
        if not get_shown_factor(tx, policy, person=person, session=session):
            raise StepUpRequired("Show your own second factor first.")


def is_same_digest(said: str, digest: str) -> bool:
    """Say whether these are the digest's first ten digits or more, however they are spaced."""
    plain = "".join(said.split()).lower()
    return len(plain) >= 10 and digest.startswith(plain)


def _log(tx: Transaction, what: str, factor: Factor, person: str) -> None:
    change_log.append_entry(
        tx, what, person=person, door="web", of=factor.person, by=factor.kind, factor=factor.digest
    )

"""Enrolling: how something becomes somebody's second factor.

Whoever has a chat account can sign in and show us an app or a key. It counts only once somebody
else has vouched for it: the policy directory names its digest, or another person, who is an owner
and shows a second factor of their own that counts, has compared the digest and confirmed it.
"""

from bot.factor import passkey, totp
from bot.factor.passkey import Home, Key, Unproven
from bot.policy import Policy
from bot.store import changelog, factors, signins
from bot.store.database import Transaction
from bot.store.factors import Factor
from bot.store.safe import DoesNotOpen
from bot.workflow.asking import Unfit
from bot.workflow.deciding import NotYours, StepUpFirst
from bot.workflow.parts import Parts
from bot.workflow.second_factor import is_owner, shown
from bot.workflow.stepping_up import REFUSED, too_often

_MOST = 5


class Enrolling:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def begin_app(self, person: str) -> Factor:
        """Make the secret for an authenticator app. Another that was begun is forgotten."""
        secret = totp.new_secret()
        with self._parts.database.transaction() as tx:
            self._room(tx, person)
            return factors.add(
                tx,
                self._parts.safe,
                person=person,
                kind=totp.KIND,
                digest=totp.digest(secret),
                secret=secret,
            )

    def secret(self, person: str, number: int) -> str:
        """Return the secret of an app that has not yet shown a code; never afterwards."""
        with self._parts.database.reading() as tx:
            factor = next((f for f in factors.of(tx, person) if f.id == number), None)
        if factor is None or factor.proven is not None or factor.kind != totp.KIND:
            raise Unfit("this app is enrolled already, or not any more: begin anew")
        try:
            return factors.secret(self._parts.safe, factor)
        except DoesNotOpen:
            raise Unfit("this app was altered in the database: begin anew") from None

    def finish_app(self, person: str, number: int, code: str) -> Factor:
        """Take the first code, which shows that the app has the secret."""
        secret = self.secret(person, number)
        with self._parts.database.transaction() as tx:
            factor = factors.get(tx, number)
            trouble = too_often(tx, person)
            plain = code.replace(" ", "")
            step = None if trouble else totp.step_of(secret, plain, now=tx.now, after=0)
            if factor is not None and step is not None:
                factors.prove(tx, factor, used=step)
                _log(tx, "factor enrolled", factor, person)
                return factor
            if not trouble:
                changelog.append(tx, REFUSED, person=person, door="web", by="a first code")
        raise Unfit(
            trouble
            or "This code is not right. Wait for the next one, and see that the clock of your "
            "phone is right."
        )

    def begin_key(self, person: str, session: str, home: Home) -> str:
        """Return what the browser needs to make a key, as JSON."""
        known = self._parts.policies.current().person(person)
        with self._parts.database.transaction() as tx:
            mine = [f for f in factors.of(tx, person) if f.kind == passkey.KIND]
            challenge = signins.new_challenge(tx, session)
        keys = [Key.from_json(factors.secret(self._parts.safe, factor)) for factor in mine]
        name = known.name if known else person
        return passkey.enrolment(home, person=person, name=name, challenge=challenge, known=keys)

    def finish_key(self, person: str, session: str, home: Home, answer: str) -> Factor:
        """Take the public half of a new key."""
        with self._parts.database.transaction() as tx:
            challenge = signins.take_challenge(tx, session)
        if challenge is None:
            raise Unfit("That took too long. Try it again.")
        try:
            key, count = passkey.enrolled(home, answer, challenge=challenge)
        except Unproven:
            raise Unfit("The key could not be enrolled. Try it again.") from None
        with self._parts.database.transaction() as tx:
            self._room(tx, person)
            factor = factors.add(
                tx,
                self._parts.safe,
                person=person,
                kind=passkey.KIND,
                digest=key.digest,
                secret=key.to_json(),
            )
            factors.prove(tx, factor, used=count)
            _log(tx, "factor enrolled", factor, person)
        return factor

    def confirm(self, person: str, session: str, number: int, digest: str) -> Factor:
        """Vouch for somebody else's factor, by the digest that they told you themselves."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            factor = factors.get(tx, number)
            if factor is None or factor.proven is None:
                raise Unfit("this factor is not there any more: look at the page again")
            self._may_confirm(tx, policy, person, session, factor)
            if not same_digest(digest, factor.digest):
                raise Unfit(
                    "these are not the first ten digits of that factor: have its owner read them "
                    "to you, and confirm nothing that somebody else has sent you"
                )
            if not factor.confirmed_by:
                factors.confirm(tx, self._parts.safe, factor, by=person)
                _log(tx, "factor confirmed", factor, person)
        return factor

    def remove(self, person: str, number: int) -> Factor:
        """Forget a factor of one's own, or, as an owner, of anybody."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            factor = factors.get(tx, number)
            if factor is None:
                raise Unfit("this factor is not there any more")
            if factor.person != person and not is_owner(policy, person):
                raise NotYours("only its owner, or an owner of an area, can remove it")
            factors.remove(tx, factor)
            _log(tx, "factor removed", factor, person)
        return factor

    def _room(self, tx: Transaction, person: str) -> None:
        """Forget what was begun and not finished; refuse more than anybody needs."""
        mine = factors.hold(tx, person)
        for factor in mine:
            if factor.proven is None:
                factors.remove(tx, factor)
        if sum(factor.proven is not None for factor in mine) >= _MOST:
            raise Unfit(f"you have {_MOST} second factors: remove one first")

    def _may_confirm(
        self, tx: Transaction, policy: Policy, person: str, session: str, factor: Factor
    ) -> None:
        if factor.person == person:
            raise NotYours("nobody confirms their own: an owner does, or the policy directory")
        if not is_owner(policy, person):
            raise NotYours("an owner of an area can confirm it, or the policy directory")
        if not shown(tx, policy, person=person, session=session):
            raise StepUpFirst("Show your own second factor first.")


def same_digest(said: str, digest: str) -> bool:
    """Say whether these are the digest's first ten digits or more, however they are spaced."""
    plain = "".join(said.split()).lower()
    return len(plain) >= 10 and digest.startswith(plain)


def _log(tx: Transaction, what: str, factor: Factor, person: str) -> None:
    changelog.append(
        tx, what, person=person, door="web", of=factor.person, by=factor.kind, factor=factor.digest
    )

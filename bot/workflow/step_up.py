"""Stepping up: a second factor shown on the web, which counts for a few minutes in one session.

A chat account can be taken over by whoever runs the chat. So what the rules mark with @stepup, and
breaking the glass, takes something that no chat account has.
"""

import logging

from bot.audit import change_log
from bot.audit.evidence import STEPPED_UP
from bot.auth import second_factors, sessions, totp, webauthn
from bot.auth.second_factors import Factor
from bot.auth.secret_box import DoesNotOpen
from bot.auth.webauthn import KeyScope, NotProven, PublicKey
from bot.db.database import Transaction
from bot.policy import Policy
from bot.workflow.approvals import NotAllowed
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest
from bot.workflow.second_factor import is_factor_removed, is_factor_valid

log = logging.getLogger(__name__)

REFUSED = "step-up refused"
# How often somebody may be wrong: with three codes good at a time, a guesser needs centuries.
_MOST_WRONG = ((5, 15 * 60, "a quarter of an hour"), (20, 86400, "a day"))
# A code is good for two minutes at the most: nobody steps up more often meanwhile.
_PAST = 50
_SECOND = 1_000_000


class StepUp:
    """Raises Unfit if what was shown is not right, and NotYours if nothing would count."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def by_code(self, person: str, session: str, code: str) -> None:
        """Take the code that the person's authenticator app shows now."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            trouble = why_wait(tx, person)
            mine = self._usable(tx, policy, person, totp.KIND)
            found = None if trouble else self._fits(tx, mine, code)
            if not trouble and found is None:
                trouble = (
                    "This code is not right, or was used before. Wait for the next one, and see "
                    "that the clock of your phone is right."
                )
                _refuse(tx, person, "a code")
            if found is not None:
                factor, step = found
                _step_up(tx, session, factor, used=step)
        if trouble:
            raise InvalidRequest(trouble)

    def question(self, person: str, session: str, home: KeyScope) -> str:
        """Return what one of the person's keys is to sign, as JSON for the browser."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            mine = self._usable(tx, policy, person, webauthn.KIND)
            challenge = sessions.create_challenge(tx, session)
            keys = [self._key(factor) for factor in mine]
        return webauthn.authentication_options(home, challenge=challenge, keys=keys)

    def by_key(self, person: str, session: str, home: KeyScope, answer: str) -> None:
        """Take what a key has signed."""
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            trouble = why_wait(tx, person)
            challenge = sessions.take_challenge(tx, session)
            mine = self._usable(tx, policy, person, webauthn.KIND)
            found = next(
                (f for f in mine if self._key(f).id == webauthn.chosen_key_id(answer)), None
            )
            if not trouble:
                trouble = self._signed(tx, session, home, answer, challenge, found)
                if trouble:
                    _refuse(tx, person, "a key")
        if trouble:
            raise InvalidRequest(trouble)

    def _signed(
        self,
        tx: Transaction,
        session: str,
        home: KeyScope,
        answer: str,
        challenge: bytes | None,
        found: Factor | None,
    ) -> str:
        """Step up, or say why not."""
        if challenge is None:
            return "That took too long. Try it again."
        if found is None:
            return "This key is not among those of yours that count."
        try:
            count = webauthn.verify_authentication(
                home,
                answer,
                challenge=challenge,
                key=self._key(found),
                count=get_used_up(tx, found),
            )
        except NotProven as why:
            log.warning("a key of %s proved nothing: %s", found.person, why)
            return "The key did not prove itself. Try it again."
        _step_up(tx, session, found, used=count)
        return ""

    def _usable(self, tx: Transaction, policy: Policy, person: str, kind: str) -> list[Factor]:
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

    def _fits(self, tx: Transaction, mine: list[Factor], code: str) -> tuple[Factor, int] | None:
        plain = code.replace(" ", "")
        for factor in mine:
            after = get_used_up(tx, factor)
            step = totp.find_time_step(self._secret(factor), plain, now=tx.now, after=after)
            if step is not None:
                return factor, step
        return None

    def _key(self, factor: Factor) -> PublicKey:
        return PublicKey.from_json(self._secret(factor))

    def _secret(self, factor: Factor) -> str:
        try:
            return second_factors.open_secret(self._parts.safe, factor)
        except DoesNotOpen:
            log.critical("factor %s of %s was altered in the database", factor.id, factor.person)
            raise NotAllowed(
                "Your second factor was altered in the database, so it counts no more. Tell "
                "whoever looks after Keyturn."
            ) from None


def why_wait(tx: Transaction, person: str) -> str:
    """Say how long somebody who was wrong too often has to wait; "" if they need not."""
    for most, seconds, span in _MOST_WRONG:
        since = tx.now - seconds * _SECOND
        wrong = change_log.list_latest_of_kind(tx, REFUSED, person=person, most=most)
        if sum(entry.at > since for entry in wrong) >= most:
            return f"That was wrong {most} times within {span}: wait until that time is over."
    return ""


def _refuse(tx: Transaction, person: str, what: str) -> None:
    change_log.append_entry(tx, REFUSED, person=person, door="web", by=what)


def get_used_up(tx: Transaction, factor: Factor) -> int:
    """Return up to which code or count it is used up, by its row or by the log: whoever puts its
    row back as it was makes no code good again."""
    told = change_log.list_latest_of_kind(tx, STEPPED_UP, person=factor.person, most=_PAST)
    counts = [e.facts.get("used") for e in told if e.facts.get("factor") == factor.digest]
    return max([factor.used, *(count for count in counts if isinstance(count, int))])


def _step_up(tx: Transaction, session: str, factor: Factor, *, used: int) -> None:
    second_factors.mark_used(tx, factor, used=used)
    sessions.record_step_up(tx, session, factor=factor.digest)
    change_log.append_entry(
        tx,
        STEPPED_UP,
        person=factor.person,
        door="web",
        by=factor.kind,
        factor=factor.digest,
        used=used,
    )

"""Tokens: made by their people for programs of theirs, and revoked."""

from collections.abc import Sequence

from bot.audit import change_log, followed_log
from bot.auth import tokens
from bot.auth.tokens import NoSuchToken, Token
from bot.db.database import Transaction
from bot.model.plain_text import fold_text
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest, NoSuchPerson
from connectors.command import InvisibleCharacterError, quote_text

# Each further one of the first three lets its holder read as well.
SCOPES = {
    "read": "look at everything that the pages show",
    "ask": "ask for runs and schedules, take them back and stop them",
    "approve": "approve and deny, where no rule wants a second factor",
    "metrics": "read the metrics, and nothing else",
}
LONGEST_DAYS = 366
_DAY = 86400 * 1_000_000
_LONGEST_NAME = 60
_MOST = 50


class Tokens:
    """door: web or cli. Raises Unfit, NotYours and TooLate."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def make(
        self, *, person: str, scopes: Sequence[str], days: int, name: str = "", door: str
    ) -> tuple[Token, str]:
        """Return what is known of a new token, and the token itself: nobody can tell it again."""
        policy, name = self._parts.policies.current(), _named(name)
        if policy.person(person) is None:
            raise NoSuchPerson(person)
        wanted = _scopes(scopes)
        if not 1 <= days <= LONGEST_DAYS:
            raise InvalidRequest(f"a token is good for 1 to {LONGEST_DAYS} days, not {days}")
        with self._parts.database.transaction() as tx:
            if sum(one.holds(tx.now) for one in tokens.list_tokens(tx, person)) >= _MOST:
                raise InvalidRequest(
                    f"{person} has {_MOST} tokens already: revoke those that nobody uses"
                )
            expires = tx.now + days * _DAY
            made, whole = tokens.add_token(
                tx, person=person, scopes=wanted, name=name, expires=expires
            )
            _log(tx, tokens.MADE, made, person, door, days)
        return made, whole

    def revoke(self, number: int, *, person: str, door: str) -> Token:
        """Let a token open nothing any more. person: whose it is; "" on the command line."""
        with self._parts.database.transaction() as tx:
            try:
                found = tokens.lock_token(tx, number)
            except NoSuchToken as unknown:
                raise InvalidRequest(str(unknown)) from None
            if person and found.person != person:
                raise NotAllowed(f"token {number} is somebody else's")
            if not found.holds(tx.now):
                raise TooLate(f"token {number} opens nothing already")
            tokens.revoke_token(tx, number)
            _log(tx, tokens.REVOKED, found, person, door)
            # Known from now on, so that it holds where the entry is taken out.
            followed_log.follow_log(tx)
        return found


def _scopes(given: Sequence[str]) -> list[str]:
    strange = [scope for scope in given if scope not in SCOPES]
    if strange or not given:
        asked = (
            f"there is no scope {quote_text(strange[0])}"
            if strange
            else "a token is for something"
        )
        raise InvalidRequest(f"{asked}: choose of {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in given]


def _named(name: str) -> str:
    try:
        plain = fold_text(name)
    except InvisibleCharacterError as unclean:
        raise InvalidRequest(f"the name {unclean}") from None
    if len(plain) > _LONGEST_NAME:
        raise InvalidRequest(f"the name has {len(plain)} characters: say it in {_LONGEST_NAME}")
    return plain


def _log(
    tx: Transaction, what: str, token: Token, person: str, door: str, days: int | None = None
) -> None:
    change_log.append_entry(
        tx,
        what,
        person=person,
        whose=token.person,
        token=token.prefix,
        scopes=token.scopes,
        name=token.name,
        days=days,
        door=door,
    )

"""Tokens: made by their people for programs of theirs, and revoked."""

from collections.abc import Sequence

from bot.store import changelog, tokens
from bot.store.database import Transaction
from bot.store.tokens import NoSuchToken, Token
from bot.text import fold_text
from bot.workflow.asking import NoSuchPerson, Unfit
from bot.workflow.deciding import NotYours, TooLate
from bot.workflow.parts import Parts
from connectors.command import UncleanText, quote_text

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

    def __init__(self, parts: Parts) -> None:
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
            raise Unfit(f"a token is good for 1 to {LONGEST_DAYS} days, not {days}")
        with self._parts.database.transaction() as tx:
            if sum(one.holds(tx.now) for one in tokens.listed(tx, person)) >= _MOST:
                raise Unfit(f"{person} has {_MOST} tokens already: revoke those that nobody uses")
            expires = tx.now + days * _DAY
            made, whole = tokens.add(tx, person=person, scopes=wanted, name=name, expires=expires)
            _log(tx, tokens.MADE, made, person, door, days)
        return made, whole

    def revoke(self, number: int, *, person: str, door: str) -> Token:
        """Let a token open nothing any more. person: whose it is; "" on the command line."""
        with self._parts.database.transaction() as tx:
            try:
                found = tokens.hold(tx, number)
            except NoSuchToken as unknown:
                raise Unfit(str(unknown)) from None
            if person and found.person != person:
                raise NotYours(f"token {number} is somebody else's")
            if not found.holds(tx.now):
                raise TooLate(f"token {number} opens nothing already")
            tokens.revoke(tx, number)
            _log(tx, tokens.REVOKED, found, person, door)
        return found


def _scopes(given: Sequence[str]) -> list[str]:
    strange = [scope for scope in given if scope not in SCOPES]
    if strange or not given:
        asked = (
            f"there is no scope {quote_text(strange[0])}"
            if strange
            else "a token is for something"
        )
        raise Unfit(f"{asked}: choose of {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in given]


def _named(name: str) -> str:
    try:
        plain = fold_text(name)
    except UncleanText as unclean:
        raise Unfit(f"the name {unclean}") from None
    if len(plain) > _LONGEST_NAME:
        raise Unfit(f"the name has {len(plain)} characters: say it in {_LONGEST_NAME}")
    return plain


def _log(
    tx: Transaction, what: str, token: Token, person: str, door: str, days: int | None = None
) -> None:
    changelog.append(
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

"""Tokens: made by their people for programs of theirs, and revoked."""

from collections.abc import Sequence

from bot.audit import change_log, followed_log
from bot.auth import tokens
from bot.auth.tokens import ApiToken, NoSuchTokenError
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed, TooLate
from bot.model.plain_text import join_to_one_line
from bot.workflow.context import WorkflowContext
from connectors.command import InvisibleCharacterError, quote_text

# Each further one of the first three lets its holder read as well.
SCOPES = {
    "read": "look at everything that the pages show",
    "ask": "ask for runs and schedules, take them back and stop them",
    "approve": "approve and deny, where no rule wants a second factor",
    "metrics": "read the metrics, and nothing else",
}
MAX_DAYS = 366
_DAY = 86400 * 1_000_000
_MAX_NAME_LENGTH = 60
_MAX_TOKENS = 50


class TokenActions:
    """source: web or cli. Raises Unfit, NotYours and TooLate."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def create_token(
        self, *, person: str, scopes: Sequence[str], days: int, name: str = "", source: str
    ) -> tuple[ApiToken, str]:
        """Return what is known of a new token, and the token itself: nobody can tell it again."""
        policy, name = self._context.policies.get_policy(), _check_name(name)
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        wanted = _check_scopes(scopes)
        if not 1 <= days <= MAX_DAYS:
            raise InvalidRequestError(f"a token is good for 1 to {MAX_DAYS} days, not {days}")
        with self._context.database.transaction() as tx:
            if sum(one.is_active(tx.now) for one in tokens.list_tokens(tx, person)) >= _MAX_TOKENS:
                raise InvalidRequestError(
                    f"{person} has {_MAX_TOKENS} tokens already: revoke those that nobody uses"
                )
            expires = tx.now + days * _DAY
            made, whole = tokens.add_token(
                tx, person=person, scopes=wanted, name=name, expires_at=expires
            )
            _log_token(tx, tokens.MADE, made, person, source, days)
        return made, whole

    def revoke_token(self, number: int, *, person: str, source: str) -> ApiToken:
        """Let a token open nothing any more. person: whose it is; "" on the command line."""
        with self._context.database.transaction() as tx:
            try:
                found = tokens.lock_token(tx, number)
            except NoSuchTokenError as unknown:
                raise InvalidRequestError(str(unknown)) from None
            if person and found.person != person:
                raise NotAllowed(f"token {number} is somebody else's")
            if not found.is_active(tx.now):
                raise TooLate(f"token {number} opens nothing already")
            tokens.revoke_token(tx, number)
            _log_token(tx, tokens.REVOKED, found, person, source)
            # Known from now on, so that it holds where the entry is taken out.
            followed_log.follow_log(tx)
        return found


def _check_scopes(scopes: Sequence[str]) -> list[str]:
    strange = [scope for scope in scopes if scope not in SCOPES]
    if strange or not scopes:
        asked = (
            f"there is no scope {quote_text(strange[0])}"
            if strange
            else "a token is for something"
        )
        raise InvalidRequestError(f"{asked}: choose of {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in scopes]


def _check_name(name: str) -> str:
    try:
        plain = join_to_one_line(name)
    except InvisibleCharacterError as unclean:
        raise InvalidRequestError(f"the name {unclean}") from None
    if len(plain) > _MAX_NAME_LENGTH:
        raise InvalidRequestError(
            f"the name has {len(plain)} characters: say it in {_MAX_NAME_LENGTH}"
        )
    return plain


def _log_token(
    tx: Transaction, kind: str, token: ApiToken, person: str, source: str, days: int | None = None
) -> None:
    change_log.append_entry(
        tx,
        kind,
        person=person,
        owner=token.person,
        token=token.prefix,
        scopes=token.scopes,
        name=token.name,
        days=days,
        source=source,
    )

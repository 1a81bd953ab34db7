"""Create and revoke API tokens, with which a person's programs sign in."""

from collections.abc import Sequence

from bot.audit import change_log, events, followed_log
from bot.audit.event_type import Event
from bot.auth import tokens
from bot.auth.tokens import MAX_DAYS, SCOPES, ApiToken, NoSuchTokenError
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed, TooLate
from bot.model.plain_text import check_line
from bot.model.times import DAY
from bot.workflow.context import WorkflowContext
from connectors.visible_text import quote_text

_MAX_NAME_LENGTH = 60
_MAX_TOKENS = 50


class TokenActions:
    """What people may do about API tokens.

    Methods take the source of the request (web or cli), and raise InvalidRequestError, NotAllowed
    and TooLate.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def create_token(
        self, *, person: str, scopes: Sequence[str], days: int, name: str = "", source: str
    ) -> tuple[ApiToken, str]:
        """Create a token; return its record and the token itself, which is not stored."""
        policy = self._context.policies.get_policy()
        name = check_line(name, name="the name", max_length=_MAX_NAME_LENGTH)
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        wanted = _check_scopes(scopes)
        check_days(days)
        with self._context.database.transaction() as tx:
            if sum(one.is_active(tx.now) for one in tokens.list_tokens(tx, person)) >= _MAX_TOKENS:
                raise InvalidRequestError(
                    f"{person} has {_MAX_TOKENS} tokens: revoke unused ones first"
                )
            expires = tx.now + days * DAY
            made, secret = tokens.add_token(
                tx, person=person, scopes=wanted, name=name, expires_at=expires
            )
            log_token(tx, events.TokenCreated, made, person, source, days)
        return made, secret

    def confirm_token(self, number: int, *, person: str, source: str) -> ApiToken:
        """Agree that an agent acts for this person with a token. It does not work before."""
        with self._context.database.transaction() as tx:
            found = _lock_token(tx, number)
            if not person or person != found.behalf:
                raise NotAllowed(f"token {number} does not act for you")
            if found.is_confirmed or not found.is_active(tx.now):
                raise TooLate(f"token {number} is confirmed already, or not valid any more")
            tokens.confirm_token(tx, number)
            log_token(tx, events.TokenConfirmed, found, person, source)
        return found

    def revoke_token(self, number: int, *, person: str, source: str) -> ApiToken:
        """Revoke a token. person: its owner, or for whom it acts; "" on the command line."""
        with self._context.database.transaction() as tx:
            found = _lock_token(tx, number)
            if person and person not in {found.person, found.behalf}:
                raise NotAllowed(f"token {number} belongs to another person")
            if not found.is_active(tx.now):
                raise TooLate(
                    f"token {number} is not valid any more: it was revoked or has expired"
                )
            tokens.revoke_token(tx, number)
            log_token(tx, events.TokenRevoked, found, person, source)
            # Read the entry now, so that deleting it later is noticed.
            followed_log.follow_log(tx)
        return found


def _lock_token(tx: Transaction, number: int) -> ApiToken:
    try:
        return tokens.lock_token(tx, number)
    except NoSuchTokenError as error:
        raise InvalidRequestError(str(error)) from None


def check_days(days: int) -> None:
    """Raise InvalidRequestError unless a token may be valid for so many days."""
    if not 1 <= days <= MAX_DAYS:
        raise InvalidRequestError(f"a token is valid for 1 to {MAX_DAYS} days, not {days}")


def _check_scopes(scopes: Sequence[str]) -> list[str]:
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        text = (
            f"there is no scope {quote_text(unknown[0])}" if unknown else "a token needs a scope"
        )
        raise InvalidRequestError(f"{text}: choose from {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in scopes]


def log_token(
    tx: Transaction,
    event_type: type[events.TokenCreated | events.TokenConfirmed | events.TokenRevoked],
    token: ApiToken,
    person: str,
    source: str,
    days: int | None = None,
) -> None:
    """Log what happened to a token. person: who acted; "" on the command line."""
    event = _build_event(event_type, token, source, days)
    change_log.append_entry(tx, event, person=person)


def revoke_tokens_of(tx: Transaction, person: str, source: str) -> list[Event]:
    """Revoke all tokens of a person, and those of agents for them; return what to log.

    The caller logs it, once it has locked everything else.
    """
    active = [one for one in tokens.list_tokens(tx, person) if one.is_active(tx.now)]
    for token in active:
        tokens.revoke_token(tx, token.id)
    return [_build_event(events.TokenRevoked, one, source) for one in active]


def _build_event(
    event_type: type[events.TokenCreated | events.TokenConfirmed | events.TokenRevoked],
    token: ApiToken,
    source: str,
    days: int | None = None,
) -> Event:
    return event_type(
        owner=token.person,
        token=token.prefix,
        scopes=tuple(token.scopes),
        name=token.name,
        days=days,
        source=source,
        behalf=token.behalf,
    )

"""Errors that a person can resolve. Each message says what is wrong and what to do."""

from collections.abc import Iterable

from connectors.errors import DomainError


class InvalidRequestError(DomainError):
    """The request is not valid. The message says what to enter instead."""

    code, status = "invalid-request", 422


class NoSuchPersonError(InvalidRequestError):
    """The person is not in the policy."""

    code = "person-not-found"

    def __init__(self, person: str, known_people: Iterable[str] = ()) -> None:
        names = ", ".join(sorted(known_people))
        text = f"{person} is not in the policy"
        super().__init__(f"{text}. People: {names}" if names else text)


class TicketRequiredError(InvalidRequestError):
    """The policy requires a change ticket, and the request names none."""


class BreakGlassNotNeededError(InvalidRequestError):
    """Break-glass would bypass nothing. The run's page shows how it starts."""


class TooManyRequestsError(InvalidRequestError):
    """A rate limit is reached. The message says which, and that the request can be repeated."""

    code, status, retry_seconds = "too-many-open-requests", 429, 60


class NotAllowed(DomainError):
    """This person may not do that. The message says who may."""

    code, status = "not-allowed", 403


class StepUpRequired(NotAllowed):
    """The action requires a second factor, entered shortly before on the web."""

    code = "second-factor-required"


class TooLate(DomainError):
    """The run was decided or has ended. The message says how."""

    code, status = "too-late", 409


class NoSuchSchedule(DomainError):
    """No schedule has this number, or it may not be viewed."""

    code, status = "schedule-not-found", 404

"""Errors that a person can resolve. Each message says what is wrong and what to do."""

from collections.abc import Iterable


class InvalidRequestError(Exception):
    """The request is not valid. The message says what to enter instead."""


class NoSuchPersonError(InvalidRequestError):
    """The person is not in the policy."""

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


class NotAllowed(Exception):
    """This person may not do that. The message says who may."""


class StepUpRequired(NotAllowed):
    """The action requires a second factor, entered shortly before on the web."""


class TooLate(Exception):
    """The run was decided or has ended. The message says how."""

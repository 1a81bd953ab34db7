"""Ask about a ticket, and add a note to it."""

from collections.abc import Mapping

from bot.integrations import generic_tickets, jira, servicenow
from bot.integrations.safe_http import DeliveryError
from bot.integrations.ticket_connection import TicketAdapter, TicketConnection, TicketError
from bot.model.text import escape_to_one_line
from bot.model.tickets import TicketAnswer
from bot.policy.tickets import TicketSystem

_ADAPTERS: Mapping[str, TicketAdapter] = {
    "generic": generic_tickets,
    "jira": jira,
    "servicenow": servicenow,
}
_NOT_FOUND = 404
# What parsing an answer of another shape raises.
_SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError)


def ask_ticket(system: TicketSystem, key: str, host: str) -> TicketAnswer:
    """Return what the system says of a ticket now. Raises TicketError."""
    try:
        answer = _ADAPTERS[system.system].read_ticket(TicketConnection(system), key, host)
    except DeliveryError as error:
        if error.status == _NOT_FOUND:
            raise TicketError(f"The ticket system has no ticket {key}") from None
        raise TicketError(f"Cannot ask the ticket system about {key}: {error}") from None
    except TicketError as error:
        raise TicketError(f"Cannot ask the ticket system about {key}: {error}") from None
    except _SHAPE_ERRORS as error:
        what = escape_to_one_line(str(error))[:200]
        raise TicketError(
            f"The answer of the ticket system about {key} is not as expected: {what}"
        ) from None
    if answer.key.casefold() != key.casefold():
        raise TicketError(f"The ticket system answered about {answer.key} instead of {key}")
    return answer


def add_note(system: TicketSystem, key: str, text: str, *, note_id: str) -> None:
    """Add a note to a ticket. note_id: the same for each attempt. Raises DeliveryError."""
    try:
        _ADAPTERS[system.system].add_note(TicketConnection(system), key, text, note_id)
    except TicketError as error:
        raise DeliveryError(str(error)) from None
    except _SHAPE_ERRORS:
        raise DeliveryError("the answer of the ticket system is not as expected") from None

"""Request a run again with the same values. Pure."""

from collections.abc import Mapping, Sequence

from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.model.run import Run, State
from connectors.visible_text import quote_text
from runbooks import AnyRunbook, load_catalogue

# Their plans are not current any more, or the requester wants a newer one.
_REPLANNED_STATES = frozenset({State.PLANNED, State.PENDING, State.STALE, State.EXPIRED})


def can_be_planned_again(run: Run) -> bool:
    """Return whether the requester may replace the run by one with a new plan."""
    is_check = run.kind == "check" and run.timing is None
    if run.parent is not None or run.origin.schedule_id or is_check:
        return False
    # A counter-proposal that was not accepted in time is not a request.
    is_proposal = run.state is State.EXPIRED and run.proposal_for is not None
    return run.state in _REPLANNED_STATES and not is_proposal


def get_resubmit_refusal(run: Run) -> str:
    """Return why a run cannot be requested again, and what to do instead; "" if it can."""
    if not run.is_ended:
        return f"run {run.id} has not ended: it {run.state.phrase}"
    if run.is_sequence:
        return f"run {run.id} is a request of several changes: request it as before instead"
    if run.undo_of is not None:
        return f"run {run.id} is an undo: request the undo of run {run.undo_of} again instead"
    if run.timing is not None:
        return f"run {run.id} requested a schedule: request a new schedule instead"
    if run.runbook not in load_catalogue():
        return f"the runbook {quote_text(run.runbook)} does not exist any more"
    return ""


def check_resubmit(run: Run) -> None:
    """Raise InvalidRequestError if the run cannot be requested again."""
    refusal = get_resubmit_refusal(run)
    if refusal:
        raise InvalidRequestError(refusal)


def get_resubmit_values(run: Run, runbook: type[AnyRunbook] | None = None) -> Mapping[str, str]:
    """Return the values by field, for a run that can be requested again.

    runbook: its runbook, if that is not one of the catalogue.

    Values that are generated for each request, such as its time, are left out. The host of a
    request for several hosts is the pattern as typed, such as lb* or @haproxy.
    """
    fields = (runbook or load_catalogue()[run.runbook]).model_fields
    return {
        name: value
        for name, value in run.values.items()
        if value and name in fields and fields[name].default_factory is None
    }


def build_resubmit_requests(
    run: Run, hosts: Mapping[str, frozenset[str]]
) -> tuple[str, Sequence[AnyRunbook]]:
    """Return the host pattern, and a request for each host that it matches now.

    hosts: tags by host name, as for request_form.parse_request_for_hosts().

    Raises:
        InvalidRequestError: The run cannot be requested again.
        RequestSyntaxError: Its values are not valid any more.
    """
    check_resubmit(run)
    typed = [f"{name}={value}" for name, value in get_resubmit_values(run).items()]
    return request_form.parse_request_for_hosts(load_catalogue()[run.runbook], typed, hosts)

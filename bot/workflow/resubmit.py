"""Again: what of a run that is over is asked for once more. Pure."""

from collections.abc import Mapping, Sequence

from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.model.run import Run
from connectors.command import quote_text
from runbooks import AnyRunbook, load_catalogue


def get_resubmit_refusal(run: Run) -> str:
    """Return why it cannot be asked for again by its values, and what to do; "" if it can."""
    if not run.is_ended:
        return f"run {run.id} is not over: it is {run.state.phrase}"
    if run.undo_of is not None:
        return f"run {run.id} is an undo: ask for the undo of run {run.undo_of} once more"
    if run.timing is not None:
        return f"run {run.id} was for a schedule: ask for a schedule"
    if run.runbook not in load_catalogue():
        return f"there is no runbook {quote_text(run.runbook)} any more"
    return ""


def check_resubmit(run: Run) -> None:
    """Raise Unfit where it cannot be."""
    no = get_resubmit_refusal(run)
    if no:
        raise InvalidRequestError(no)


def get_resubmit_values(run: Run) -> Mapping[str, str]:
    """Return its values by field, for a run that can be asked for again.

    What a field makes anew for each request, such as the moment of asking, is not kept. The host
    of a request for several is as it was typed, such as lb* or @haproxy.
    """
    fields = load_catalogue()[run.runbook].model_fields
    return {
        name: value
        for name, value in run.values.items()
        if value and name in fields and fields[name].default_factory is None
    }


def build_resubmit_requests(
    run: Run, hosts: Mapping[str, frozenset[str]]
) -> tuple[str, Sequence[AnyRunbook]]:
    """Return how several hosts were spelled, and a request for each that is meant by now.

    hosts: as for forms.spread. Raises Unfit where it cannot be, and NotUnderstood where its values
    do not fit any more.
    """
    check_resubmit(run)
    typed = [f"{name}={value}" for name, value in get_resubmit_values(run).items()]
    return request_form.parse_request_for_hosts(load_catalogue()[run.runbook], typed, hosts)

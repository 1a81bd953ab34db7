"""The workflow on the database alone: nothing is sent from here, a service finds what is left."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.cli.context import Place
    from bot.db.database import Database
    from bot.model.run import Run
    from bot.workflow.context import WorkflowContext


class _Absent:
    """Stands where hosts and dispatcher would: a service that runs looks within seconds."""

    def enqueue(self, tx: object, run: int, site: str) -> None:
        pass

    look = enqueue

    def busy(self, tx: object) -> tuple[int, ...]:  # noqa: ARG002 - nobody works here
        return ()

    def run_query(self, host: str, query: object, /) -> Any:
        raise NotImplementedError(host)

    run_command: Callable[..., Any] = run_query
    resolve: Callable[..., Any] = run_query
    query_step: Callable[..., Any] = run_query


def parts(place: "Place", database: "Database") -> "WorkflowContext":
    """Return what the workflow needs; of the people, those that nobody has shut out."""
    from bot.policy import PolicyDirectory
    from bot.workflow.bans import PolicyWithoutBanned
    from bot.workflow.context import WorkflowContext

    absent = _Absent()
    return WorkflowContext(
        database, PolicyWithoutBanned(PolicyDirectory(place.policy()), database), absent, absent
    )


def run_as_data(place: "Place", run: "Run") -> Mapping[str, Any]:
    """Return what programs are told of a run here: the part of the API's answer that is known."""
    return {
        "id": run.id,
        "state": run.state.value,
        "over": run.over,
        "request": run.request,
        "summary": run.summary,
        "page": f"{place.address()}/runs/{run.id}" if place.address() else "",
    }

"""The workflow on the database alone: nothing is sent from here, a service finds what is left."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.cli.context import CommandEnvironment
    from bot.db.database import Database
    from bot.model.run import Run
    from bot.workflow.context import WorkflowContext


class _NoExecution:
    """Stands where hosts and dispatcher would: a service that runs looks within seconds."""

    def enqueue_run(self, tx: object, run_id: int, site: str) -> None:
        pass

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: object) -> tuple[int, ...]:  # noqa: ARG002 - nobody works here
        return ()

    def run_query(self, host: str, query: object, /) -> Any:
        raise NotImplementedError(host)

    run_command: Callable[..., Any] = run_query
    resolve_command: Callable[..., Any] = run_query
    query_step: Callable[..., Any] = run_query


def build_workflow_context(
    environment: "CommandEnvironment", database: "Database"
) -> "WorkflowContext":
    """Return what the workflow needs; of the people, those that nobody has shut out."""
    from bot.policy import PolicyDirectory
    from bot.workflow.bans import PolicyWithoutBanned
    from bot.workflow.context import WorkflowContext

    absent = _NoExecution()
    return WorkflowContext(
        database,
        PolicyWithoutBanned(PolicyDirectory(environment.get_policy_directory()), database),
        absent,
        absent,
    )


def run_to_data(environment: "CommandEnvironment", run: "Run") -> Mapping[str, Any]:
    """Return what programs are told of a run here: the part of the API's answer that is known."""
    return {
        "id": run.id,
        "state": run.state.value,
        "ended": run.is_ended,
        "request": run.request,
        "summary": run.summary,
        "page": f"{environment.get_base_url()}/runs/{run.id}"
        if environment.get_base_url()
        else "",
    }

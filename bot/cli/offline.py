"""The workflow on the database alone; a running service executes what is requested here."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.cli.context import CommandEnvironment
    from bot.db.database import Database
    from bot.model.run import Run
    from bot.workflow.context import WorkflowContext


class _NoExecution:
    """Replaces hosts and dispatcher: a running service polls the database within seconds."""

    def enqueue_run(self, tx: object, run_id: int, site: str) -> None:
        pass

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: object) -> tuple[int, ...]:  # noqa: ARG002 - nothing is executed here
        return ()

    def run_query(self, host: str, query: object, /) -> Any:
        raise NotImplementedError(host)

    run_command: Callable[..., Any] = run_query
    resolve_command: Callable[..., Any] = run_query
    query_step: Callable[..., Any] = run_query


def build_workflow_context(
    environment: "CommandEnvironment", database: "Database"
) -> "WorkflowContext":
    """Return the workflow's parts, with a policy without banned people."""
    from bot.policy import PolicyDirectory
    from bot.workflow.bans import PolicyWithoutBanned
    from bot.workflow.context import WorkflowContext

    no_execution = _NoExecution()
    return WorkflowContext(
        database,
        PolicyWithoutBanned(PolicyDirectory(environment.get_policy_directory()), database),
        no_execution,
        no_execution,
    )


def run_to_data(environment: "CommandEnvironment", run: "Run") -> Mapping[str, Any]:
    """Return the fields of a run in the API that are known without the service."""
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

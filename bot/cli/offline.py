"""The service on the database alone; a running service executes what is requested here."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bot.cli.context import CommandEnvironment, exit_on_errors, exit_on_refusals

if TYPE_CHECKING:
    from bot.model.run import Run
    from bot.service import KeyturnService


@contextmanager
def open_service(environment: CommandEnvironment) -> "Generator[KeyturnService]":
    """Open the service, and report refusals as one line."""
    from bot.policy import PolicyDirectory
    from bot.service import KeyturnService

    with exit_on_errors(), environment.open_database() as database, exit_on_refusals():
        policies = PolicyDirectory(environment.get_policy_directory())
        yield KeyturnService.without_execution(database, policies)


def run_to_data(environment: CommandEnvironment, run: "Run") -> Mapping[str, Any]:
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

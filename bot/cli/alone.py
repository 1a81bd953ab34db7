"""The workflow on the database alone: nothing is sent from here, a service finds what is left."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.cli.place import Place
    from bot.run import Run
    from bot.store.database import Database
    from bot.workflow.parts import Parts


class _Absent:
    """Stands where hosts and dispatcher would: a service that runs looks within seconds."""

    def enqueue(self, tx: object, run: int, site: str) -> None:
        pass

    look = enqueue

    def busy(self, tx: object) -> tuple[int, ...]:  # noqa: ARG002 - nobody works here
        return ()

    def ask(self, host: str, query: object, /) -> Any:
        raise NotImplementedError(host)

    tell: Callable[..., Any] = ask
    resolve: Callable[..., Any] = ask
    recall: Callable[..., Any] = ask


def parts(place: "Place", database: "Database") -> "Parts":
    """Return what the workflow needs; of the people, those that nobody has shut out."""
    from bot.policy import PolicyDirectory
    from bot.workflow.banning import Admitted
    from bot.workflow.parts import Parts

    absent = _Absent()
    return Parts(database, Admitted(PolicyDirectory(place.policy()), database), absent, absent)


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

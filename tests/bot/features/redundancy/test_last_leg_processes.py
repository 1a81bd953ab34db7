"""Two processes on one database start the two legs of a service: only one succeeds."""

from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bot.db import runs
from bot.db.database import Database
from bot.features import load_hooks
from bot.model import signing
from bot.model.run import RequestTerms, State
from bot.policy import PolicyDirectory
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from tests.bot.databases import DATABASES, create_postgresql_database, create_sqlite_database
from tests.bot.harness import WEB, ManualDispatcher
from tests.policies import write_policy
from tests.processes import get_fork_context
from tests.toy import RUNBOOKS, TakeDown, ToyFleet

RACES = 5
_SECONDS = 60


@dataclass(frozen=True)
class Installation:
    """What both processes open for themselves."""

    url: str
    directory: Path

    def open(self) -> tuple[KeyturnService, ToyFleet, ManualDispatcher, Database]:
        key = signing.load_signing_key(self.directory / "key")
        database = Database(self.url, key, patience=_SECONDS)
        fleet, queue, hooks = ToyFleet(), ManualDispatcher(), load_hooks()
        directory = PolicyDirectory(self.directory / "policy")
        policies = PolicyWithFacts(directory, database, hooks.policy_facts)
        context = WorkflowContext(database, policies, fleet, queue, runbooks=RUNBOOKS, hooks=hooks)
        return KeyturnService(context), fleet, queue, database


def advance_runs(installation: Installation, numbers: list[int], together: Barrier) -> None:
    """Start each run at the same moment as the other process starts its own."""
    service, fleet, _, database = installation.open()
    for number in numbers:
        # As each plan has read it.
        for switches in fleet.hosts.values():
            switches["lamp"] = "off"
        together.wait(_SECONDS)
        service.advancer.advance_run(number)
    database.close()


@pytest.fixture(params=DATABASES)
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    key = signing.load_signing_key(tmp_path / "key")
    write_policy(tmp_path / "policy")
    inventory = tmp_path / "policy" / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [lb1, lb2]\n")
    if request.param == "sqlite":
        database = create_sqlite_database(tmp_path / "keyturn.db", key)
    else:
        database = create_postgresql_database(request.getfixturevalue("postgres"), key)
    url = database.engine.url.render_as_string(hide_password=False)
    database.close()
    return Installation(url, tmp_path)


def test_two_processes_never_take_both_legs(installation: Installation):
    service, _, queue, database = installation.open()
    numbers: dict[str, list[int]] = {"lb1": [], "lb2": []}
    for race in range(RACES):
        for host, own in numbers.items():
            request = TakeDown(host=host, name="lamp", value=f"v{race}")
            run = service.request_run(request, RequestTerms("dora", WEB))
            while queue.enqueued:
                service.advancer.advance_run(queue.enqueued.pop(0))
            with database.reading() as tx:
                digest = runs.get_run(tx, run.id).digest
            for person in ("olga", "adam"):
                service.approve_run(run.id, person=person, digest=digest)
            queue.enqueued.clear()
            own.append(run.id)
    context = get_fork_context()
    together = context.Barrier(len(numbers))
    processes = [
        context.Process(target=advance_runs, args=(installation, own, together), daemon=True)
        for own in numbers.values()
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * _SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    with database.reading() as tx:
        ended = {
            host: [runs.get_run(tx, number).state for number in own]
            for host, own in numbers.items()
        }
    # The claim of the first winner is kept, so its host goes on winning.
    assert {State.SUCCEEDED, State.REFUSED} == {*ended["lb1"], *ended["lb2"]}
    for states in zip(*ended.values(), strict=True):
        assert states.count(State.SUCCEEDED) == 1
    database.close()

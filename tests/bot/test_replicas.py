"""Two processes on one database, and people who click in both at once: one run of each request.

KEYTURN_CHAOS=10000 tries so many (`make chaos`).
"""

import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bot.policy import PolicyDirectory
from bot.run import State
from bot.store import runs, schema, seal
from bot.store.database import Database, Transaction
from bot.store.runs import Overtaken
from bot.workflow import Parts, TooLate, Workflow, deciding
from connectors.command import Answer, Command
from tests.bot.office import WEB, ByHand
from tests.playground.postgres import Postgres
from tests.policies import a_policy
from tests.toy import RUNBOOKS, SetSwitch, ToyFleet

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
# Half of them take one approval, and half of them two.
RACES = CHAOS // 2 or 12
TOGETHER = 60

RULES = """
@id("approve") permit (principal, action == Action::"approve", resource);
@id("ask") @approvals("{}") @from("owners") permit (principal, action == Action::"ask", resource);
"""


@dataclass(frozen=True)
class Ledger:
    """What was done, by whichever process: each line is written at once, behind all others."""

    file: Path

    def note(self, what: str) -> None:
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{what}\n".encode())
        finally:
            os.close(descriptor)

    @property
    def counted(self) -> Counter[str]:
        return Counter(self.file.read_text().split("\n"))


@dataclass
class Told(ToyFleet):
    ledger: Ledger | None = None

    def tell(self, host: str, command: Command, /, *, fingerprint: str = "") -> Answer:
        assert self.ledger
        self.ledger.note(f"sent {command}")
        return super().tell(host, command, fingerprint=fingerprint)


@dataclass
class Noted(ByHand):
    """A dispatcher that notes what is put to work."""

    ledger: Ledger | None = None

    def enqueue(self, tx: Transaction, run: int, site: str) -> None:
        assert self.ledger
        note = self.ledger.note
        tx.after_commit(lambda: note(f"enqueued {run}"))
        super().enqueue(tx, run, site)

    look = enqueue


@dataclass(frozen=True)
class Place:
    """Where the processes meet."""

    url: str
    directory: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.directory / "ledger")

    def workflow(self) -> tuple[Workflow, Told, Noted, Database]:
        database = Database(self.url, seal.kept_in(self.directory / "key"))
        policies = PolicyDirectory(self.directory / "policy")
        fleet, queue = Told(ledger=self.ledger), Noted(ledger=self.ledger)
        return (
            Workflow(Parts(database, policies, fleet, queue, runbooks=RUNBOOKS)),
            fleet,
            queue,
            database,
        )


def click(
    place: Place, people: Sequence[str], races: Sequence[tuple[int, str]], together: Barrier
) -> None:
    """Be one replica: approve each run as these people, and work on it at once.

    people: who clicks here, in order, somebody perhaps twice.
    """
    workflow, fleet, queue, database = place.workflow()
    for number, digest in races:
        fleet.hosts["lb1"]["lamp"] = "off"
        together.wait(TOGETHER)
        for person in people:
            with suppress(TooLate, Overtaken):
                workflow.approve(number, person=person, digest=digest)
                place.ledger.note(f"approved {number}")
        # As nudge() does in every replica, whoever was told of it.
        workflow.advance(number)
        while queue.waiting:
            workflow.advance(queue.waiting.pop(0))
    database.close()


def click_unguarded(
    place: Place, people: Sequence[str], races: Sequence[tuple[int, str]], together: Barrier
) -> None:
    """Be one where nobody looks whether it was decided before."""
    deciding._must_wait = _nothing  # pyright: ignore[reportPrivateUsage] - in a process of its own
    runs.check_move = _nothing
    click(place, people, races, together)


def _nothing(*_: object) -> None: ...


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'keyturn.db'}"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    return Place(url, tmp_path)


def _race(place: Place, needed: int, times: int, replica: object = click) -> list[int]:
    """Ask for so many, have two processes decide them, and return their numbers."""
    a_policy(place.directory / "policy", rules=RULES.format(needed))
    workflow, _, queue, database = place.workflow()
    schema.upgrade(database)
    races: list[tuple[int, str]] = []
    for n in range(times):
        wanted = SetSwitch(host="lb1", name="lamp", value=f"v{n}")
        workflow.advance(workflow.ask(wanted, person="dora", origin=WEB).id)
        with database.reading() as tx:
            run = runs.get(tx, n + 1)
        assert run.state is State.WAITING
        races.append((run.id, run.digest))
    queue.waiting.clear()
    place.ledger.file.unlink()
    database.close()
    several = multiprocessing.get_context("spawn")
    together = several.Barrier(2)
    replicas = [
        several.Process(target=replica, args=(place, people, races, together))  # pyright: ignore[reportArgumentType] - one of the two above
        for people in (("olga", "olga"), ("adam",))
    ]
    for process in replicas:
        process.start()
    for process in replicas:
        process.join(TOGETHER + times)
    assert [process.exitcode for process in replicas] == [0, 0]
    return [number for number, _ in races]


@pytest.mark.timeout(0 if CHAOS else 120)
@pytest.mark.parametrize("needed", [1, 2])
def test_t_a2_whoever_clicks_where_each_request_is_one_run(place: Place, needed: int):
    numbers = _race(place, needed, RACES)
    done = place.ledger.counted
    for n, number in enumerate(numbers):
        found = done[f"approved {number}"], done[f"enqueued {number}"], done[f"sent set lamp v{n}"]
        assert found == (needed, 1, 1), f"run {number}"
    database = Database(place.url)
    with database.reading() as tx:
        assert {runs.get(tx, number).state for number in numbers} == {State.SUCCEEDED}
    database.close()


def test_t_a2_without_the_guard_a_run_is_put_to_work_twice(place: Place):
    """The twin."""
    numbers = _race(place, 1, 3, click_unguarded)
    done = place.ledger.counted
    assert max(done[f"enqueued {number}"] for number in numbers) > 1

"""PostgreSQL's response to a commit is lost, at each commit of a run in turn.

Keyturn may then assume neither that the commit was done nor that it was not. `make test` drops the
response to every ninth commit or wait for the disk, `make chaos` to each one several times.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from bot.db.database import StoreUnavailable
from bot.model.errors import TooLate
from bot.model.run import State
from tests.campaigns import CHAOS
from tests.chaos.killable_service import KillableService, ServiceDirectory, collect_result
from tests.chaos.report import NAME, Record
from tests.playground.commit_dropping_proxy import CommitDroppingProxy
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.postgres import Postgres
from tests.policies import write_policy
from tests.processes import get_fork_context

STRIDE, ROUNDS = (1, max(1, CHAOS // 200)) if CHAOS else (9, 1)
# More than one run has.
MAX_COMMITS = 200
# After how many seconds without progress stalled runs are looked for, as Keyturn's scheduler does.
_STALLED_SECONDS, _PATIENCE_SECONDS = 0.5, 60.0


class SequentialService(KillableService):
    """Completes one run after the other, and commits nothing that does not belong to them."""

    def complete_next_run(self, deadline: float) -> None:
        self._repeat_until_recorded(lambda: self._request_run(self._hosts[0]), deadline)
        changed_at, before = time.monotonic(), ""
        while True:
            assert time.monotonic() < deadline, before
            states: list[str] = []
            with suppress(StoreUnavailable, TooLate):
                unfinished = self._find_unfinished_runs()
                if not unfinished:
                    return
                states = [f"{run.id} {run.state}" for run in unfinished]
                for run in unfinished:
                    if run.state is State.PENDING:
                        self._service.approve_run(run.id, person="olga", digest=run.digest)
            if str(states) != before:
                changed_at, before = time.monotonic(), str(states)
            if time.monotonic() - changed_at > _STALLED_SECONDS:
                with suppress(StoreUnavailable):
                    self._service.advancer.wake_stalled_runs()
                changed_at = time.monotonic()
            time.sleep(0.01)

    def _repeat_until_recorded(self, request: Callable[[], None], deadline: float) -> None:
        while time.monotonic() < deadline:
            # A requester who reads that the request could not be recorded repeats it.
            with suppress(StoreUnavailable):
                request()
                return


def _drop_responses(
    directory: ServiceDirectory, port: int, stride: int, result: Connection
) -> None:
    """Drop the response to every stride-th commit, one in each run; send how many there were."""
    with CommitDroppingProxy(port) as proxy:
        # Without TLS, so that the proxy can read the responses.
        url = make_url(directory.url).set(host="127.0.0.1", port=proxy.port)
        url = url.update_query_dict({"sslmode": "disable"})
        through_proxy = ServiceDirectory(
            directory.directory, url.render_as_string(hide_password=False)
        )
        service = SequentialService(through_proxy, seed=os.getpid())  # differs between rounds
        service.start()
        for n in range(1, MAX_COMMITS, stride):
            proxy.drop_response(n)
            service.complete_next_run(time.monotonic() + _PATIENCE_SECONDS)
            if proxy.stop_dropping():
                break
        result.send(proxy.dropped_count)
    # Without closing the connections one by one.
    os._exit(0)


@pytest.fixture
def service_on_postgresql(
    tmp_path: Path,
) -> Generator[tuple[ServiceDirectory, LoopbackFleet, int]]:
    write_policy(tmp_path / "policy")
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        fleet = LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),))
        stack.enter_context(fleet)
        directory = ServiceDirectory(tmp_path, server.new_database())
        port = make_url(directory.url).port
        assert port
        yield directory, fleet, port


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
def test_run_is_done_once_when_the_answer_to_a_commit_is_lost(
    service_on_postgresql: tuple[ServiceDirectory, LoopbackFleet, int], record_property: Record
):
    directory, fleet, port = service_on_postgresql
    processes = get_fork_context()
    dropped = 0
    for _ in range(ROUNDS):
        receiver, sender = processes.Pipe(duplex=False)
        process = processes.Process(target=_drop_responses, args=(directory, port, STRIDE, sender))
        process.start()
        sender.close()
        process.join()
        assert process.exitcode == 0
        dropped += int(receiver.recv())
    result = collect_result(directory, fleet, faults=dropped)
    record_property(NAME, f"lost responses to commits: {result}")
    assert not result.violations, f"{result}: {result.violations}"
    # Requested, planned, approved, started, two steps with intent and result each, verified: each
    # is committed, and then waits for the disk.
    assert dropped >= ROUNDS * 18 // STRIDE

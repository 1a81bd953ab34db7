"""Several servers and workers on one database, and requesters who use them over the API.

Nobody repairs anything, whatever happens to the processes and their database. A process that was
killed is started again, as a supervisor does.
"""

import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import httpx2
import psycopg

from bot.db.database import Database
from bot.model.run import Run, State
from tests.campaigns import CHAOS
from tests.chaos import host_ledger, service_process
from tests.chaos.host_ledger import CampaignResult, WriteToLedger
from tests.chaos.killable_service import ServiceDirectory
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.replicas import Replicas
from tests.policies import write_policy
from tests.processes import get_fork_context

# Four hosts for `make chaos`, two for `make test`.
HOSTS = ("lb1", "lb2", "lb3", "lb4")[: 4 if CHAOS else 2]
PLACES = tuple(Place(name, "edge") for name in HOSTS)
_SERVER_IS_READY = "Keyturn is ready: "
_WORKER_IS_READY = "Working for "
# Until a process works, and until all runs have ended after the last fault.
_START_SECONDS, _END_SECONDS = 60.0, 120.0
_RESPONSE_SECONDS = 5.0
# The advisory lock that every process on a database holds.
_HOLDERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
_LOCK = 0x6B747372


@dataclass
class ServiceProcess:
    """One server or worker.

    kind: serve or worker. log: the file with the output of all processes in this place; the output
    of this one begins at `log_offset`.
    """

    kind: str
    log: Path
    process: ForkServerProcess
    log_offset: int = 0

    def get_output(self) -> str:
        return self.log.read_text()[self.log_offset :] if self.log.exists() else ""

    @property
    def address(self) -> str:
        """The address of a server; "" until it serves."""
        return self.get_output().partition(_SERVER_IS_READY)[2].partition("\n")[0].strip()

    @property
    def is_ready(self) -> bool:
        return bool(self.address) or _WORKER_IS_READY in self.get_output()


class ServiceGroup:
    """Servers and workers on one database.

    servers, workers: how many of each. url: of the database, valid for all of its servers.
    """

    def __init__(
        self, directory: Path, url: str, *, servers: int = 2, workers: int = 2, seed: int = 0
    ) -> None:
        write_policy(directory / "policy")
        self._directory, self._url = directory, url
        self._kinds = ["serve"] * servers + ["worker"] * workers
        self._stack, self._context = ExitStack(), get_fork_context()
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.processes: list[ServiceProcess] = []
        self.tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack as stack:
            policy = self._directory / "policy"
            self.fleet = stack.enter_context(LoopbackFleet(policy, places=PLACES))
            replicas = stack.enter_context(Replicas(self._directory, self._url))
            self._settings = replicas.settings.model_copy(update={"requests_a_minute": 10_000})
            foundation = replicas.foundation()
            for person in ("dora", "olga"):
                self.tokens[person] = foundation.service.tokens.create_token(
                    person=person, scopes=("read", "request", "approve"), days=1, source="cli"
                )[1]
            foundation.database.close()
            stack.callback(self._kill_all)
            self.processes = [self._start(n, kind) for n, kind in enumerate(self._kinds)]
            for one in self.processes:
                self._wait_until_ready(one)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, n: int, kind: str) -> ServiceProcess:
        log = self._directory / f"{kind}-{n}.log"
        process = self._context.Process(
            target=service_process.serve,
            args=(self._settings, log),
            kwargs={"sites": ("main",) if kind == "worker" else ()},
        )
        log_offset = len(log.read_text()) if log.exists() else 0
        process.start()
        return ServiceProcess(kind, log, process, log_offset)

    def _wait_until_ready(self, one: ServiceProcess) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not one.is_ready:
            assert time.monotonic() < deadline, one.get_output()
            assert one.process.is_alive(), one.get_output()
            time.sleep(0.02)

    def _kill_all(self) -> None:
        for one in self.processes:
            one.process.kill()
            one.process.join()

    def kill(self, kind: str = "") -> None:
        """Kill a random process and start another in its place. kind: "" for either kind."""
        n = self.random.choice([n for n, one in enumerate(self._kinds) if kind in {"", one}])
        self.processes[n].process.kill()
        self.processes[n].process.join()
        self.processes[n] = self._start(n, self._kinds[n])

    def restart_ended(self) -> list[str]:
        """Start the processes again that have ended; return the output of those that were ready.

        A process that finds no database when it starts may end; a supervisor starts it again.
        """
        ended = [n for n, one in enumerate(self.processes) if not one.process.is_alive()]
        outputs = [
            self.processes[n].get_output()[-2000:] for n in ended if self.processes[n].is_ready
        ]
        for n in ended:
            self.processes[n] = self._start(n, self._kinds[n])
        return outputs

    def list_addresses(self) -> Sequence[str]:
        return [one.address for one in self.processes if one.address]

    def wait_until_all_work(self) -> None:
        """Wait until every process is ready, and holds the lock of processes on the database."""
        deadline = time.monotonic() + _START_SECONDS
        while not all(one.is_ready for one in self.processes):
            outputs = [one.get_output()[-500:] for one in self.processes]
            assert time.monotonic() < deadline, outputs
            assert not self.restart_ended()
            time.sleep(0.1)
        expected = len(self.processes)
        while (holders := self._count_lock_holders()) != expected:
            assert time.monotonic() < deadline, f"{holders} of {expected} hold the lock"
            time.sleep(0.1)

    def _count_lock_holders(self) -> int:
        address = self._url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(address, connect_timeout=2) as connection:
            row = connection.execute(_HOLDERS, (_LOCK,)).fetchone()
        return int(row[0]) if row else 0

    def open_database(self) -> Database:
        directory = self._directory / "var"
        return ServiceDirectory(directory, self._url).open_database()

    def collect_result(self, requesters: "Requesters", *, faults: int) -> CampaignResult:
        """Wait until all runs have ended, and compare them with the ledgers of the hosts."""
        database = self.open_database()
        deadline = time.monotonic() + _END_SECONDS
        runs = host_ledger.list_all_runs(database)
        while not all(run.is_ended for run in runs) and time.monotonic() < deadline:
            requesters.approve(run for run in runs if run.state is State.PENDING)
            time.sleep(0.2)
            runs = host_ledger.list_all_runs(database)
        result = host_ledger.collect_result(
            database, runs, self.fleet, [*requesters.acknowledged], faults=faults
        )
        database.close()
        by_number = {run.id: run for run in runs}
        # A run that was acknowledged has to be that request, and no other.
        for number, nonce in requesters.acknowledged.items():
            if number in by_number and by_number[number].values["nonce"] != nonce:
                result.lost.append(f"request {number} does not have the nonce {nonce}")
        return result


@dataclass
class Requesters:
    """A thread for each host: requests a run, has it approved, waits for its end, and repeats.

    acknowledged: the nonce of each acknowledged request, by its number. ended_count: the runs that
    ended.
    """

    group: ServiceGroup
    acknowledged: dict[int, str] = field(default_factory=dict[int, str])
    ended_count: int = 0

    def __post_init__(self) -> None:
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._threads = [
            threading.Thread(target=self._request_forever, args=(host, random.Random(n)))  # noqa: S311 - no secret
            for n, host in enumerate(HOSTS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _request_forever(self, host: str, generator: random.Random) -> None:
        with httpx2.Client(timeout=_RESPONSE_SECONDS, follow_redirects=True) as client:
            while not self._stopped.is_set():
                caller = _ApiCaller(client, generator, self.group, self._stopped)
                number = self._request_run(caller, host, f"{generator.getrandbits(64):016x}")
                if number:
                    self._approve_and_wait(caller, number)

    def _request_run(self, caller: "_ApiCaller", host: str, nonce: str) -> int:
        body = {"runbook": WriteToLedger.words, "values": {"host": host, "nonce": nonce}}
        # Repeated with the same idempotency key until it is acknowledged.
        response = caller.send_until_answered("dora", "POST", "/runs", body, key=nonce)
        if response is None:
            return 0
        # The answer to a repeated request is the run that the first one made.
        number = int(response.get("run", response)["id"])
        with self._lock:
            self.acknowledged[number] = nonce
        return number

    def _approve_and_wait(self, caller: "_ApiCaller", number: int) -> None:
        while not self._stopped.is_set():
            run = caller.send_until_answered("olga", "GET", f"/runs/{number}")
            if run is None:
                return
            if run["ended"]:
                with self._lock:
                    self.ended_count += 1
                return
            if run["state"] == "pending":
                caller.approve(number, run["digest"])
            self._stopped.wait(0.2)

    def approve(self, runs: Iterable[Run]) -> None:
        """Approve runs whose requester has stopped, or never learnt their number."""
        with httpx2.Client(timeout=_RESPONSE_SECONDS, follow_redirects=True) as client:
            caller = _ApiCaller(client, random.Random(0), self.group, threading.Event())  # noqa: S311 - no secret
            for run in runs:
                caller.approve(run.id, run.digest)


@dataclass
class _ApiCaller:
    client: httpx2.Client
    random: random.Random
    group: ServiceGroup
    stopped: threading.Event

    def approve(self, number: int, digest: str) -> None:
        # Without an idempotency key: an approval that was cut off need not be repeated.
        self.send_until_answered("olga", "POST", f"/runs/{number}/approve", {"digest": digest})

    def send_until_answered(
        self,
        person: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str = "",
    ) -> dict[str, Any] | None:
        """Send a request to random servers until one answers.

        Returns:
            The body of the response; None if it was refused, or the requesters were stopped.
        """
        headers = {"Authorization": f"Bearer {self.group.tokens[person]}"}
        if key:
            headers["Idempotency-Key"] = key
        while not self.stopped.is_set():
            addresses = self.group.list_addresses()
            with suppress(httpx2.HTTPError, ValueError, IndexError):
                address = self.random.choice(addresses)
                response = self.client.request(
                    method, f"{address}/api/v1{path}", headers=headers, json=body
                )
                if response.status_code < 300:
                    return dict(response.json())
                if response.status_code < 500 and response.status_code != 429:
                    # 409: how the first request with this key ended is unknown, or the run was
                    # decided already.
                    assert response.status_code == 409, f"{path}: {response.text}"
                    return None
            self.stopped.wait(0.1)
        return None

"""A served Keyturn with the hosts of a farm: policy, workflow, gate, log and API."""

import gc
import threading
import time
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any, cast

import httpx2

from bot.db import runs
from bot.model.run import ENDED_STATES, RequestOrigin, RequestTerms, Run, State
from connectors.command import Query, QueryRunner, Shell
from runbooks import Change, Host, Plan, Step, load_catalogue
from tests.bench.farm import Farm
from tests.playground.service import Service
from tests.runbooks.declared import load_check

UptimeCheck = load_check("uptime check")

WEB = RequestOrigin("web")
_TOO_FAST = 429
_FILE = "${HOME}/mark"
# No two changes write the same, also of two services with one host.
_MARKS = count(1)
READ = Query(Shell(("sh", "-c", f'cat "{_FILE}" 2>/dev/null; true')), str.strip)


class Mark(Change[str], words="bench mark", example="web1 7", undo="writes the mark before it"):
    """Write a mark into a file of the login's."""

    host: Host
    mark: str

    def read(self, ask: QueryRunner) -> str:
        return ask(self.host, READ)

    def plan(self, marks: str) -> Plan:
        if marks == self.mark:
            return Plan(f"the mark is {marks}")
        step = Step(
            f"Write {self.mark}", self.host, do=written(self.mark), undo=written(marks or "-")
        )
        return Plan(f"the mark is {marks or 'not there'}", [step])


def written(mark: str) -> Shell:
    return Shell(("sh", "-c", f'cat > "{_FILE}"'), stdin=f"{mark}\n")


class ServedKeyturn:
    """Keyturn as `keyturn serve` builds it, and a program with a token at its API."""

    def __init__(self, farm: Farm, directory: Path, **more: Any) -> None:
        cast("dict[str, Any]", load_catalogue())[Mark.words] = Mark
        self._farm = farm
        # A copy: what is written there by one is not for the next.
        copytree(farm.policy, directory / "policy")
        self.service = Service(directory, slack="", requests_a_minute=10_000, **more)

    def __enter__(self) -> "ServedKeyturn":
        self.service.start()
        _, token = self.service.keyturn.service.tokens.create_token(
            person="dora", scopes=("read", "request"), days=1, source="cli"
        )
        self.program = httpx2.Client(
            base_url=f"{self.service.address}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.program.close()
        self.service.close()
        gc.unfreeze()

    def check(self, count: int) -> float:
        """Check so many hosts as one request; return how long that took."""
        return self._time_request(
            [UptimeCheck.model_validate({"host": name}) for name in self._farm.names[:count]]
        )

    def change(self, count: int) -> float:
        """Change so many hosts in waves; return the seconds from the approval to the proof."""
        mark = str(next(_MARKS))
        requests = [Mark(host=name, mark=mark) for name in self._farm.names[:count]]
        run = self._until(self._request(requests), frozenset({State.PENDING}))
        began = time.perf_counter()
        self.service.keyturn.service.approve_run(run.id, person="olga", digest=run.digest)
        run = self._until(run, ENDED_STATES)
        assert run.state is State.SUCCEEDED, run.summary
        return time.perf_counter() - began

    def one(self) -> float:
        """Ask over the API for a check of one host; return how long the answer took."""
        while True:
            began = time.perf_counter()
            response = self.program.post(
                "/runs", params={"wait": 30}, json={"request": "uptime check web1"}
            )
            took = time.perf_counter() - began
            # A program that asks without a break is body to make one, which is not measured.
            if response.status_code != _TOO_FAST:
                break
            time.sleep(float(response.headers["retry-after"]))
        body = response.raise_for_status().json()
        assert body["run"]["state"] == "succeeded", body
        # What it says of the load is the machine's, which was busy a quarter of an hour ago.
        assert body["report"]["summary"].startswith("web1 has been up for "), body
        return took

    def forget(self) -> None:
        """Close every connection, so that the next request finds cold ones."""
        self.service.keyturn.fleet.close()

    def _time_request(self, requests: list[Any]) -> float:
        began = time.perf_counter()
        run = self._until(self._request(requests), ENDED_STATES)
        assert run.state is State.SUCCEEDED, run.summary
        return time.perf_counter() - began

    def _request(self, requests: list[Any]) -> Run:
        flow = self.service.keyturn.service
        if len(requests) == 1:
            return flow.request_run(requests[0], RequestTerms("dora", WEB))
        return flow.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="@web")

    def _until(self, run: Run, states: frozenset[State]) -> Run:
        """Wait as the API does: looking at all that moves would be counted as Keyturn's work."""
        database = self.service.keyturn.database
        answered, end = threading.Event(), time.monotonic() + 120

        def hear(state: State) -> None:
            if state in states:
                answered.set()

        with database.run_events.listen(run.id, hear):
            while run.state not in states:
                assert time.monotonic() < end, run
                answered.wait(0.5)
                with database.reading() as tx:
                    run = runs.get_run(tx, run.id)
        return run

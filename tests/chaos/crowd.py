"""A crowd: processes that serve, workers, and people who ask and approve over the API meanwhile.

Whatever befalls the processes and their database, nobody mends it by hand. A process that was
killed is started again, as by whatever keeps services going.
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

from bot.audit import verification
from bot.db.database import Database
from bot.model.run import Run, State
from tests.chaos import member, victim
from tests.chaos.ledger import Toll, WriteDown, judged
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.replicas import Replicas
from tests.policies import a_policy
from tests.processes import get_fork_context

HOSTS = ("lb1", "lb2", "lb3", "lb4")
PLACES = tuple(Place(name, "edge") for name in HOSTS)
_READY = "Keyturn is ready: "
_WORKING = "Working for "
# Until a process works, and until whatever was left when all was over has come to its end.
_START_SECONDS, _END_SECONDS = 60.0, 120.0
_ANSWER_SECONDS = 5.0
# The lock that every process on a database holds.
_HOLDERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
_LOCK = 0x6B747372


@dataclass
class Member:
    """One process. log: what it says; from: how much of that an earlier one had said."""

    kind: str
    log: Path
    process: ForkServerProcess
    begins: int = 0

    def output(self) -> str:
        return self.log.read_text()[self.begins :] if self.log.exists() else ""

    @property
    def address(self) -> str:
        """Where it serves; "" as long as it does not."""
        return self.output().partition(_READY)[2].partition("\n")[0].strip()

    @property
    def working(self) -> bool:
        return bool(self.address) or _WORKING in self.output()


class Crowd:
    """serving, workers: how many of each. url: of the database, good for all of its servers."""

    def __init__(
        self, directory: Path, url: str, *, serving: int = 2, workers: int = 2, seed: int = 0
    ) -> None:
        a_policy(directory / "policy")
        self._directory, self._url = directory, url
        self._wanted = ["serve"] * serving + ["worker"] * workers
        self._stack, self._context = ExitStack(), get_fork_context()
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.members: list[Member] = []
        self.tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack as stack:
            policy = self._directory / "policy"
            self.fleet = stack.enter_context(LoopbackFleet(policy, places=PLACES))
            replicas = stack.enter_context(Replicas(self._directory, self._url))
            more = {"requests_a_minute": 10_000}
            self._settings = replicas.settings.model_copy(update=more)
            foundation = replicas.foundation()
            for person in ("dora", "olga"):
                self.tokens[person] = foundation.service.tokens.create_token(
                    person=person, scopes=("read", "request", "approve"), days=1, source="cli"
                )[1]
            foundation.database.close()
            stack.callback(self._end_all)
            self.members = [self._start(n, kind) for n, kind in enumerate(self._wanted)]
            for each in self.members:
                self._until_working(each)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, n: int, kind: str) -> Member:
        log = self._directory / f"{kind}-{n}.log"
        process = self._context.Process(
            target=member.live,
            args=(self._settings, log),
            kwargs={"sites": ("main",) if kind == "worker" else ()},
        )
        begins = len(log.read_text()) if log.exists() else 0
        process.start()
        return Member(kind, log, process, begins)

    def _until_working(self, each: Member) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not each.working:
            assert time.monotonic() < deadline, each.output()
            assert each.process.is_alive(), each.output()
            time.sleep(0.02)

    def _end_all(self) -> None:
        for each in self.members:
            each.process.kill()
            each.process.join()

    def kill(self, kind: str = "") -> None:
        """End one at once, and start another in its place. kind: serve or worker; "" for any."""
        n = self.chance.choice([n for n, one in enumerate(self._wanted) if kind in {"", one}])
        self.members[n].process.kill()
        self.members[n].process.join()
        self.members[n] = self._start(n, self._wanted[n])

    def revive(self) -> list[str]:
        """Start again who has ended by itself; return what those said that had begun to work.

        What keeps services going starts those again that found no database when they began.
        """
        ended = [n for n, each in enumerate(self.members) if not each.process.is_alive()]
        logs = [self.members[n].output()[-2000:] for n in ended if self.members[n].working]
        for n in ended:
            self.members[n] = self._start(n, self._wanted[n])
        return logs

    def addresses(self) -> Sequence[str]:
        return [each.address for each in self.members if each.address]

    def all_work(self) -> None:
        """Wait until every member works, and holds the lock of those who work on the database."""
        deadline = time.monotonic() + _START_SECONDS
        while not all(each.working for each in self.members):
            assert time.monotonic() < deadline, [each.output()[-500:] for each in self.members]
            assert not self.revive()
            time.sleep(0.1)
        while (holders := self._holders()) != len(self.members):
            assert time.monotonic() < deadline, f"{holders} of {len(self.members)} hold the lock"
            time.sleep(0.1)

    def _holders(self) -> int:
        address = self._url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(address, connect_timeout=2) as connection:
            row = connection.execute(_HOLDERS, (_LOCK,)).fetchone()
        return int(row[0]) if row else 0

    def database(self) -> Database:
        return victim.Home(self._directory / "var", self._url).database()

    def counted(self, people: "People", *, faults: int) -> Toll:
        """Wait until all is over, and hold what was done against what is known."""
        database = self.database()
        deadline = time.monotonic() + _END_SECONDS
        known = victim.everything(database)
        while not all(run.is_ended for run in known) and time.monotonic() < deadline:
            people.approve(run for run in known if run.state is State.PENDING)
            time.sleep(0.2)
            known = victim.everything(database)
        steps = victim.records(database, known)
        with database.reading() as tx:
            verdict = verification.verify_log(tx)
        database.close()
        assert verdict.broken is None, verdict.why
        ledgers = [host.home / "ledger" for host in self.fleet.hosts.values()]
        lines = [line for one in ledgers if one.exists() for line in one.read_text().splitlines()]
        by_number = {run.id: run for run in known}
        toll = judged(lines, by_number, steps, [*people.acknowledged], faults=faults)
        # What somebody was told to be there by one that knew it has to be the same request.
        for number, nonce in people.acknowledged.items():
            if number in by_number and by_number[number].values["nonce"] != nonce:
                toll.lost.append(f"request {number} is not what {nonce} was told")
        return toll


@dataclass
class People:
    """One for each host: asks, has it approved, waits until it is over, and asks again.

    acknowledged: what each request that the service has taken was about, by its number.
    """

    crowd: Crowd
    acknowledged: dict[int, str] = field(default_factory=dict[int, str])
    ended: int = 0

    def __post_init__(self) -> None:
        self._over, self._lock = threading.Event(), threading.Lock()
        self._threads = [
            threading.Thread(target=self._live, args=(host, random.Random(n)))  # noqa: S311 - no secret
            for n, host in enumerate(HOSTS)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _live(self, host: str, chance: random.Random) -> None:
        with httpx2.Client(timeout=_ANSWER_SECONDS, follow_redirects=True) as client:
            while not self._over.is_set():
                caller = _Caller(client, chance, self.crowd, self._over)
                number = self._ask(caller, host, f"{chance.getrandbits(64):016x}")
                if number:
                    self._see_through(caller, number)

    def _ask(self, caller: "_Caller", host: str, nonce: str) -> int:
        order = {"runbook": WriteDown.words, "values": {"host": host, "nonce": nonce}}
        # Asked again with the same key until somebody says that it is there.
        answer = caller.until_answered("dora", "POST", "/runs", order, key=nonce)
        if answer is None:
            return 0
        # One that was cut off is answered by the run that it made.
        number = int(answer.get("run", answer)["id"])
        with self._lock:
            self.acknowledged[number] = nonce
        return number

    def _see_through(self, caller: "_Caller", number: int) -> None:
        while not self._over.is_set():
            run = caller.until_answered("olga", "GET", f"/runs/{number}")
            if run is None:
                return
            if run["ended"]:
                with self._lock:
                    self.ended += 1
                return
            if run["state"] == "pending":
                caller.approve(number, run["digest"])
            self._over.wait(0.05)

    def approve(self, waiting: Iterable[Run]) -> None:
        """Approve what nobody saw through: whoever asked for it has left, or was never told."""
        with httpx2.Client(timeout=_ANSWER_SECONDS, follow_redirects=True) as client:
            caller = _Caller(client, random.Random(0), self.crowd, threading.Event())  # noqa: S311 - no secret
            for run in waiting:
                caller.approve(run.id, run.digest)


@dataclass
class _Caller:
    client: httpx2.Client
    chance: random.Random
    crowd: Crowd
    over: threading.Event

    def approve(self, number: int, digest: str) -> None:
        # Without a key: nobody would tell any more how one ended that was cut off.
        self.until_answered("olga", "POST", f"/runs/{number}/approve", {"digest": digest})

    def until_answered(
        self,
        person: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str = "",
    ) -> dict[str, Any] | None:
        """Ask whoever serves until one answers; None if the answer is no, or there is none."""
        headers = {"Authorization": f"Bearer {self.crowd.tokens[person]}"}
        if key:
            headers["Idempotency-Key"] = key
        while not self.over.is_set():
            addresses = self.crowd.addresses()
            with suppress(httpx2.HTTPError, ValueError, IndexError):
                address = self.chance.choice(addresses)
                answer = self.client.request(
                    method, f"{address}/api/v1{path}", headers=headers, json=body
                )
                if answer.status_code < 300:
                    return dict(answer.json())
                if answer.status_code < 500 and answer.status_code != 429:
                    # 409: nobody knows how the first one with this key ended, or it was decided.
                    assert answer.status_code == 409, f"{path}: {answer.text}"
                    return None
            self.over.wait(0.1)
        return None

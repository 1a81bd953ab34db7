"""A change on probation, interrupted at every step: the host stays reachable.

The host is a real sshd, and the change is one of the keys that it lets in. With KEYTURN_CHAOS set,
every way to break off is tried before and after every step; `make test` tries some.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from ruamel.yaml import YAML

from bot.audit import change_log, events
from bot.db import runs
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import (
    NO_HOOKS,
    Answer,
    Query,
    QueryRunner,
    RemoteCommand,
    RunHooks,
    Setting,
    Shell,
)
from connectors.errors import UnreachableError
from connectors.fleet import Fleet
from connectors.inventory import Host as InventoryHost
from connectors.probation import Probation
from connectors.script import Script
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import SshLimits
from runbooks import Change, Host, Plan, Step
from runbooks.probation_drill import DrillProbation
from tests.bot.clock import Clock
from tests.bot.databases import add_schema
from tests.bot.harness import WEB, ManualDispatcher
from tests.campaigns import CHAOS
from tests.playground.probation import Probations
from tests.playground.silencing_proxy import SilencingProxy
from tests.playground.sshd import Sshd
from tests.policies import write_policy

pytestmark = pytest.mark.real

_FILE = Setting("toy.keys", "/nowhere")
_RESTORE = Script(
    "toy-restore",
    'case $1 in save) cp -- "$2" keys;; restore) cp keys "$2";; *) exit 1;; esac',
    argument_count=2,
)
_PROBATION = Probation("toy", _RESTORE, Setting("toy.probation", "120"), (_FILE,))
_SET = Script("toy-set", 'echo "$2" >>"$1"; [ "$2" != "#locked" ] || echo "#locked" >"$1"')


class SetKeys(Change[str], words="toy keys", example="web1 fine", undo="sets them back"):
    """Add a comment to the keys that a host lets in, or remove all keys."""

    host: Host
    to: Literal["fine", "locked"]

    def read(self, run_query: QueryRunner) -> str:
        last = Query(Shell(("tail", "-n", "1", _FILE)), str.strip)
        return run_query(self.host, last)

    def get_probation(self) -> Probation | None:
        return _PROBATION

    def plan(self, last: str) -> Plan:
        if last == f"#{self.to}":
            return Plan(f"the keys are {self.to}")
        do = Shell((_SET, _FILE, f"#{self.to}"), root=True)
        return Plan("the keys are as they were", [Step("Set keys", self.host, do=do, undo=do)])


class SetKeysAtOnce(SetKeys, words="toy keys at once", example="web1 fine", undo="sets them back"):
    """Do the same without a probation."""

    def get_probation(self) -> None:
        return None


class BrokenPool:
    """A pool in which something happens right before or after a step."""

    def __init__(self, directory: Path) -> None:
        self._pool = SshPool(directory, limits=SshLimits(connect=1, handshake=2, unacknowledged=5))
        self.at: tuple[int, str] | None = None
        self.happen: Callable[[], None] = lambda: None
        self.vantage_port: int | None = None
        self.lose_time: Callable[[], None] = lambda: None

    def run(
        self,
        host: InventoryHost,
        command: RemoteCommand,
        /,
        *,
        through: tuple[InventoryHost, ...] = (),
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        step = command.marker.step if isinstance(command, Shell) and command.marker else None
        if isinstance(command, Shell) and command.words[0] == "ssh-keyscan" and self.vantage_port:
            words = [*command.words[:4], str(self.vantage_port), *command.words[5:]]
            command = replace(command, argv=tuple(words))
            self.lose_time()
        self._pass(step, "before")
        try:
            answer = self._pool.run(host, command, through=through, hooks=hooks)
        except UnreachableError:
            self.lose_time()
            raise
        self._pass(step, "after")
        return answer

    def _pass(self, step: int | None, when: str) -> None:
        if step is not None and self.at == (step, when):
            self.at = None
            self.happen()

    def close(self) -> None:
        self._pool.close()


class Site:
    """A host, and a Keyturn for it that can be opened again after its process was killed."""

    def __init__(self, directory: Path, host: Sshd, proxy: SilencingProxy) -> None:
        self.host, self.proxy, self._directory = host, proxy, directory
        self.probations = Probations(host.directory / "root")
        self.keys = host.directory / "authorized_keys"
        self.before = self.keys.read_text()
        self._policies = write_policy(directory / "policy")
        settings = {"toy.keys": str(self.keys), **self.probations.settings}
        self._entry = host.inventory_entry(area="web", settings=settings) | {"port": proxy.port}
        self._key = SigningKey.create()
        self.write_inventory()

    def write_inventory(self, vantage: dict[str, object] | None = None) -> None:
        """Write the inventory. vantage: the host lb1."""
        entry = self._entry | ({"vantage": "lb1"} if vantage else {})
        with (self._directory / "policy" / "inventory.yaml").open("w") as file:
            YAML().dump({"hosts": {"web1": entry} | ({"lb1": vantage} if vantage else {})}, file)

    @contextmanager
    def opened(self) -> Generator["Keyturn"]:
        database = Clock(f"sqlite:///{self._directory / 'keyturn.db'}", self._key)
        add_schema(database)
        pool = BrokenPool(self._directory)
        fleet = Fleet(self._policies.get_policy().inventory, pool)
        try:
            yield Keyturn(self, database, fleet, pool, self._policies)
        finally:
            fleet.close()
            database.close()


class Keyturn:
    def __init__(
        self,
        site: Site,
        database: Clock,
        fleet: Fleet,
        pool: BrokenPool,
        policies: PolicyDirectory,
    ) -> None:
        self.site, self.database, self.pool, self.fleet = site, database, pool, fleet
        # What does not answer takes the time of the probation.
        pool.lose_time = self.lose_time
        self._queue = ManualDispatcher()
        runbooks = {each.words: each for each in (SetKeys, SetKeysAtOnce, DrillProbation)}
        self.service = KeyturnService(
            WorkflowContext(database, policies, fleet, self._queue, runbooks=runbooks)
        )

    def approve(self, change: Change[str] | DrillProbation) -> Run:
        """Request and approve it; only then is something under way."""
        run = self.service.request_run(change, RequestTerms("dora", WEB))
        self.work()
        run = self.get_run(run.id)
        assert run.state is State.PENDING, run.summary
        self.service.approve_run(run.id, person="olga", digest=run.digest)
        return run

    def lose_time(self) -> None:
        self.database.ahead += 130 * 1_000_000

    def get_run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def list_kinds(self, number: int) -> list[str]:
        with self.database.reading() as tx:
            return [each.kind for each in change_log.list_entries_of_run(tx, number)]

    def work(self) -> None:
        while self._queue.enqueued:
            self.service.advancer.advance_run(self._queue.enqueued.pop(0))

    def finish(self, number: int) -> Run:
        """Let what is on probation run out, and let Keyturn find out what became of the run."""
        self.work()
        if self.site.probations.is_armed("toy"):
            self.site.probations.let_time_run_out("toy")
        for _ in range(4):
            self.database.ahead += 1200 * 1_000_000
            self.service.advancer.wake_stalled_runs()
            self.work()
        return self.get_run(number)


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    with Sshd() as host, SilencingProxy(host.address, host.port) as proxy:
        yield Site(tmp_path, host, proxy)


def interrupt_change(site: Site, change: Change[str], way: str, step: int, when: str) -> Run:
    """Let it be broken off, and Keyturn go on as it does afterwards."""
    with site.opened() as keyturn:
        number = keyturn.approve(change).id
        if way != "kill":
            keyturn.pool.at = (step, when)
            keyturn.pool.happen = site.proxy.cut if way == "cut" else lambda: _end_sessions(site)
            keyturn.work()
            if way == "cut":
                site.proxy.resume()
            return keyturn.finish(number)
    child = os.fork()
    if child == 0:
        with site.opened() as keyturn:
            keyturn.pool.at = (step, when)
            keyturn.pool.happen = lambda: os.kill(os.getpid(), signal.SIGKILL)
            keyturn.service.advancer.advance_run(number)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with site.opened() as keyturn:
        keyturn.service.advancer.recover_unfinished_runs()
        return keyturn.finish(number)


def _end_sessions(site: Site) -> None:
    """End every session of the host; what they have begun goes on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == site.host.pid:
            os.kill(int(stat.parent.name), signal.SIGKILL)


def assert_reachable(site: Site, run: Run) -> None:
    """The host lets us in, and has either the new value, confirmed, or what it had."""
    with site.opened() as keyturn:
        assert (
            keyturn.fleet.run_query("web1", Query(Shell(("echo", "hello")), str.strip)) == "hello"
        )
        kinds = keyturn.list_kinds(run.id)
    assert not site.probations.is_armed("toy")
    assert list(site.probations.hooks.iterdir()) == []
    # Kept and confirmed, though the network may have been cut before the last plan.
    kept = "Every step succeeded, but the result could not be verified"
    if run.state is State.SUCCEEDED or run.summary.startswith(kept):
        assert site.keys.read_text() == f"{site.before}#fine\n"
    else:
        assert run.state is State.FAILED, run.summary
        assert site.keys.read_text() == site.before
        if events.RestoredByHost.kind in kinds:
            assert run.summary.startswith("Restored by host: web1 restored toy, since")


FINE = SetKeys(host="web1", to="fine")
LOCKED = SetKeys(host="web1", to="locked")
_EVERY = [
    (way, step, when)
    for way in ("kill", "cut", "end sessions")
    for step in (1, 2, 3)
    for when in ("before", "after")
]
_SOME = [
    ("kill", 2, "after"),
    ("kill", 3, "after"),
    ("cut", 2, "after"),
    ("end sessions", 3, "before"),
]


@pytest.mark.parametrize(("way", "step", "when"), _EVERY if CHAOS else _SOME)
def test_change_on_probation_interrupted_at_any_step_leaves_the_host_reachable(
    site: Site, way: str, step: int, when: str
):
    assert_reachable(site, interrupt_change(site, FINE, way, step, when))


def test_without_probation_an_interrupted_change_stays(site: Site):
    """Shows that the probation makes the difference above and below."""
    run = interrupt_change(site, SetKeysAtOnce(host="web1", to="locked"), "kill", 1, "after")
    assert run.state is not State.SUCCEEDED
    assert site.keys.read_text() == "#locked\n"


def test_a_change_that_locks_keyturn_out_is_restored_by_the_host(site: Site):
    with site.opened() as keyturn:
        number = keyturn.approve(LOCKED).id
        keyturn.work()
        run = keyturn.get_run(number)
        assert run.state is State.UNKNOWN
        assert run.summary.endswith(
            "The change of web1 (toy) is on probation: the host restores what was, and then this "
            "run ends."
        )
        run = keyturn.finish(number)
        assert keyturn.list_kinds(number)[-2:] == [events.RestoredByHost.kind, "failed"]
    assert run.state is State.FAILED
    assert "Step 3 of 3: " in run.summary
    assert_reachable(site, run)


def test_kept_change_leaves_no_probation_armed(site: Site):
    with site.opened() as keyturn:
        number = keyturn.approve(FINE).id
        keyturn.work()
        run = keyturn.get_run(number)
        assert run.state is State.SUCCEEDED
        assert run.plan is not None
        assert "no drill within 90 days" in run.plan.notes[-1].lower()
    assert_reachable(site, run)


def test_plan_and_arm_step_tell_the_same_seconds(site: Site):
    took = site.probations.root / "var/lib/keyturn-probation/toy.took"
    took.parent.mkdir(parents=True)
    took.write_text("50\n")
    with site.opened() as keyturn:
        run = keyturn.approve(FINE)
        keyturn.work()
        with keyturn.database.reading() as tx:
            (arm, *_) = runs.list_steps(tx, run.id)
    assert run.plan is not None
    assert "over a new connection within 150 s" in run.plan.notes[0]
    assert "restores it in 150 s" in arm.output


def test_change_is_kept_by_a_later_try_when_a_login_was_too_slow(site: Site):
    with site.opened() as keyturn:
        number = keyturn.approve(FINE).id
        keyturn.pool.at = (3, "before")
        keyturn.pool.happen = site.proxy.cut
        keyturn.pool.lose_time = site.proxy.resume
        keyturn.work()
        run = keyturn.get_run(number)
        assert run.state is State.SUCCEEDED, run.summary
        assert keyturn.list_kinds(number).count("step sending") == 3
    assert_reachable(site, run)


@pytest.mark.parametrize("way", ["stop", "close"])
def test_change_is_not_kept_by_a_later_try_when_keyturn_stops_or_ends(site: Site, way: str):
    with site.opened() as keyturn:
        number = keyturn.approve(FINE).id
        keyturn.pool.at = (3, "before")
        keyturn.pool.happen = site.proxy.cut

        def end() -> None:
            site.proxy.resume()
            if way == "stop":
                keyturn.service.stop_run(number, person="olga", reason="not now")
            else:
                keyturn.service.close()

        keyturn.pool.lose_time = end
        keyturn.work()
        assert keyturn.get_run(number).state is State.UNKNOWN
    with site.opened() as keyturn:
        run = keyturn.finish(number)
    assert run.state is State.FAILED
    assert_reachable(site, run)


@pytest.mark.parametrize("reaches", [True, False])
def test_change_is_kept_only_when_the_vantage_reaches_the_host(site: Site, reaches: bool):
    with Sshd() as other:
        entry = other.inventory_entry(area="web")
        # It is told to look where another host answers.
        port = site.proxy.port if reaches else other.port
        site.write_inventory(entry)
        with site.opened() as keyturn:
            number = keyturn.approve(FINE).id
            keyturn.pool.vantage_port = port
            keyturn.work()
            run = keyturn.finish(number)
            with keyturn.database.reading() as tx:
                (*_, keep) = runs.list_steps(tx, number)
    if reaches:
        assert run.state is State.SUCCEEDED
        assert keep.output.startswith("lb1 reaches web1, which shows its key there")
    else:
        assert run.summary.startswith("Restored by host")
        assert "lb1 reaches web1 with another key" in keep.error
    assert_reachable(site, run)


def test_change_is_refused_while_a_probation_is_armed(site: Site):
    with site.opened() as keyturn:
        keyturn.fleet.run_command("web1", _PROBATION.arm("0" * 16))
        run = keyturn.service.request_run(FINE, RequestTerms("dora", WEB))
        keyturn.work()
        run = keyturn.get_run(run.id)
        assert run.state is State.REFUSED
        assert "toy of web1 is on probation already" in run.summary
        site.probations.let_time_run_out("toy")


def test_probation_drill_shows_that_the_host_restores_a_change(site: Site):
    with site.opened() as keyturn:
        number = keyturn.approve(DrillProbation(host="web1")).id
        keyturn.work()
        assert keyturn.get_run(number).state is State.SUCCEEDED
        site.probations.let_time_run_out("drill")
        keyturn.database.ahead += 60 * 1_000_000
        keyturn.service.advancer.run_due_follow_ups()
        assert keyturn.list_kinds(number)[-1] == "followed up"
        assert not keyturn.get_run(number).needs_attention
        run = keyturn.approve(FINE)
        assert run.plan is not None
        assert not [note for note in run.plan.notes if "drill" in note]

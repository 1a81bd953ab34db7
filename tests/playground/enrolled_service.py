"""A Keyturn whose hosts check signatures themselves, over a real sshd and sudo."""

import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ruamel.yaml import YAML

from bot.db import migrations
from bot.db.database import Database
from bot.features import load_hooks
from bot.hosts.host_files import Signer
from bot.model.run import Run
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors import nginx_agents
from connectors.command import NO_HOOKS, Answer, Command, Query, QueryRunner, RunHooks, Shell
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from connectors.step_marker import MARKER_SETTING
from runbooks import AnyRunbook, Change, Host, Plan, Step, load_catalogue
from runbooks.agents import BlockAgent
from tests.bot.harness import Harness, ManualDispatcher
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.nginx import Nginx
from tests.playground.two_logins import TwoLogins
from tests.policies import give_signing_key, write_policy
from tests.toy import ToyFleet

T = TypeVar("T")

HOST = "web1"
BLOCK = BlockAgent.model_validate({"host": HOST, "agent": "Evil Bot/2"})
_PEOPLE = ("dora", "olga")


def create_keys(directory: Path) -> Mapping[str, SshKey]:
    """Return keys of two people whom the host names, and of a stranger."""
    return {name: SshKey.create(directory, name=name) for name in (*_PEOPLE, "eve")}


@contextmanager
def open_enrolled_host(
    keys: Mapping[str, SshKey],
    passkeys: Sequence[Signer] = (),
    page: str = "",
    *,
    name: str = HOST,
) -> Generator[EnrolledLogins]:
    """Start nginx and an enrolled host that blocks user agents in it.

    passkeys: further keys whose signatures the host takes. page: where passkeys may sign.
    """
    nginx = Nginx("include keyturn-agents.conf;")
    (nginx.directory / "keyturn-agents.conf").touch()
    # Where a login that is not root may look.
    with tempfile.TemporaryDirectory() as markers:
        os.chown(markers, 64001, 65534)
        host = EnrolledLogins(
            name=name,
            tags=("nginx",),
            settings={
                "nginx.config": str(nginx.configuration),
                "nginx.agents": f"{nginx.directory}/keyturn-agents.conf",
                MARKER_SETTING: markers,
            },
            signers=[*(Signer(name, keys[name].line) for name in _PEOPLE), *passkeys],
            owners=["olga"],
            page=page,
        )
        with nginx, host:
            yield host


class TouchFile(Change[bool], words="test touch", example="web1 /tmp/x", undo="removes the file"):
    """Create a file by a command without input, which a host may run unsigned."""

    host: Host
    file: str

    def read(self, run_query: QueryRunner) -> bool:
        return run_query(self.host, Query(Shell(("ls", "-d", self.file)), bool, frozenset({0, 2})))

    def plan(self, exists: bool) -> Plan:
        if exists:
            return Plan("the file exists")
        create = Shell(("touch", self.file), root=True)
        undo = Shell(("rm", self.file), root=True)
        return Plan("there is no file", [Step("Create the file", self.host, create, undo)])


class Wait(TouchFile, words="test wait", example="web1 /tmp/x", undo="removes the file"):
    """Wait a minute, which is longer than the step may take."""

    def plan(self, exists: bool) -> Plan:  # noqa: ARG002 - what was read
        wait = Shell(("sleep", "60.25"), root=True, deadline=1)
        return Plan("it waits", [Step("Wait", self.host, wait, Shell(("true",), root=True))])


class PowerCut(BaseException):
    """The machine of Keyturn stops, before a step reaches its host or after the step ended."""


class MortalFleet(Fleet):
    """A fleet whose process stops at the next command. cut: "", before or after."""

    cut = ""
    etc = Path("/etc/keyturn")
    """Where the host has what others have in this directory. Its logins cannot look there."""

    def run_query(self, host: str, query: Query[T]) -> T:
        path = Path(query.command.words[-1]) if isinstance(query.command, Shell) else Path()
        if path.is_relative_to("/etc/keyturn"):
            return query.parse((self.etc / path.name).read_text())
        return super().run_query(host, query)

    def run_command(
        self, host: str, command: Command, *, fingerprint: str = "", hooks: RunHooks = NO_HOOKS
    ) -> Answer:
        if self.cut == "before":
            raise PowerCut
        answer = super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)
        if self.cut == "after":
            raise PowerCut
        return answer


class EnrolledService:
    """The service with enrolled hosts, whose runs go as far as they go at once."""

    def __init__(
        self,
        directory: Path,
        host: TwoLogins,
        keys: Mapping[str, SshKey],
        *,
        others: Sequence[TwoLogins] = (),
        is_enrolled: bool = True,
        unsigned: Sequence[str] = (),
        runbooks: Sequence[type[AnyRunbook]] = (),
    ) -> None:
        self.policies = write_policy(directory / "policy")
        known = [one.host(signed=is_enrolled, unsigned=tuple(unsigned)) for one in (host, *others)]
        entries = {
            one.name: one.model_dump(mode="json", exclude={"name"}, exclude_none=True)
            for one in known
        }
        with (self.policies.path / "inventory.yaml").open("w") as file:
            YAML().dump({"hosts": entries}, file)
        for name in _PEOPLE:
            give_signing_key(self.policies.path, name, keys[name].line)
        self.keys, self.directory = keys, directory
        self.log_key = SigningKey.create()
        self.database = Database(f"sqlite:///{directory / 'keyturn.db'}", self.log_key)
        migrations.upgrade_schema(self.database)
        self.queue = ManualDispatcher()
        self.fleet = MortalFleet(self.policies.get_policy().inventory, SshPool(directory))
        self.fleet.etc = host.directory / "etc/keyturn"
        context = WorkflowContext(
            self.database,
            self.policies,
            self.fleet,
            self.queue,
            runbooks={
                **load_catalogue(),
                **{one.words: one for one in (TouchFile, Wait, *runbooks)},
            },
            hooks=load_hooks(),
        )
        self.service = KeyturnService(context)
        # Its fleet of toys is not that of the context.
        self.harness = Harness(self.service, context, ToyFleet(), self.queue, self.policies)

    def request(self) -> Run:
        return self.harness.request(BLOCK)

    def wait(self, run: Run) -> Run:
        self.harness.run_queued_work()
        return self.harness.get_run(run.id)

    def sign(self, run: Run, person: str) -> str:
        assert run.plan
        return self.keys[person].sign(run.plan.document.encode())

    def sign_request(self, run: Run) -> None:
        """Let the requester sign the plan."""
        self.service.sign_request(
            run.id, person="dora", digest=run.digest, signature=self.sign(run, "dora")
        )

    def sign_and_approve(self, run: Run) -> Run:
        self.sign_request(run)
        signature = self.sign(run, "olga")
        self.service.approve_run(run.id, person="olga", digest=run.digest, signature=signature)
        return self.wait(run)

    def sign_and_lose_power(self, run: Run, cut: str) -> None:
        """Run a signed plan until the machine of Keyturn stops."""
        self.fleet.cut = cut
        with suppress(PowerCut):
            self.sign_and_approve(run)
            raise AssertionError("nothing was sent")
        self.fleet.cut = ""

    def recover(self, run: Run) -> Run:
        """Start again, and ask the host what became of a run."""
        self.service.advancer.recover_unfinished_runs()
        self.service.advancer.wake_stalled_runs()
        return self.wait(run)

    @property
    def refused_agents(self) -> Sequence[str]:
        """What the host refuses now: what a change of it changes."""
        return self.read_agents(HOST)

    def read_agents(self, host: str) -> Sequence[str]:
        """Return what a host refuses now."""
        return self.fleet.run_query(host, nginx_agents.query_agents()).refused

    def close(self) -> None:
        self.fleet.close()
        self.database.close()


@contextmanager
def open_enrolled_service(
    directory: Path,
    host: TwoLogins,
    keys: Mapping[str, SshKey],
    *,
    others: Sequence[TwoLogins] = (),
    is_enrolled: bool = True,
    unsigned: Sequence[str] = (),
    runbooks: Sequence[type[AnyRunbook]] = (),
) -> Generator[EnrolledService]:
    """Start the service.

    is_enrolled, unsigned: what its inventory says of the hosts. runbooks: further ones.
    """
    service = EnrolledService(
        directory,
        host,
        keys,
        others=others,
        is_enrolled=is_enrolled,
        unsigned=unsigned,
        runbooks=runbooks,
    )
    try:
        yield service
    finally:
        service.close()

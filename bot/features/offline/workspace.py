"""What an offline command works with: the gate and the executor of Keyturn, without its history.

The database is a file of this command, which is removed with it. The hosts are reached with a
person's own login; the policy is that of the directory, as it is.
"""

import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from bot.db import migrations, runs
from bot.db.database import Database, Transaction
from bot.features.offline.plan_file import OFFLINE
from bot.model.run import Run
from bot.model.signing import SigningKey
from bot.policy import Policy, PolicyDirectory
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from bot.workflow.hooks import WorkflowHooks
from connectors.command import NO_HOOKS, Answer, Command, RunHooks, Shell
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.key_file import load_own_key
from connectors.permissions import list_trusted_owners
from connectors.ssh_pool import SshPool


@dataclass(frozen=True)
class OwnLogin:
    """How a person logs in to hosts."""

    user: str
    key: Path
    """The private key, or the public key of one in the agent."""

    def replace_login(self, host: Host) -> Host:
        """Return the host as this person reaches it."""
        login = {"user": self.user, "key": PurePath(self.key), "reader": None}
        return host.model_copy(update=login)


@dataclass(frozen=True)
class Workspace:
    """Keyturn for one command."""

    context: WorkflowContext
    service: KeyturnService

    @property
    def policy(self) -> Policy:
        return self.context.policies.get_policy()

    def read_run(self, number: int) -> Run:
        with self.context.database.reading() as tx:
            return runs.get_run(tx, number)


class _OwnFleet(Fleet):
    """Sends commands without what Keyturn leaves on hosts: their own record says what ran."""

    def run_command(
        self,
        host: str,
        command: Command,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        if isinstance(command, Shell):
            command = replace(command, note="", marker=None)
        return super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)


class _NoDispatcher:
    """Starts nothing: the command itself advances its run."""

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:
        pass

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: Transaction) -> tuple[int, ...]:  # noqa: ARG002 - none
        return ()


@contextmanager
def open_workspace(
    policy_directory: Path, login: OwnLogin, hooks: WorkflowHooks
) -> Generator[Workspace]:
    """Open a Keyturn that knows the policy and nothing else. Raises NoPolicyError."""
    policies = PolicyDirectory(policy_directory, owners=list_trusted_owners())
    hosts = {host.name: login.replace_login(host) for host in policies.get_policy().inventory}
    pool = SshPool(policy_directory)
    pool.load_key = load_own_key
    with (
        # A file that cannot be removed must not make a change that succeeded fail.
        tempfile.TemporaryDirectory(
            prefix="keyturn-offline-", ignore_cleanup_errors=True
        ) as directory,
        closing(_OwnFleet(Inventory.model_construct(hosts=hosts), pool)) as fleet,
        closing(Database(f"sqlite:///{directory}/offline.db", SigningKey.create())) as database,
    ):
        migrations.upgrade_schema(database)
        known = PolicyWithFacts(policies, database, hooks.policy_facts)
        context = WorkflowContext(
            database, known, fleet, _NoDispatcher(), installation=OFFLINE, hooks=hooks
        )
        with closing(KeyturnService(context)) as service:
            yield Workspace(context, service)

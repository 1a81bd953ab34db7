"""The workflow with all that it needs, for tests: a toy fleet, real SQLite, the starter rules."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.audit import change_log
from bot.db import migrations, runs
from bot.db.database import Database, Transaction
from bot.model.run import RequestOrigin, Run
from bot.policy import PolicyDirectory
from bot.service import Workflow
from bot.workflow.context import WorkflowContext
from runbooks import AnyRunbook
from tests.bot.empty import empty
from tests.policies import a_policy
from tests.toy import RUNBOOKS, ToyFleet

WEB = RequestOrigin("web")


@dataclass
class ByHand:
    """A dispatcher that waits to be told: tests decide when, and in which order, work is done."""

    waiting: list[int] = field(default_factory=list)

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:  # noqa: ARG002
        tx.after_commit(lambda: self.waiting.append(run_id))

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: Transaction) -> tuple[int, ...]:  # noqa: ARG002
        return ()


@dataclass
class Office:
    workflow: Workflow
    parts: WorkflowContext
    fleet: ToyFleet
    queue: ByHand
    policies: PolicyDirectory

    @property
    def database(self) -> Database:
        return self.parts.database

    def ask(self, runbook: AnyRunbook, person: str = "dora", reason: str = "") -> Run:
        """Ask and plan: the run as people see it next."""
        run = self.workflow.request_run(runbook, person=person, origin=WEB, reason=reason)
        self.work()
        return self.run(run.id)

    def approve(self, run: Run, person: str = "olga") -> Run:
        """Turn the second key and let the run go as far as it goes."""
        self.workflow.approve_run(run.id, person=person, digest=run.digest)
        self.work()
        return self.run(run.id)

    def work(self) -> None:
        while self.queue.waiting:
            self.workflow.advance_run(self.queue.waiting.pop(0))

    def run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def entries(self, run: Run | None = None) -> list[str]:
        with self.database.reading() as tx:
            found = (
                change_log.list_entries_of_run(tx, run.id)
                if run
                else change_log.list_entries_after(tx, 0)
            )
        return [entry.kind for entry in found]


@contextmanager
def an_office(
    directory: Path, *, rules: str | None = None, database: Database | None = None
) -> Generator[Office]:
    policies = a_policy(directory / "policy", rules=rules)
    store = database or empty(directory / "keyturn.db")
    if database is not None:
        migrations.upgrade_schema(store)
    fleet, queue = ToyFleet(), ByHand()
    parts = WorkflowContext(store, policies, fleet, queue, runbooks=RUNBOOKS)
    yield Office(Workflow(parts), parts, fleet, queue, policies)
    store.close()

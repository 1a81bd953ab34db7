"""The test harness: a workflow with a toy fleet, a real database and the starter rules."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.audit import change_log
from bot.db import runs
from bot.db.database import Database, Transaction
from bot.features import load_hooks
from bot.model.references import list_referenced_runs, show_references
from bot.model.run import RequestOrigin, RequestTerms, Run
from bot.policy import Policy, PolicyDirectory
from bot.queries.approval_count import ApprovalCount, count_approvals
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from runbooks import AnyRunbook
from tests.bot.databases import add_schema, create_sqlite_database
from tests.bot.duties import with_facts
from tests.policies import write_policy
from tests.toy import RUNBOOKS, ToyFleet

WEB = RequestOrigin("web")


@dataclass
class ManualDispatcher:
    """A dispatcher that starts nothing: tests decide when queued work is done."""

    enqueued: list[int] = field(default_factory=list)

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:  # noqa: ARG002
        tx.after_commit(lambda: self.enqueued.append(run_id))

    enqueue_check = enqueue_run

    def list_dispatched_runs(self, tx: Transaction) -> tuple[int, ...]:  # noqa: ARG002
        return ()


def authorise_all(
    _context: WorkflowContext, tx: Transaction, run: Run, policy: Policy
) -> ApprovalCount:
    """Stand where the gate checks the authority of a run, and refuse none."""
    return count_approvals(tx, policy, run)


@dataclass
class Harness:
    service: KeyturnService
    context: WorkflowContext
    fleet: ToyFleet
    dispatcher: ManualDispatcher
    policies: PolicyDirectory

    @property
    def database(self) -> Database:
        return self.context.database

    def request(
        self, runbook: AnyRunbook, person: str = "dora", reason: str = "", **terms: Any
    ) -> Run:
        """Request and plan a run, and return it."""
        run = self.service.request_run(runbook, RequestTerms(person, WEB, reason, **terms))
        self.run_queued_work()
        return self.get_run(run.id)

    def approve(self, run: Run, person: str = "olga") -> Run:
        """Approve a run, execute all that is queued, and return the run."""
        self.service.approve_run(run.id, person=person, digest=run.digest)
        self.run_queued_work()
        return self.get_run(run.id)

    def run_queued_work(self) -> None:
        while self.dispatcher.enqueued:
            self.service.advancer.advance_run(self.dispatcher.enqueued.pop(0))

    def get_run(self, number: int) -> Run:
        """Return a run as a person reads it who may view everything."""
        with self.database.reading() as tx:
            run = runs.get_run(tx, number)
        waiting = run.waiting and replace(run.waiting, is_run_viewable=run.waiting.run is not None)
        shown = run.show_references(lambda text: show_references(text, list_referenced_runs(text)))
        return replace(shown, waiting=waiting)

    def list_entry_kinds(self, run: Run | None = None) -> list[str]:
        with self.database.reading() as tx:
            entries = (
                change_log.list_entries_of_run(tx, run.id)
                if run
                else change_log.list_entries_after(tx, 0)
            )
        return [entry.kind for entry in entries]


@contextmanager
def open_harness(
    directory: Path,
    *,
    rules: str | None = None,
    database: Database | None = None,
    fleet: ToyFleet | None = None,
) -> Generator[Harness]:
    written = write_policy(directory / "policy", rules=rules)
    store = database or create_sqlite_database(directory / "keyturn.db")
    if store.embedded and database is not None:
        # One of PostgreSQL is a copy of one that has it.
        add_schema(store)
    fleet, dispatcher, hooks = fleet or ToyFleet(), ManualDispatcher(), load_hooks()
    policies = with_facts(written, store, *hooks.policy_facts)
    context = WorkflowContext(store, policies, fleet, dispatcher, runbooks=RUNBOOKS, hooks=hooks)
    yield Harness(KeyturnService(context), context, fleet, dispatcher, policies)
    store.close()

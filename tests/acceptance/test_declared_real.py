"""The page that docs/runbooks.md shows, requested, approved and undone on real hosts."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.features import load_hooks
from bot.model.run import RequestTerms, Run, State
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import Change, load_catalogue
from runbooks._declared import register_page
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, Harness, ManualDispatcher
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import (
    HOST,
    open_enrolled_service,
)
from tests.playground.sshd import Sshd
from tests.policies import write_policy
from tests.runbooks.pages import load_change_page
from tests.toy import ToyFleet

pytestmark = pytest.mark.real

_PAGE = Path(__file__).parents[2] / "docs" / "runbooks.md"


def load_maintenance(directory: Path) -> type[Change[Any]]:
    """Return the runbook of the page as it is, for another directory."""
    (text,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    text = text.replace("/var/tmp", str(directory))
    runbook = load_change_page(text)
    register_page(runbook)
    return runbook


def test_page_of_the_documentation_is_approved_and_undone_on_a_real_host(
    sshd: Sshd, tmp_path: Path
):
    flags = tmp_path / "flags"
    flags.mkdir()
    runbook = load_maintenance(flags)
    policies = write_policy(tmp_path / "policy")
    with (tmp_path / "policy" / "inventory.yaml").open("w") as file:
        YAML().dump({"hosts": {"web1": sshd.inventory_entry(area="web")}}, file)
    fleet = Fleet(policies.get_policy().inventory, SshPool(tmp_path / "policy"))
    queue = ManualDispatcher()
    database = create_sqlite_database(tmp_path / "keyturn.db")
    catalogue = {**load_catalogue(), runbook.words: runbook}
    context = WorkflowContext(
        database, policies, fleet, queue, runbooks=catalogue, hooks=load_hooks()
    )
    service = KeyturnService(context)
    harness = Harness(service, context, ToyFleet(), queue, policies)
    request = runbook.model_validate({"host": "web1", "mode": "on"})
    run = harness.request(request)
    assert run.state is State.PENDING
    done = harness.approve(run)
    assert (done.state, [one.name for one in flags.iterdir()]) == (
        State.SUCCEEDED,
        ["maintenance"],
    ), done.summary
    undo = _wait(harness, service.request_undo(run.id, RequestTerms("dora", WEB)))
    assert (harness.approve(undo).state, [*flags.iterdir()]) == (State.SUCCEEDED, [])
    fleet.close()
    database.close()


def _wait(harness: Harness, run: Run) -> Run:
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_page_of_the_documentation_runs_on_an_enrolled_host_with_two_signatures(
    tmp_path: Path, enrolled: EnrolledLogins, keys: Mapping[str, SshKey]
):
    flags = enrolled.directory / "flags"
    flags.mkdir()
    for place in (enrolled.directory.parent, enrolled.directory, flags):
        place.chmod(0o755)  # so that the login which reads can look
    runbook = load_maintenance(flags)
    with open_enrolled_service(tmp_path, enrolled, keys, runbooks=[runbook]) as gate:
        run = gate.harness.request(runbook.model_validate({"host": HOST, "mode": "on"}))
        assert run.state is State.PENDING, run.summary
        done = gate.sign_and_approve(run)
        assert (done.state, (flags / "maintenance").exists()) == (State.SUCCEEDED, True)
        undo = gate.wait(gate.service.request_undo(run.id, RequestTerms("dora", WEB)))
        assert gate.sign_and_approve(undo).state is State.SUCCEEDED
        assert not (flags / "maintenance").exists()

"""The runbooks that block user agents, against a real Apache over a real sshd."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import apache_agents as dialect
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Refused
from runbooks.agents import BlockAgent, UnblockAgent
from runbooks.bots_top import BotsTop
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.playground.apache import Apache
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

VALUES = {"host": "web1", "agent": "Evil.Bot/2", "server": "apache"}
BLOCK = BlockAgent.model_validate(VALUES)
UNBLOCK = UnblockAgent.model_validate(VALUES)


@pytest.fixture
def apache() -> Iterator[Apache]:
    apache = Apache()
    (apache.conf_d / "keyturn-agents.conf").touch()
    with apache:
        yield apache


@pytest.fixture
def fleet(sshd: Sshd, apache: Apache) -> Iterator[Fleet]:
    settings = {
        "apache.control": str(apache.control),
        "apache.agents": f"{apache.conf_d}/keyturn-agents.conf",
        "access_log.files": f"{apache.directory}/access.log*",
    }
    entry = sshd.inventory_entry(area="web", settings=settings)
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def wait_for_status(apache: Apache, agent: str, status: int) -> None:
    """Wait until an agent is answered so: Apache lets its old workers go after it was told."""
    end = time.monotonic() + 10
    while apache.get(agent) != status:
        assert time.monotonic() < end, f"{agent} is not answered with {status}"
        time.sleep(0.02)


def test_apache_refuses_a_blocked_agent_until_the_undo(fleet: Fleet, apache: Apache):
    plan = execute_plan(fleet, BLOCK)
    wait_for_status(apache, "Mozilla/5.0 (compatible; evil.bot/2.1)", 403)
    # A dot is a dot.
    wait_for_status(apache, "EvilxBot/2", 200)
    wait_for_status(apache, "Mozilla/5.0 Firefox/133.0", 200)
    undo_plan(fleet, BLOCK, plan)
    wait_for_status(apache, "Evil.Bot/2", 200)


def test_apache_admits_an_unblocked_agent_and_still_refuses_others(fleet: Fleet, apache: Apache):
    execute_plan(fleet, BLOCK)
    execute_plan(fleet, BlockAgent.model_validate(VALUES | {"agent": "C++ Crawler"}))
    plan = execute_plan(fleet, UNBLOCK)
    wait_for_status(apache, "Evil.Bot/2", 200)
    wait_for_status(apache, "C++ Crawler", 403)
    undo_plan(fleet, UNBLOCK, plan)
    wait_for_status(apache, "Evil.Bot/2", 403)
    assert fleet.run_query("web1", dialect.query_agents()).refused == ("C++ Crawler", "Evil.Bot/2")


def test_apache_agent_list_is_restored_when_the_configuration_test_fails(
    fleet: Fleet, apache: Apache
):
    plan = BLOCK.plan(BLOCK.read(fleet.run_query))
    (apache.conf_d / "broken.conf").write_text("Nonsense\n")
    with pytest.raises(CommandError, match="its configuration: nothing was changed"):
        fleet.run_command("web1", fleet.resolve_command("web1", plan.steps[0].do))
    (apache.conf_d / "broken.conf").unlink()
    assert fleet.run_query("web1", dialect.query_agents()).refused == ()
    assert apache.get("Evil.Bot/2") == 200


def test_stopped_apache_is_not_started_and_its_agent_list_is_unchanged(
    fleet: Fleet, apache: Apache
):
    plan = BLOCK.plan(BLOCK.read(fleet.run_query))
    apache.stop()
    with pytest.raises(CommandError, match="Apache is not running: nothing was changed"):
        fleet.run_command("web1", fleet.resolve_command("web1", plan.steps[0].do))
    assert fleet.run_query("web1", dialect.query_agents()).refused == ()
    with pytest.raises(OSError, match="refused"):
        apache.get("anybody")


def test_apache_without_the_agent_list_include_is_reported_with_the_fix(
    fleet: Fleet, apache: Apache
):
    (apache.conf_d / "keyturn-agents.conf").unlink()
    with pytest.raises(
        Refused, match="no server of apache on web1 includes Keyturn's list: create an empty"
    ):
        BLOCK.plan(BLOCK.read(fleet.run_query))


def test_apache_access_log_is_counted_by_agent(fleet: Fleet, apache: Apache):
    execute_plan(fleet, BLOCK)
    wait_for_status(apache, "Evil.Bot/2", 403)
    look = BotsTop.model_validate({"host": "web1"})
    report = look.report(look.read(fleet.run_query))
    assert report.table is not None
    assert "Evil.Bot/2" in {row[5] for row in report.table.rows}

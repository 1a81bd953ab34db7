"""The runbooks that block user agents, against a real nginx over a real sshd."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import nginx_agents
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Refused
from runbooks.agents import BlockAgent, UnblockAgent
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

VALUES = {"host": "web1", "agent": "Evil.Bot/2"}
BLOCK = BlockAgent.model_validate(VALUES)
UNBLOCK = UnblockAgent.model_validate(VALUES)


@pytest.fixture
def nginx() -> Iterator[Nginx]:
    nginx = Nginx("include keyturn-agents.conf;")
    (nginx.directory / "keyturn-agents.conf").touch()
    with nginx:
        yield nginx


@pytest.fixture
def fleet(sshd: Sshd, nginx: Nginx) -> Iterator[Fleet]:
    settings = {
        "nginx.config": str(nginx.configuration),
        "nginx.agents": f"{nginx.directory}/keyturn-agents.conf",
    }
    entry = sshd.inventory_entry(area="web", settings=settings)
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def wait_for_status(nginx: Nginx, agent: str, status: int) -> None:
    """Wait until an agent is answered so: nginx lets its old workers go after it was told."""
    end = time.monotonic() + 10
    while nginx.get("/", agent) != status:
        assert time.monotonic() < end, f"{agent} is not answered with {status}"
        time.sleep(0.02)


def test_nginx_refuses_a_blocked_agent_until_the_undo(fleet: Fleet, nginx: Nginx):
    plan = execute_plan(fleet, BLOCK)
    wait_for_status(nginx, "Mozilla/5.0 (compatible; evil.bot/2.1)", 403)
    # A dot is a dot.
    wait_for_status(nginx, "EvilxBot/2", 200)
    wait_for_status(nginx, "Mozilla/5.0 Firefox/133.0", 200)
    undo_plan(fleet, BLOCK, plan)
    wait_for_status(nginx, "Evil.Bot/2", 200)


def test_nginx_admits_an_unblocked_agent_and_still_refuses_others(fleet: Fleet, nginx: Nginx):
    other = BlockAgent.model_validate(VALUES | {"agent": "C++ Crawler"})
    execute_plan(fleet, BLOCK)
    execute_plan(fleet, other)
    plan = execute_plan(fleet, UNBLOCK)
    wait_for_status(nginx, "Evil.Bot/2", 200)
    wait_for_status(nginx, "C++ Crawler", 403)
    undo_plan(fleet, UNBLOCK, plan)
    wait_for_status(nginx, "Evil.Bot/2", 403)
    assert fleet.run_query("web1", nginx_agents.query_agents()).refused == (
        "C++ Crawler",
        "Evil.Bot/2",
    )


def test_nginx_agent_list_is_restored_when_the_configuration_test_fails(
    fleet: Fleet, nginx: Nginx
):
    plan = BLOCK.plan(BLOCK.read(fleet.run_query))
    (nginx.conf_d / "broken.conf").write_text("nonsense;\n")
    with pytest.raises(CommandError, match="nothing was changed"):
        fleet.run_command("web1", plan.steps[0].do)
    (nginx.conf_d / "broken.conf").unlink()
    assert fleet.run_query("web1", nginx_agents.query_agents()).refused == ()
    assert nginx.get("/", "Evil.Bot/2") == 200


def test_stopped_nginx_is_reported_and_its_agent_list_is_unchanged(fleet: Fleet, nginx: Nginx):
    plan = BLOCK.plan(BLOCK.read(fleet.run_query))
    nginx.stop()
    with pytest.raises(CommandError, match="nginx is not running: nothing was changed"):
        fleet.run_command("web1", plan.steps[0].do)
    assert fleet.run_query("web1", nginx_agents.query_agents()).refused == ()


def test_nginx_without_the_agent_list_include_is_reported_with_the_fix(sshd: Sshd):
    with Nginx() as nginx:
        entry = sshd.inventory_entry(
            area="web", settings={"nginx.config": str(nginx.configuration)}
        )
        fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
        with pytest.raises(Refused, match="add `include"):
            BLOCK.plan(BLOCK.read(fleet.run_query))
        fleet.close()

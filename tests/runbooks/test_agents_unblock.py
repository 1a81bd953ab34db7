import pytest
from pydantic import ValidationError

from connectors import apache_agents, nginx_agents
from connectors.agent_list import AgentList
from runbooks import Plan, Refused
from runbooks.agents_unblock import UnblockAgent
from tests.connectors.test_apache_agents import TWO as TWO_OF_APACHE
from tests.connectors.test_nginx_agents import TWO
from tests.runbooks.test_agents_block import HOSTILE_AGENTS
from tests.scripted_fleet import ScriptedFleet

UNBLOCK = UnblockAgent.model_validate({"host": "web1", "agent": "EvilBot/2"})


def test_agents_unblock_removes_an_agent_and_undo_adds_it():
    fleet = ScriptedFleet({("web1", nginx_agents.query_agents().command): TWO})
    (step,) = UNBLOCK.plan(UNBLOCK.read(fleet.run_query)).steps
    assert step.do == nginx_agents.unblock_agent("EvilBot/2")
    assert step.undo == nginx_agents.block_agent("EvilBot/2")


def test_agents_unblock_of_an_unblocked_agent_plans_no_steps():
    assert UNBLOCK.plan(AgentList((), 1, 1)) == Plan("EvilBot/2 is not blocked by Keyturn's list")


def test_agents_unblock_names_the_entry_that_blocks_the_agent():
    with pytest.raises(
        Refused, match="EvilBot/2 is blocked by the entry evilbot: unblock evilbot"
    ):
        UNBLOCK.plan(AgentList(("evilbot",), 1, 1))


@pytest.mark.parametrize("agent", HOSTILE_AGENTS)
def test_agents_unblock_refuses_an_invalid_agent_before_any_query(agent: object):
    with pytest.raises(ValidationError):
        UnblockAgent.model_validate({"host": "web1", "agent": agent})


def test_agents_unblock_changes_apache_when_requested():
    unblock = UnblockAgent.model_validate(
        {"host": "web1", "agent": "EvilBot/2", "server": "apache"}
    )
    fleet = ScriptedFleet({("web1", apache_agents.query_agents().command): TWO_OF_APACHE})
    (step,) = unblock.plan(unblock.read(fleet.run_query)).steps
    assert (step.do, step.undo) == (
        apache_agents.unblock_agent("EvilBot/2"),
        apache_agents.block_agent("EvilBot/2"),
    )

import pytest
from pydantic import ValidationError

from connectors import apache_agents, nginx_agents
from connectors.agent_list import AgentList
from connectors.rows import Rows
from runbooks import NoUndo, Plan, Refused
from runbooks.agents import BlockAgent, UnblockAgent
from tests.connectors.test_apache_agents import TWO as TWO_OF_APACHE
from tests.connectors.test_nginx_agents import TWO
from tests.scripted_fleet import ScriptedFleet

BLOCK = BlockAgent.model_validate({"host": "web1", "agent": "BadBot/1.0"})
HEEDED = AgentList(Rows(("EvilBot/2",)), including_count=2, server_count=2)

HOSTILE_AGENTS = (
    "",
    "a",
    "abc",
    " abcd",
    "abcd ",
    "-abcd",
    'bad"bot',
    "bad;bot",
    "bad{bot}",
    "$http_cookie",
    "bad\\bot",
    "bad*bot",
    ".*.*",
    "bad|bot",
    "bad\nbot",
    "bad\0bot",
    "bad'bot",
    "b(a)d.bot",
    "ｂａｄbot",
    "bad\u200bbot",
    "x" * 100,
    7,
    None,
    ["BadBot"],
)


def test_agents_block_adds_an_agent_and_undo_removes_it():
    plan = BLOCK.plan(HEEDED)
    (step,) = plan.steps
    assert step.do == nginx_agents.block_agent("BadBot/1.0")
    assert not isinstance(step.undo, NoUndo)
    assert step.undo == nginx_agents.unblock_agent("BadBot/1.0")
    assert plan.notes == ["A client chooses its own user agent and can easily change it."]


def test_agents_block_of_a_blocked_agent_plans_no_steps():
    assert BLOCK.plan(AgentList(Rows(("BadBot/1.0",)), 2, 2)) == Plan("BadBot/1.0 is blocked")


def test_agents_block_refuses_a_host_that_does_not_include_the_list():
    with pytest.raises(Refused, match=r"no server of nginx on web1 includes Keyturn's list"):
        BLOCK.plan(AgentList(Rows(()), 0, 3))


def test_agents_block_notes_servers_that_do_not_include_the_list():
    plan = BLOCK.plan(AgentList(Rows(()), 1, 3))
    assert any("1 of 3 servers" in note for note in plan.notes)


def test_agents_block_notes_that_the_agent_is_a_search_engine():
    google = BlockAgent.model_validate({"host": "web1", "agent": "Googlebot"})
    assert any("search engine" in note for note in google.plan(HEEDED).notes)


@pytest.mark.parametrize(
    "agent", ["Mozilla", "mozilla/5.0", "Chrome", "Safari", "Gecko", "Linux", "Pingdom", "Windows"]
)
def test_agents_block_refuses_an_agent_that_browsers_send_before_any_query(agent: str):
    fleet = ScriptedFleet(hosts=["web1"])
    everybody = BlockAgent.model_validate({"host": "web1", "agent": agent})
    with pytest.raises(Refused, match="people would be blocked"):
        everybody.read(fleet.run_query)
    assert fleet.asked == []


def test_agents_block_reads_blocked_agents_from_the_nginx_configuration():
    fleet = ScriptedFleet({("web1", nginx_agents.query_agents().command): TWO})
    assert BLOCK.read(fleet.run_query).refused == ("EvilBot/2", "C++ Crawler 1.0")


@pytest.mark.parametrize("agent", HOSTILE_AGENTS)
def test_agents_block_refuses_an_invalid_agent_before_any_query(agent: object):
    with pytest.raises(ValidationError):
        BlockAgent.model_validate({"host": "web1", "agent": agent})


def test_agents_block_changes_apache_when_requested():
    block = BlockAgent.model_validate({"host": "web1", "agent": "BadBot/1.0", "server": "apache"})
    fleet = ScriptedFleet({("web1", apache_agents.query_agents().command): TWO_OF_APACHE})
    plan = block.plan(block.read(fleet.run_query))
    (step,) = plan.steps
    assert (step.do, step.undo) == (
        apache_agents.block_agent("BadBot/1.0"),
        apache_agents.unblock_agent("BadBot/1.0"),
    )
    with pytest.raises(
        Refused, match="no server of apache on web1 includes Keyturn's list: create an empty"
    ):
        block.plan(AgentList(Rows(()), 0, 1))


@pytest.mark.parametrize(
    "server",
    ["", "iis", "Apache", "-x", "nginx ", "nginx\n", "nginx;id", "*", "nginx,apache", 1, None, []],
)
def test_agents_block_refuses_an_unknown_web_server(server: object):
    with pytest.raises(ValidationError):
        BlockAgent.model_validate({"host": "web1", "agent": "BadBot", "server": server})


UNBLOCK = UnblockAgent.model_validate({"host": "web1", "agent": "EvilBot/2"})


def test_agents_unblock_removes_an_agent_and_undo_adds_it():
    fleet = ScriptedFleet({("web1", nginx_agents.query_agents().command): TWO})
    (step,) = UNBLOCK.plan(UNBLOCK.read(fleet.run_query)).steps
    assert step.do == nginx_agents.unblock_agent("EvilBot/2")
    assert step.undo == nginx_agents.block_agent("EvilBot/2")


def test_agents_unblock_of_an_unblocked_agent_plans_no_steps():
    assert UNBLOCK.plan(AgentList(Rows(()), 1, 1)) == Plan(
        "EvilBot/2 is not blocked by Keyturn's list"
    )


def test_agents_unblock_names_the_entry_that_blocks_the_agent():
    with pytest.raises(
        Refused, match="EvilBot/2 is blocked by the entry evilbot: unblock evilbot"
    ):
        UNBLOCK.plan(AgentList(Rows(("evilbot",)), 1, 1))


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

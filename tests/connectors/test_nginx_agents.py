from pathlib import Path

import pytest

from connectors import nginx_agents
from connectors.agent_list import AgentList
from connectors.command import Answer, find_failure
from connectors.nginx_agents import parse_agents
from connectors.rows import Rows
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "agents"
TWO = (ANSWERS / "two.txt").read_text()


def test_blocked_agents_in_the_nginx_file_of_keyturn_are_parsed():
    assert parse_agents(TWO) == AgentList(
        Rows(("EvilBot/2", "C++ Crawler 1.0")), including_count=1, server_count=1
    )
    nobody = (ANSWERS / "nobody.txt").read_text()
    assert parse_agents(nobody) == AgentList(Rows(()), including_count=1, server_count=1)


def test_nginx_counts_the_servers_that_include_the_blocked_agents():
    without = TWO.replace("include keyturn-agents.conf;", "# include keyturn-agents.conf;")
    assert parse_agents(without).including_count == 0
    second = TWO.replace("server {", "server { listen 81; }\n    server {", 1)
    assert (parse_agents(second).including_count, parse_agents(second).server_count) == (1, 2)


@pytest.mark.parametrize(
    "answer", ["", "server {}\n", TWO + "deny all;\n", TWO.replace("return 403", "return 444")]
)
def test_nginx_agents_file_that_keyturn_did_not_write_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_agents(answer))


@pytest.mark.parametrize(
    "agent",
    ['a"b', "a;b", "a{b", "a$b", "a\\b", "a(b", "a*b", "a|b", "a[b", "a^b", "é", "a\nb", "a'b"],
)
def test_agent_with_characters_special_to_nginx_is_refused(agent: str):
    with pytest.raises(ValueError, match=r"special meaning|invisible"):
        nginx_agents.block_agent(agent)


def test_dot_and_plus_in_an_agent_are_escaped_for_nginx():
    line = 'if ($http_user_agent ~* "C\\+\\+ v1\\.0") { return 403; }'
    assert nginx_agents.block_agent("C++ v1.0").words[-2:] == ("add", line)
    assert nginx_agents.unblock_agent("C++ v1.0").words[-2:] == ("remove", line)


def test_invalid_nginx_configuration_stops_the_block_of_an_agent():
    failure = Answer(1, "", 'nginx: [emerg] unknown directive "nonsense" in conf.d/broken.conf:1')
    assert "nothing was changed" in str(
        find_failure(nginx_agents.block_agent("abcd"), failure, frozenset({0}))
    )

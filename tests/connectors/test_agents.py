from pathlib import Path

import pytest

from connectors import agents
from connectors.agent_list import Agents
from connectors.agents import parse_agents
from connectors.command import Answer, failure
from connectors.trouble import NotUnderstood

ANSWERS = Path(__file__).parent / "answers" / "agents"
TWO = (ANSWERS / "two.txt").read_text()


def test_whom_our_file_refuses_is_understood():
    assert parse_agents(TWO) == Agents(("EvilBot/2", "C++ Crawler 1.0"), heeding=1, servers=1)
    nobody = (ANSWERS / "nobody.txt").read_text()
    assert parse_agents(nobody) == Agents((), heeding=1, servers=1)


def test_a_server_that_does_not_include_it_does_not_heed_it():
    without = TWO.replace("include keyturn-agents.conf;", "# include keyturn-agents.conf;")
    assert parse_agents(without).heeding == 0
    second = TWO.replace("server {", "server { listen 81; }\n    server {", 1)
    assert (parse_agents(second).heeding, parse_agents(second).servers) == (1, 2)


@pytest.mark.parametrize(
    "answer", ["", "server {}\n", TWO + "deny all;\n", TWO.replace("return 403", "return 444")]
)
def test_what_is_not_ours_is_never_taken_for_it(answer: str):
    with pytest.raises(NotUnderstood):
        parse_agents(answer)


@pytest.mark.parametrize(
    "agent",
    ['a"b', "a;b", "a{b", "a$b", "a\\b", "a(b", "a*b", "a|b", "a[b", "a^b", "é", "a\nb", "a'b"],
)
def test_what_nginx_might_act_on_cannot_be_said(agent: str):
    with pytest.raises(ValueError, match=r"cannot be said|invisible"):
        agents.refuse(agent)


def test_a_dot_and_a_plus_are_said_as_themselves():
    line = 'if ($http_user_agent ~* "C\\+\\+ v1\\.0") { return 403; }'
    assert agents.refuse("C++ v1.0").words[-2:] == ("add", line)
    assert agents.admit("C++ v1.0").words[-2:] == ("remove", line)


def test_a_configuration_that_nginx_does_not_take_is_told():
    said = Answer(1, "", 'nginx: [emerg] unknown directive "nonsense" in conf.d/broken.conf:1')
    assert "nothing was changed" in str(failure(agents.refuse("abcd"), said, frozenset({0})))

from pathlib import Path

import pytest

from connectors import apache_agents
from connectors.agent_list import AgentList
from connectors.apache_agents import parse_agents
from connectors.command import Answer, find_failure
from connectors.rows import Rows
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "apache"
TWO = (ANSWERS / "two.txt").read_text()
NOBODY = (ANSWERS / "nobody.txt").read_text()


def test_blocked_agents_in_the_apache_file_of_keyturn_are_parsed():
    assert parse_agents(TWO) == AgentList(
        Rows(("EvilBot/2", "C++ Crawler 1.0")), including_count=1, server_count=1
    )
    assert parse_agents(NOBODY) == AgentList(Rows(()), including_count=1, server_count=1)


def test_apache_without_the_include_has_no_including_server():
    lines = [line for line in NOBODY.splitlines() if "keyturn-agents" not in line]
    assert parse_agents("\n".join(lines) + "\n").including_count == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Syntax OK\n",
        TWO.replace("--- list\n", ""),
        TWO + "Require all granted\n",
        TWO.replace("Require all denied", "Require all granted"),
        TWO.replace("SetEnvIfNoCase", "SetEnvIf", 1),
    ],
)
def test_apache_agents_file_that_keyturn_did_not_write_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_agents(answer))


@pytest.mark.parametrize(
    "agent",
    ['a"b', "a;b", "a{b", "a$b", "a\\b", "a(b", "a*b", "a|b", "a[b", "a^b", "é", "a\nb", "a'b"],
)
def test_agent_with_characters_special_to_apache_is_refused(agent: str):
    with pytest.raises(ValueError, match=r"special meaning|invisible"):
        apache_agents.block_agent(agent)


def test_dot_and_plus_in_an_agent_are_escaped_for_apache():
    line = 'SetEnvIfNoCase User-Agent "C\\+\\+ v1\\.0" keyturn_refused'
    assert apache_agents.block_agent("C++ v1.0").words[-2:] == ("add", line)
    assert apache_agents.unblock_agent("C++ v1.0").words[-2:] == ("remove", line)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("AH00526: Syntax error on line 1 of /x.conf:", "nothing was changed"),
        ("Apache is not running", "nothing was changed"),
        ("keyturn: 1: apachectl: not found", "set apache.control in the inventory"),
        ("cat: /x/keyturn-agents.conf: No such file or directory", "create an empty"),
    ],
)
def test_apache_errors_say_what_to_do(output: str, words: str):
    assert words in str(
        find_failure(apache_agents.block_agent("abcd"), Answer(1, "", output), frozenset({0}))
    )

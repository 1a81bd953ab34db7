from pathlib import Path

import pytest

from connectors import apache
from connectors.agent_list import Agents
from connectors.apache import parse_agents
from connectors.command import Answer, failure
from connectors.trouble import NotUnderstood

ANSWERS = Path(__file__).parent / "answers" / "apache"
TWO = (ANSWERS / "two.txt").read_text()
NOBODY = (ANSWERS / "nobody.txt").read_text()


def test_whom_our_file_refuses_is_understood():
    assert parse_agents(TWO) == Agents(("EvilBot/2", "C++ Crawler 1.0"), heeding=1, servers=1)
    assert parse_agents(NOBODY) == Agents((), heeding=1, servers=1)


def test_a_file_that_apache_does_not_include_is_not_heeded():
    lines = [line for line in NOBODY.splitlines() if "keyturn-agents" not in line]
    assert parse_agents("\n".join(lines) + "\n").heeding == 0


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
def test_what_is_not_ours_is_never_taken_for_it(answer: str):
    with pytest.raises(NotUnderstood):
        parse_agents(answer)


@pytest.mark.parametrize(
    "agent",
    ['a"b', "a;b", "a{b", "a$b", "a\\b", "a(b", "a*b", "a|b", "a[b", "a^b", "é", "a\nb", "a'b"],
)
def test_what_apache_might_act_on_cannot_be_said(agent: str):
    with pytest.raises(ValueError, match=r"cannot be said|invisible"):
        apache.refuse(agent)


def test_a_dot_and_a_plus_are_said_as_themselves():
    line = 'SetEnvIfNoCase User-Agent "C\\+\\+ v1\\.0" keyturn_refused'
    assert apache.refuse("C++ v1.0").words[-2:] == ("add", line)
    assert apache.admit("C++ v1.0").words[-2:] == ("remove", line)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("AH00526: Syntax error on line 1 of /x.conf:", "nothing changed"),
        ("Apache is not running", "nothing was changed"),
        ("keyturn: 1: apachectl: not found", "set apache.control in the inventory"),
        ("cat: /x/keyturn-agents.conf: No such file or directory", "make an empty"),
    ],
)
def test_known_errors_say_what_to_do(said: str, words: str):
    assert words in str(failure(apache.refuse("abcd"), Answer(1, "", said), frozenset({0})))

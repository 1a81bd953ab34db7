"""Blocked user agents of Apache, in an include file of Keyturn's own. No I/O.

An administrator creates the file once, empty, in a directory of which Apache includes every file:
/etc/apache2/conf-enabled on Debian, /etc/httpd/conf.d elsewhere. It applies to all virtual hosts.

Formats: `apachectl -t -D DUMP_INCLUDES` and `DUMP_RUN_CFG`, since 2.4; `SetEnvIfNoCase` of
mod_setenvif; expressions of Apache 2.4.
"""

import re
from typing import Literal

from connectors.agent_list import AGENT_PATTERN, BROWSER_AGENTS, AgentList
from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.rows import parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern
from connectors.visible_text import quote_text

_CONTROL = Setting("apache.control", "apachectl", pattern=r"[\w./-]+")
_NAME = "keyturn-agents.conf"
_FILE = Setting(
    "apache.agents",
    f"/etc/apache2/conf-enabled/{_NAME}",
    pattern=r"(/[\w.-]+)+/keyturn-agents\.conf",
)
SETUP_ADVICE = (
    "create an empty /etc/apache2/conf-enabled/keyturn-agents.conf, or set apache.agents in the "
    "inventory to another file of that name that Apache includes"
)
_MARK = "--- list"

# The allowed part of a user agent, escaped for Apache. Blanks come first in character sets.
_NAMED = r"([ A-Za-z0-9_/-]|\\[.+])+"
_BEFORE, _AFTER = 'SetEnvIfNoCase User-Agent "', '" keyturn_refused'
_REFUSAL = ('<If "-n %{reqenv:keyturn_refused}">', "Require all denied", "</If>")
_LOOK = load_script("apache-agents-look", argument_count=2, MARK=_MARK)
_SCRIPT = load_script("apache-agents", argument_count=4, BROWSERS=BROWSER_AGENTS)
_LINE = re.compile(rf"{re.escape(_BEFORE)}({_NAMED}){re.escape(_AFTER)}", re.ASCII)
_HINTS = (
    Hint(
        r"apachectl: .*not found",
        "this host has no Apache. If its control program has another name, such as httpd, set "
        "apache.control in the inventory",
    ),
    Hint(r"Syntax error|Invalid command", "Apache refuses its configuration: nothing was changed"),
    Hint(r"Apache is not running", "Apache is not running: nothing was changed"),
    Hint(r"keyturn-agents\.conf: No such file", SETUP_ADVICE),
    Hint(r"[Pp]ermission denied", "this requires root: add the login's sudo rule"),
)


def query_agents() -> Query[AgentList]:
    return Query(Shell((_LOOK, _FILE, _CONTROL), root=True, hints=_HINTS), parse_agents)


def block_agent(agent: str) -> Shell:
    """Answer agents that contain this text, in any case, with status 403."""
    return _make_command("add", agent)


def unblock_agent(agent: str) -> Shell:
    return _make_command("remove", agent)


def _make_command(verb: Literal["add", "remove"], agent: str) -> Shell:
    return Shell((_SCRIPT, _FILE, _CONTROL, verb, _format_line(agent)), root=True, hints=_HINTS)


def _format_line(agent: str) -> str:
    escaped = re.sub(r"[.+]", r"\\\g<0>", agent)
    line = f"{_BEFORE}{escaped}{_AFTER}"
    if not _LINE.fullmatch(line):
        raise ValueError(f"{quote_text(agent)} has characters with a special meaning to Apache")
    return line


def parse_agents(answer: str) -> AgentList:
    """Parse the list of included files, followed by Keyturn's file."""
    included, mark, ours = answer.partition(f"{_MARK}\n")
    if not mark or not included.startswith("Included configuration files:\n"):
        raise ParseError(f"Apache printed {answer[:200]!r} instead of the files it includes")
    is_included = re.search(rf"(?m)^ +\(\d+\) /\S*/{re.escape(_NAME)}$", included) is not None
    lines = [line for line in ours.splitlines() if line.strip()]
    named = lines[: -len(_REFUSAL)] if tuple(lines[-len(_REFUSAL) :]) == _REFUSAL else lines
    return AgentList(
        parse_each(named, _parse_agent),
        including_count=int(is_included),
        server_count=1,
    )


def _parse_agent(line: str) -> str:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ParseError(f"Keyturn did not write this line of {_NAME}: remove it")
    return found[1].replace("\\", "")


# Words that are split differently name a file that does not exist.
_REFUSED = WordPattern(AGENT_PATTERN, prefix=_BEFORE, suffix=_AFTER, has_blanks=True)
SUDO = (
    SudoRule(_LOOK, _FILE, _CONTROL, read_only=True),
    *(SudoRule(_SCRIPT, _FILE, _CONTROL, verb, _REFUSED) for verb in ("add", "remove")),
)

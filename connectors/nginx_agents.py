"""Blocked user agents of nginx, in an include file of Keyturn's own. No I/O.

An administrator creates the file once, empty, and adds to each server that should use it

    include /etc/nginx/keyturn-agents.conf;

Formats: `nginx -T`; `if` and `return` of ngx_http_rewrite_module.
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

_CONFIGURATION = Setting("nginx.config", "/etc/nginx/nginx.conf", pattern=r"/[\w./-]+")
_NAME = "keyturn-agents.conf"
_FILE = Setting("nginx.agents", f"/etc/nginx/{_NAME}", pattern=r"(/[\w.-]+)+/keyturn-agents\.conf")

_SHOWN = ("-T", "-q", "-c")
# The allowed part of a user agent, escaped for nginx. Blanks come first in character sets.
_NAMED = r"([ A-Za-z0-9_/-]|\\[.+])+"
_BEFORE, _AFTER = 'if ($http_user_agent ~* "', '") { return 403; }'

_SCRIPT = load_script("nginx-agents", argument_count=4, BROWSERS=BROWSER_AGENTS)
_LINE = re.compile(rf"{re.escape(_BEFORE)}({_NAMED}){re.escape(_AFTER)}", re.ASCII)
SETUP_ADVICE = (
    "create an empty /etc/nginx/keyturn-agents.conf, and add `include "
    "/etc/nginx/keyturn-agents.conf;` to each server that should use it"
)
_HINTS = (
    Hint(r"nginx: .*not found", "this host has no nginx"),
    Hint(r"\[emerg\]", "nginx refuses its configuration: nothing was changed"),
    Hint(
        r"invalid PID|nginx\.pid|kill\(\d+, 1\) failed",
        "nginx is not running: nothing was changed",
    ),
    Hint(r"[Pp]ermission denied", "this requires root: add the login's sudo rule"),
)


def query_agents() -> Query[AgentList]:
    shell = Shell(("nginx", *_SHOWN, _CONFIGURATION), root=True, hints=_HINTS)
    return Query(shell, parse_agents)


def block_agent(agent: str) -> Shell:
    """Answer agents that contain this text, in any case, with status 403."""
    return _make_command("add", agent)


def unblock_agent(agent: str) -> Shell:
    return _make_command("remove", agent)


def _make_command(verb: Literal["add", "remove"], agent: str) -> Shell:
    words = (_SCRIPT, _FILE, _CONFIGURATION, verb, _format_line(agent))
    return Shell(words, root=True, hints=_HINTS)


def _format_line(agent: str) -> str:
    escaped = re.sub(r"[.+]", r"\\\g<0>", agent)
    line = f"{_BEFORE}{escaped}{_AFTER}"
    if not _LINE.fullmatch(line):
        raise ValueError(f"{quote_text(agent)} has characters with a special meaning to nginx")
    return line


def parse_agents(answer: str) -> AgentList:
    files = re.split(r"(?m)^# configuration file (\S+):$", answer)
    if len(files) < 3 or files[0].strip():
        raise ParseError(f"nginx printed {answer[:200]!r} instead of its configuration")
    texts = dict(zip(files[1::2], files[2::2], strict=True))
    ours = next((text for path, text in texts.items() if path.endswith(f"/{_NAME}")), "")
    others = "\n".join(text for path, text in texts.items() if not path.endswith(f"/{_NAME}"))
    plain = re.sub(r"(?m)^\s*#.*$", "", others)
    return AgentList(
        refused=parse_each(filter(str.strip, ours.splitlines()), _parse_agent),
        including_count=len(re.findall(rf"\sinclude\s+\S*{re.escape(_NAME)}\s*;", plain)),
        server_count=len(re.findall(r"[\s;}]server\s*\{", plain)),
    )


def _parse_agent(line: str) -> str:
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ParseError(f"Keyturn did not write this line of {_NAME}: remove it")
    return found[1].replace("\\", "")


# Words that are split differently name a file that does not exist.
_REFUSED = WordPattern(AGENT_PATTERN, prefix=_BEFORE, suffix=_AFTER, has_blanks=True)
SUDO = (
    SudoRule("/usr/sbin/nginx", *_SHOWN, _CONFIGURATION, read_only=True),
    *(SudoRule(_SCRIPT, _FILE, _CONFIGURATION, verb, _REFUSED) for verb in ("add", "remove")),
)

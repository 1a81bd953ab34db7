"""Which user agents a host's nginx refuses, by an include file of our own. No I/O.

The file is set up once, empty, and each server that is to heed it says

    include /etc/nginx/keyturn-agents.conf;

Formats: `nginx -T`; `if` and `return` of ngx_http_rewrite_module.
"""

import re
from typing import Literal

from connectors.agent_list import AGENT_PATTERN, REFUSE_BROWSERS, AgentList
from connectors.command import Hint, Query, Setting, Shell, quote_text
from connectors.errors import ParseError
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern

_CONFIGURATION = Setting("nginx.config", "/etc/nginx/nginx.conf", pattern=r"/[\w./-]+")
_NAME = "keyturn-agents.conf"
_FILE = Setting("nginx.agents", f"/etc/nginx/{_NAME}", pattern=r"(/[\w.-]+)+/keyturn-agents\.conf")

_SHOWN = ("-T", "-q", "-c")
# What a part of an agent's name may hold, escaped for nginx; a blank stands first in its set.
_NAMED = r"([ A-Za-z0-9_/-]|\\[.+])+"
_BEFORE, _AFTER = 'if ($http_user_agent ~* "', '") { return 403; }'

# $1: our file, $2: nginx's configuration, $3: add or remove, $4: the line. What nginx does not
# take, or cannot be told to load, is put back. The new file replaces the old one at once.
_SCRIPT = Script(
    "nginx-agents",
    REFUSE_BROWSERS + 'umask 022; file=$1 config=$2; old=$(cat "$file") || exit 1; '
    'put() { printf "%s\\n" "$1" > "$file.new" && mv "$file.new" "$file"; }; '
    'new=$(printf "%s\\n" "$old" | grep -vxF -e "$4"); '
    '[ "$3" = remove ] || new=$(printf "%s\\n%s" "$new" "$4"); put "$new" || exit 1; '
    'if nginx -t -q -c "$config" && nginx -s reload -c "$config"; then exit 0; fi; '
    'put "$old"; exit 1',
    argument_count=4,
)
_LINE = re.compile(rf"{re.escape(_BEFORE)}({_NAMED}){re.escape(_AFTER)}", re.ASCII)
SETUP_ADVICE = (
    "make an empty /etc/nginx/keyturn-agents.conf, and put `include "
    "/etc/nginx/keyturn-agents.conf;` into each server that is to"
)
_HINTS = (
    Hint(r"nginx: .*not found", "this host has no nginx"),
    Hint(r"\[emerg\]", "nginx does not take its configuration so: nothing was changed"),
    Hint(
        r"invalid PID|nginx\.pid|kill\(\d+, 1\) failed", "nginx does not run: nothing was changed"
    ),
    Hint(r"[Pp]ermission denied", "only root may do this: the login's sudo rule is missing"),
)


def query_agents() -> Query[AgentList]:
    shell = Shell(("nginx", *_SHOWN, _CONFIGURATION), root=True, hints=_HINTS)
    return Query(shell, parse_agents)


def block_agent(agent: str) -> Shell:
    """Answer agents with 403 whose name holds these letters, in capitals or not."""
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
        raise ValueError(
            f"{quote_text(agent)} cannot be said to nginx, which may act on parts of it"
        )
    return line


def parse_agents(answer: str) -> AgentList:
    files = re.split(r"(?m)^# configuration file (\S+):$", answer)
    if len(files) < 3 or files[0].strip():
        raise ParseError(f"nginx answered {answer[:200]!r} instead of its configuration")
    texts = dict(zip(files[1::2], files[2::2], strict=True))
    ours = next((text for path, text in texts.items() if path.endswith(f"/{_NAME}")), "")
    others = "\n".join(text for path, text in texts.items() if not path.endswith(f"/{_NAME}"))
    plain = re.sub(r"(?m)^\s*#.*$", "", others)
    return AgentList(
        refused=tuple(_parse_agent(line) for line in ours.splitlines() if line.strip()),
        including_count=len(re.findall(rf"\sinclude\s+\S*{re.escape(_NAME)}\s*;", plain)),
        server_count=len(re.findall(r"[\s;}]server\s*\{", plain)),
    )


def _parse_agent(line: str) -> str:
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ParseError(f"{_NAME} holds {line[:120]!r}, which is not ours: take it out first")
    return found[1].replace("\\", "")


# Where its words are parted otherwise, there is no such file as the first one names.
_REFUSED = WordPattern(AGENT_PATTERN, prefix=_BEFORE, suffix=_AFTER, has_blanks=True)
SUDO = (
    SudoRule("/usr/sbin/nginx", *_SHOWN, _CONFIGURATION, read_only=True),
    *(SudoRule(_SCRIPT, _FILE, _CONFIGURATION, verb, _REFUSED) for verb in ("add", "remove")),
)

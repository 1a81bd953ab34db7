"""Keyturn's list of blocked user agents, for any web server. No I/O."""

from dataclasses import dataclass

from connectors.rows import Rows

# User agents of browsers and of monitoring. Blocking a part of one would block everyone.
BROWSERS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Mozilla/5.0 (Linux; Android 14; Pixel 8)",
    "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)",
)
# A part of a user agent as AgentName allows it, escaped. Blanks come first in character sets.
AGENT_PATTERN = r"[A-Za-z0-9]([ A-Za-z0-9_/-]|\\[.+]){2,78}[A-Za-z0-9]"
# For connectors/scripts/agents-guard.sh: no part of a user agent has a "|".
BROWSER_AGENTS = "|".join(BROWSERS)


@dataclass(frozen=True)
class AgentList:
    """The blocked user agents of a web server."""

    refused: Rows[str]
    """The agents in Keyturn's file, in its order."""
    including_count: int
    """How many virtual servers include the file."""
    server_count: int
    """How many virtual servers there are."""

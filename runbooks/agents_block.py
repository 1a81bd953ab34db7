from typing import Literal

from pydantic import Field

from connectors import agents, apache
from connectors.agent_list import Agents
from connectors.command import Ask
from runbooks import AgentName, Change, Host, Plan, Refused, Step

# What browsers and our own monitoring call themselves. Who refuses a part of it refuses everybody.
_PEOPLE = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Mozilla/5.0 (Linux; Android 14; Pixel 8)",
    "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)",
)
_ENGINES = ("googlebot", "bingbot", "yandex", "duckduckbot", "applebot", "baiduspider")


class BlockAgent(
    Change[Agents],
    words="agents block",
    example="web1 EvilBot/2",
    undo="lets the agent in again",
):
    """Refuse the requests of a user agent in nginx or Apache, by a part of its name."""

    host: Host
    agent: AgentName
    server: Literal["nginx", "apache"] = Field(
        default="nginx", description="The web server that is to refuse it"
    )

    def read(self, ask: Ask) -> Agents:
        self._refuse_everybody()
        dialect = apache if self.server == "apache" else agents
        return ask(self.host, dialect.agents())

    def plan(self, found: Agents) -> Plan:
        self._refuse_everybody()
        if self.agent in found.refused:
            return Plan(f"{self.agent} is refused already")
        dialect = apache if self.server == "apache" else agents
        if not found.heeding:
            raise Refused(
                f"no server of {self.server} on {self.host} heeds our list: {dialect.SET_UP}"
            )
        step = Step(
            f"Refuse agents whose name holds {self.agent}, and have {self.server} read it",
            self.host,
            do=dialect.refuse(self.agent),
            undo=dialect.admit(self.agent),
            before="let in",
            after="answered with 403",
        )
        return Plan(f"{self.agent} is let in", [step], self._notes(found))

    def _refuse_everybody(self) -> None:
        name = self.agent.lower()
        if any(name in person.lower() for person in _PEOPLE):
            raise Refused(
                f"{self.agent} is a part of what browsers or Pingdom call themselves: people "
                "would be refused"
            )

    def _notes(self, found: Agents) -> list[str]:
        notes = ["An agent is what a client says of itself: it is changed in a moment."]
        if found.heeding < found.servers:
            notes.append(
                f"{found.heeding} of {found.servers} servers in {self.server}'s configuration "
                "heed the list; the others let the agent in."
            )
        if any(engine in self.agent.lower() for engine in _ENGINES):
            notes.append("This is a search engine: it will forget the pages that it is refused.")
        return notes

from typing import Literal

from pydantic import Field

from connectors import agents, apache
from connectors.agent_list import PEOPLE, Agents
from connectors.command import Ask
from runbooks import AgentName, Change, Host, Plan, Refused, Step

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
        if any(name in person.lower() for person in PEOPLE):
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

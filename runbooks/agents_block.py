from typing import Literal

from pydantic import Field

from connectors import apache_agents, nginx_agents
from connectors.agent_list import BROWSERS, AgentList
from connectors.command import QueryRunner
from runbooks import AgentName, Change, Host, Plan, Refused, Step

_ENGINES = ("googlebot", "bingbot", "yandex", "duckduckbot", "applebot", "baiduspider")


class BlockAgent(
    Change[AgentList],
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

    def read(self, run_query: QueryRunner) -> AgentList:
        self._refuse_browsers()
        dialect = apache_agents if self.server == "apache" else nginx_agents
        return run_query(self.host, dialect.query_agents())

    def plan(self, found: AgentList) -> Plan:
        self._refuse_browsers()
        if self.agent in found.refused:
            return Plan(f"{self.agent} is refused already")
        dialect = apache_agents if self.server == "apache" else nginx_agents
        if not found.including_count:
            raise Refused(
                f"no server of {self.server} on {self.host} heeds our list: {dialect.SETUP_ADVICE}"
            )
        step = Step(
            f"Refuse agents whose name holds {self.agent}, and have {self.server} read it",
            self.host,
            do=dialect.block_agent(self.agent),
            undo=dialect.unblock_agent(self.agent),
            before="let in",
            after="answered with 403",
        )
        return Plan(f"{self.agent} is let in", [step], self._list_notes(found))

    def _refuse_browsers(self) -> None:
        name = self.agent.lower()
        if any(name in person.lower() for person in BROWSERS):
            raise Refused(
                f"{self.agent} is a part of what browsers or Pingdom call themselves: people "
                "would be refused"
            )

    def _list_notes(self, found: AgentList) -> list[str]:
        notes = ["An agent is what a client says of itself: it is changed in a moment."]
        if found.including_count < found.server_count:
            notes.append(
                f"{found.including_count} of {found.server_count} servers in {self.server}'s "
                "configuration "
                "heed the list; the others let the agent in."
            )
        if any(engine in self.agent.lower() for engine in _ENGINES):
            notes.append("This is a search engine: it will forget the pages that it is refused.")
        return notes

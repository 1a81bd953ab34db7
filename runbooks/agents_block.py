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
    undo="unblocks the agent",
    sets="agent {server} {agent}",
):
    """Block a user agent in nginx or Apache, by a part of its name."""

    host: Host
    agent: AgentName
    server: Literal["nginx", "apache"] = Field(
        default="nginx", description="The web server that blocks it"
    )

    def read(self, run_query: QueryRunner) -> AgentList:
        self._refuse_browsers()
        connector = apache_agents if self.server == "apache" else nginx_agents
        return run_query(self.host, connector.query_agents())

    def plan(self, agents: AgentList) -> Plan:
        self._refuse_browsers()
        if self.agent in agents.refused:
            return Plan(f"{self.agent} is blocked")
        connector = apache_agents if self.server == "apache" else nginx_agents
        if not agents.including_count:
            raise Refused(
                f"no server of {self.server} on {self.host} includes Keyturn's list: "
                f"{connector.SETUP_ADVICE}"
            )
        step = Step(
            f"Block agents whose name contains {self.agent}, and reload {self.server}",
            self.host,
            do=connector.block_agent(self.agent),
            undo=connector.unblock_agent(self.agent),
            before="allowed",
            after="answered with 403",
        )
        return Plan(f"{self.agent} is not blocked", [step], self._list_notes(agents))

    def _refuse_browsers(self) -> None:
        name = self.agent.lower()
        if any(name in browser.lower() for browser in BROWSERS):
            raise Refused(
                f"{self.agent} is part of the user agent of browsers or of Pingdom: people would "
                "be blocked. Use a longer part of the name"
            )

    def _list_notes(self, agents: AgentList) -> list[str]:
        notes = ["A client chooses its own user agent and can easily change it."]
        if agents.including_count < agents.server_count:
            notes.append(
                f"{agents.including_count} of {agents.server_count} servers in {self.server}'s "
                "configuration include the list; the others allow the agent."
            )
        if any(engine in self.agent.lower() for engine in _ENGINES):
            notes.append("This is a search engine: it removes pages that it cannot read.")
        return notes

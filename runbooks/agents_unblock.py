from typing import Literal

from pydantic import Field

from connectors import apache_agents, nginx_agents
from connectors.agent_list import AgentList
from connectors.command import QueryRunner
from runbooks import AgentName, Change, Host, Plan, Refused, Step


class UnblockAgent(
    Change[AgentList],
    words="agents unblock",
    example="web1 EvilBot/2",
    undo="blocks the agent again",
    sets="agent {server} {agent}",
):
    """Unblock a user agent that `agents block` has blocked."""

    host: Host
    agent: AgentName
    server: Literal["nginx", "apache"] = Field(
        default="nginx", description="The web server that blocks it"
    )

    def read(self, run_query: QueryRunner) -> AgentList:
        connector = apache_agents if self.server == "apache" else nginx_agents
        return run_query(self.host, connector.query_agents())

    def plan(self, agents: AgentList) -> Plan:
        if self.agent in agents.refused:
            return Plan(f"{self.agent} is blocked", [self._make_step()])
        other = next((one for one in agents.refused if one.lower() in self.agent.lower()), None)
        if other is not None:
            raise Refused(f"{self.agent} is blocked by the entry {other}: unblock {other}")
        return Plan(f"{self.agent} is not blocked by Keyturn's list")

    def _make_step(self) -> Step:
        connector = apache_agents if self.server == "apache" else nginx_agents
        return Step(
            f"Unblock agents whose name contains {self.agent}, and reload {self.server}",
            self.host,
            do=connector.unblock_agent(self.agent),
            undo=connector.block_agent(self.agent),
            before="answered with 403",
            after="allowed",
        )

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
    undo="refuses the agent again",
):
    """Let a user agent in again that `agents block` has refused."""

    host: Host
    agent: AgentName
    server: Literal["nginx", "apache"] = Field(
        default="nginx", description="The web server that refuses it"
    )

    def read(self, run_query: QueryRunner) -> AgentList:
        dialect = apache_agents if self.server == "apache" else nginx_agents
        return run_query(self.host, dialect.query_agents())

    def plan(self, found: AgentList) -> Plan:
        if self.agent in found.refused:
            return Plan(f"{self.agent} is refused", [self._make_step()])
        other = next((one for one in found.refused if one.lower() in self.agent.lower()), None)
        if other is not None:
            raise Refused(f"{self.agent} is refused as {other} is: ask for {other}")
        return Plan(f"{self.agent} is not refused by the list")

    def _make_step(self) -> Step:
        dialect = apache_agents if self.server == "apache" else nginx_agents
        return Step(
            f"Let agents in whose name holds {self.agent}, and have {self.server} read it",
            self.host,
            do=dialect.unblock_agent(self.agent),
            undo=dialect.block_agent(self.agent),
            before="answered with 403",
            after="let in",
        )

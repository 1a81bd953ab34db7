from typing import Literal

from pydantic import Field

from connectors import agents, apache
from connectors.agent_list import Agents
from connectors.command import Ask
from runbooks import AgentName, Change, Host, Plan, Refused, Step


class UnblockAgent(
    Change[Agents],
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

    def read(self, ask: Ask) -> Agents:
        dialect = apache if self.server == "apache" else agents
        return ask(self.host, dialect.agents())

    def plan(self, found: Agents) -> Plan:
        if self.agent in found.refused:
            return Plan(f"{self.agent} is refused", [self._step()])
        other = next((one for one in found.refused if one.lower() in self.agent.lower()), None)
        if other is not None:
            raise Refused(f"{self.agent} is refused as {other} is: ask for {other}")
        return Plan(f"{self.agent} is not refused by the list")

    def _step(self) -> Step:
        dialect = apache if self.server == "apache" else agents
        return Step(
            f"Let agents in whose name holds {self.agent}, and have {self.server} read it",
            self.host,
            do=dialect.admit(self.agent),
            undo=dialect.refuse(self.agent),
            before="answered with 403",
            after="let in",
        )

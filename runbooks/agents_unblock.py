from connectors import agents
from connectors.agents import Agents
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

    def read(self, ask: Ask) -> Agents:
        return ask(self.host, agents.agents())

    def plan(self, found: Agents) -> Plan:
        if self.agent in found.refused:
            return Plan(f"{self.agent} is refused", [self._step()])
        other = next((one for one in found.refused if one.lower() in self.agent.lower()), None)
        if other is not None:
            raise Refused(f"{self.agent} is refused as {other} is: ask for {other}")
        return Plan(f"{self.agent} is not refused by the list")

    def _step(self) -> Step:
        return Step(
            f"Let agents in whose name holds {self.agent}, and have nginx read it",
            self.host,
            do=agents.admit(self.agent),
            undo=agents.refuse(self.agent),
            before="answered with 403",
            after="let in",
        )

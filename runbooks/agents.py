"""Block a user agent in nginx or Apache, or unblock it."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from connectors import apache_agents, nginx_agents
from connectors.agent_list import BROWSERS, AgentList
from connectors.command import QueryRunner
from runbooks import AgentName, Change, Host, Plan, Refused, Step

_CONNECTORS = {"nginx": nginx_agents, "apache": apache_agents}
_ENGINES = ("googlebot", "bingbot", "yandex", "duckduckbot", "applebot", "baiduspider")


class _ChangeAgent(Change[AgentList]):
    """Changes whether a web server blocks an agent; subclasses say to what."""

    host: Host
    agent: AgentName
    server: Literal["nginx", "apache"] = Field(
        default="nginx", description="The web server that blocks it"
    )

    def read(self, run_query: QueryRunner) -> AgentList:
        return run_query(self.host, _CONNECTORS[self.server].query_agents())

    def make_step(self, verb: Literal["Block", "Unblock"]) -> Step:
        connector = _CONNECTORS[self.server]
        block, unblock = connector.block_agent(self.agent), connector.unblock_agent(self.agent)
        blocks = verb == "Block"
        return Step(
            f"{verb} agents whose name contains {self.agent}, and reload {self.server}",
            self.host,
            do=block if blocks else unblock,
            undo=unblock if blocks else block,
            before="allowed" if blocks else "answered with 403",
            after="answered with 403" if blocks else "allowed",
        )


class BlockAgent(
    _ChangeAgent,
    words="agents block",
    also_called=("ban bot",),
    example="web1 EvilBot/2",
    undo="unblocks the agent",
    sets="agent {server} {agent}",
):
    """Block a user agent in nginx or Apache, by a part of its name."""

    def read(self, run_query: QueryRunner) -> AgentList:
        self._refuse_browsers()
        return super().read(run_query)

    def plan(self, agents: AgentList) -> Plan:
        self._refuse_browsers()
        _refuse_foreign_lines(agents)
        if self.agent in agents.refused:
            return Plan(f"{self.agent} is blocked")
        if not agents.including_count:
            raise Refused(
                f"no server of {self.server} on {self.host} includes Keyturn's list: "
                f"{_CONNECTORS[self.server].SETUP_ADVICE}"
            )
        step, notes = self.make_step("Block"), [*self._list_notes(agents)]
        return Plan(f"{self.agent} is not blocked", [step], notes)

    def _refuse_browsers(self) -> None:
        name = self.agent.lower()
        if any(name in browser.lower() for browser in BROWSERS):
            raise Refused(
                f"{self.agent} is part of the user agent of browsers or of Pingdom: people would "
                "be blocked. Use a longer part of the name"
            )

    def _list_notes(self, agents: AgentList) -> Iterator[str]:
        yield "A client chooses its own user agent and can easily change it."
        if agents.including_count < agents.server_count:
            yield (
                f"{agents.including_count} of {agents.server_count} servers in {self.server}'s "
                "configuration include the list; the others allow the agent."
            )
        if any(engine in self.agent.lower() for engine in _ENGINES):
            yield "This is a search engine: it removes pages that it cannot read."


class UnblockAgent(
    _ChangeAgent,
    words="agents unblock",
    example="web1 EvilBot/2",
    undo="blocks the agent again",
    sets="agent {server} {agent}",
):
    """Unblock a user agent that `agents block` has blocked."""

    def plan(self, agents: AgentList) -> Plan:
        _refuse_foreign_lines(agents)
        if self.agent in agents.refused:
            return Plan(f"{self.agent} is blocked", [self.make_step("Unblock")])
        other = next((one for one in agents.refused if one.lower() in self.agent.lower()), None)
        if other is not None:
            raise Refused(f"{self.agent} is blocked by the entry {other}: unblock {other}")
        return Plan(f"{self.agent} is not blocked by Keyturn's list")


def _refuse_foreign_lines(agents: AgentList) -> None:
    """Raise Refused if the list has lines of other people: writing the list could lose them."""
    if agents.refused.odd:
        raise Refused("Keyturn's list of agents has lines that Keyturn did not write: remove them")

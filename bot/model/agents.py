"""The principals of agents: programs that make requests and decide nothing. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

# Ids of people contain no colon, so no person can have the id of an agent.
_PREFIX = "agent:"
# The source of their requests.
SOURCE = "mcp"
# Beside the reason of a request.
WRITTEN_BY_AGENT = "written by an agent"


@dataclass(frozen=True)
class AgentOrigin:
    """Whose request an agent makes. Their approvals of it do not count."""

    owner: str
    """The person who answers for the agent."""
    behalf: str = ""
    """The person that it acts for; "" for none."""
    client: str = ""
    """The name and version that the program states; unverified."""


def get_agent_id(name: str) -> str:
    """Return the id by which an agent requests: `agent:triage-bot`."""
    return f"{_PREFIX}{name}"


def is_agent(requester: str) -> bool:
    """Return whether an id is that of an agent, and not of a person."""
    return requester.startswith(_PREFIX)


def format_requester(
    requested_by: str, agent: AgentOrigin | None, name_person: Callable[[str], str]
) -> str:
    """Return who requested something: `Dora Example`, or `triage-bot for Dora Example`."""
    name = name_person(requested_by)
    return f"{name} for {name_person(agent.behalf)}" if agent and agent.behalf else name


def get_agent_name(agent_id: str) -> str:
    """Return the name of an agent by its id; the id itself for a person."""
    return agent_id.removeprefix(_PREFIX)

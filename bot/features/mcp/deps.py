"""What the tools of agents work with, and who calls them."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bot.audit import events, refusals
from bot.auth import agents, tokens
from bot.auth.agents import Agent
from bot.auth.rate_limit import RateLimit
from bot.auth.tokens import ApiToken
from bot.db import stops
from bot.db.database import Database, Transaction
from bot.model.agents import SOURCE, AgentOrigin, get_agent_name, is_agent
from bot.model.run import RequestOrigin, Run
from bot.model.view_rights import ViewRights
from bot.policy import Policy, PolicySource
from bot.service import KeyturnService


@dataclass(frozen=True)
class McpParts:
    """What the tools work with."""

    service: KeyturnService
    database: Database
    policies: PolicySource
    base_url: str
    """Address of the web pages, such as `https://keyturn.example.com`."""
    rate_limit: RateLimit = field(default_factory=RateLimit)

    @property
    def public_host(self) -> str:
        """Host and port of the address: the `Host` header of every request."""
        return urlsplit(self.base_url).netloc


@dataclass(frozen=True)
class AgentCaller:
    """An agent, and the person that it acts for."""

    agent: Agent
    token: ApiToken
    client: str = ""
    """The name and version that the program states; unverified."""

    @property
    def id(self) -> str:
        return self.token.person

    @property
    def origin(self) -> RequestOrigin:
        about = AgentOrigin(self.agent.owner, self.token.behalf, self.client)
        return RequestOrigin(SOURCE, user=self.token.prefix, agent=about)

    def get_view_rights(self, policy: Policy) -> ViewRights:
        """Return which runs of others the agent may view."""
        return policy.get_agent_view_rights(self.id, self.token.behalf)

    def is_own(self, run: Run) -> bool:
        """Return whether the agent requested the run for the same person."""
        behalf = run.origin.agent.behalf if run.origin.agent else ""
        return run.requested_by == self.id and behalf == self.token.behalf

    def is_for_another(self, run: Run) -> bool:
        """Return whether the agent requested the run for another person, who alone may see it."""
        return run.requested_by == self.id and not self.is_own(run)


def find_caller(parts: McpParts, secret: str, client: str = "") -> AgentCaller | None:
    """Return the agent of a token; None for every token that is not a valid one of an agent.

    client: the name and version that the program states.
    """
    with parts.database.reading() as tx:
        token = tokens.find_token(tx, secret)
        agent, now = _find_active_agent(tx, token), tx.now
    if token is None or agent is None or not _has_people(parts, agent, token):
        refusals.log_refusal_in_own_transaction(
            parts.database,
            events.TokenRefused(
                token=token.prefix if token else "",
                owner=token.person if token else "",
                reason="not a valid token of an agent"
                if token is None or token.is_confirmed
                else "the person that the agent acts for has not confirmed the token",
                source=SOURCE,
            ),
        )
        return None
    tokens.note_token_use(parts.database, token, now=now)
    return AgentCaller(agent, token, client)


def _find_active_agent(tx: Transaction, token: ApiToken | None) -> Agent | None:
    """Return the agent of a token. A paused agent may still read."""
    if token is None or not is_agent(token.person) or not token.is_active(tx.now):
        return None
    if not token.is_confirmed:
        return None
    agent = agents.find_agent(tx, get_agent_name(token.person))
    if agent is None or agent.get_refusal(tx.now, ignores_pause=True):
        return None
    # A ban applies immediately, whichever process recorded it.
    is_banned = {agent.owner, token.behalf} & stops.list_banned_people(tx)
    return None if is_banned else agent


def _has_people(parts: McpParts, agent: Agent, token: ApiToken) -> bool:
    """Return whether the owner and the person that the agent acts for are in the policy."""
    policy = parts.policies.get_policy()
    people = filter(None, (agent.owner, token.behalf))
    return all(policy.find_person(person) is not None for person in people)

"""An agent of the small company: added by olga, confirmed by stan, owned by adam, for dora."""

from bot.model.agents import AgentOrigin, get_agent_id
from bot.model.run import RequestOrigin, RequestTerms, Run
from runbooks import AnyRunbook
from tests.bot.harness import Harness
from tests.policies import get_starter_rules

TRIAGE = get_agent_id("triage-bot")
OWNER, BEHALF = "adam", "dora"
AGENT_RULES = """
@id("agents run checks")
permit (principal is Agent, action in [Action::"request", Action::"view"], resource)
when { context.kind == "check" };

@id("agents request changes")
@approvals("1")
@from("owners")
permit (principal is Agent, action == Action::"request", resource)
when { context.kind == "change" };
"""


def get_rules_for_agents(more: str = "") -> str:
    return get_starter_rules() + AGENT_RULES + more


def add_agent(harness: Harness, name: str = "triage-bot", *, days: int = 30) -> None:
    """Add an agent and confirm it."""
    actions = harness.service.agents
    actions.add_agent(name, owner=OWNER, purpose="reads alerts", days=days, person="olga")
    actions.confirm_agent(name, person="stan")


def build_agent_origin(behalf: str = BEHALF) -> RequestOrigin:
    return RequestOrigin("mcp", user="kt_00000000", agent=AgentOrigin(OWNER, behalf, "test 1"))


def request_as_agent(
    harness: Harness, runbook: AnyRunbook, behalf: str = BEHALF, *, plan_only: bool = False
) -> Run:
    run = harness.service.request_run(
        runbook, RequestTerms(TRIAGE, build_agent_origin(behalf), "an alert", plan_only=plan_only)
    )
    harness.run_queued_work()
    return harness.get_run(run.id)

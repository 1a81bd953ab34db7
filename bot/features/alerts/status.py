"""Whether alerts are answered where an area asks for that."""

from collections.abc import Iterator

from bot.auth import agents
from bot.db.database import Transaction
from bot.model.check_result import CheckResult, create_ok_result, create_warning_result
from bot.policy import Policy

_SUBJECT = "Alerts"


def check_alert_agents(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Check that the agent of each area may make requests."""
    for area in policy.organisation.areas.values():
        name = area.alert_agent
        if not name:
            continue
        agent = agents.find_agent(tx, name)
        problem = agent.get_refusal(tx.now) if agent else f"there is no agent {name}"
        if problem:
            yield create_warning_result(
                _SUBJECT,
                f"alerts in the channel of area {area.name} are not answered: {problem}. Add it "
                "with keyturn agent add, or remove alert_agent from areas.yaml",
            )
        else:
            yield create_ok_result(_SUBJECT, f"area {area.name} has them answered as {name}")

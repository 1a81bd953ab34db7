"""Alerts in chat: read the hosts that they name, and suggest changes, before a person asks.

`messages.py` reads what an alert says, `fitting.py` finds what fits it, `answers.py` runs the
checks and posts one message, `rows.py` are the rows of the database, `findings.py` and `render.py`
what the message shows. The policy says where that happens without a person, and as which agent.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from bot.health import CheckWithPolicy
    from bot.slack.features import ChatFeatures


def _load_chat() -> "ChatFeatures":
    from bot.features.alerts.chat import CHAT

    return CHAT


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.alerts.status import check_alert_agents

    return [check_alert_agents]


FEATURE = Feature("alerts", load_chat=_load_chat, load_checks=_load_checks)

"""A plan that people sign, as tests need it."""

import time
from dataclasses import replace
from typing import Any

from bot.model.plan import PlannedStep, ResolvedPlan, create_nonce
from bot.model.times import HOUR, SECOND
from connectors.command import Shell

STEP = PlannedStep(
    "Unblock 203.0.113.9", "lb1", "SHA256:x", Shell(("true",)), None, "it is not blocked any more"
)


def make_plan(*, installation: str, **changed: Any) -> ResolvedPlan:
    """Return a plan that was made now, and may start within an hour."""
    now = time.time_ns() // 1000 // SECOND * SECOND
    plan = ResolvedPlan(
        runbook="abusers clear",
        runbook_version="1",
        values={"host": "lb1", "address": "203.0.113.9"},
        requested_by="olga",
        expires_at=now + HOUR,
        policy_version="1",
        current_state="",
        steps=(STEP,),
        policy_result="1",
        installation=installation,
        reason="a customer called",
        not_before=now,
        nonce=create_nonce(),
    )
    return replace(plan, **changed)

"""Which approvals a standing grant can replace. Pure."""

from dataclasses import replace

from bot.policy import Policy, PolicyRequest, Ruling


def get_grant_obstacle(
    policy: Policy, request: PolicyRequest, ruling: Ruling, granted_by: str
) -> str:
    """Return why this person's grant cannot replace the approval; "" if it can. Pure."""
    granted = replace(request, has_grant=True)
    owners = policy.get_area(request.host).owners
    able = granted_by in owners and policy.get_approval_ruling(granted_by, granted, ruling).allowed
    reasons = (
        (not request.reversible, "cannot cover irreversible changes"),
        (ruling.requires_second_factor, "cannot cover changes that require a second factor"),
        (not policy.get_request_ruling(granted).allowed, "is not allowed by the policy"),
        (not able, "is not from an owner who could approve it"),
        (
            not policy.is_met(ruling.requirements, {granted_by}),
            f"cannot replace the {ruling.required_approvals} approvals that it needs",
        ),
    )
    return next((why for holds, why in reasons if holds), "")

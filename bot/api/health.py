"""The condition of the service, for programs of those who may stop it."""

from collections.abc import Sequence

from fastapi import APIRouter

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.model.check_result import CheckLevel
from bot.model.errors import NotAllowed

router = APIRouter(tags=["service"])


class CheckResultShape(schemas.Shape):
    """level: ok, warning for what works and could be better, error for what does not work."""

    subject: str
    level: CheckLevel
    message: str


class HealthShape(schemas.Shape):
    healthy: bool
    findings: Sequence[CheckResultShape]


@router.get("/condition", operation_id="getCondition", summary="Say how the service is")
def condition(parts: Here, caller: Reading) -> HealthShape:
    if not caller.policy.get_order_ruling(caller.id, "stop").allowed:
        raise NotAllowed("only those who may stop everything see how the service is")
    found = [CheckResultShape(**vars(one)) for one in parts.findings()]
    return HealthShape(healthy=all(one.level != "error" for one in found), findings=found)

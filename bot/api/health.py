"""The condition of the service, for programs of those who may stop it."""

from collections.abc import Sequence

from fastapi import APIRouter

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.model.check_result import Mark
from bot.workflow.approvals import NotAllowed

router = APIRouter(tags=["service"])


class FindingShape(schemas.Shape):
    """mark: ok, warning for what works and could be better, error for what does not work."""

    about: str
    mark: Mark
    said: str


class ConditionShape(schemas.Shape):
    well: bool
    findings: Sequence[FindingShape]


@router.get("/condition", operation_id="getCondition", summary="Say how the service is")
def condition(parts: Here, caller: Reading) -> ConditionShape:
    if not caller.policy.may_order(caller.id, "stop").allowed:
        raise NotAllowed("only those who may stop everything see how the service is")
    found = [FindingShape(**vars(one)) for one in parts.findings()]
    return ConditionShape(well=all(one.mark != "error" for one in found), findings=found)

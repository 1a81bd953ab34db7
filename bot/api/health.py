"""Health checks of the service, for callers who may stop everything."""

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.model.check_result import CheckLevel
from bot.model.errors import NotAllowed

router = APIRouter(tags=["service"])


class HealthCheckOut(schemas.OutputModel):
    """Result of one health check."""

    subject: str
    level: CheckLevel = Field(
        description="`ok`, `warning` (works, can be better) or `error` (does not work)."
    )
    message: str


class HealthOut(schemas.OutputModel):
    """Results of all health checks. `healthy`: none of them is an error."""

    healthy: bool
    checks: Sequence[HealthCheckOut]


@router.get("/health", operation_id="getHealth", summary="Get the health of the service")
def get_health(parts: Parts, caller: ReadCaller) -> HealthOut:
    if not caller.policy.get_order_ruling(caller.id, "stop").allowed:
        raise NotAllowed("only people who may stop everything can read the health checks")
    checks = [HealthCheckOut(**vars(result)) for result in parts.run_health_checks()]
    return HealthOut(healthy=all(check.level != "error" for check in checks), checks=checks)

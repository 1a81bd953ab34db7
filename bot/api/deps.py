"""The services that the API works with, passed in once at start-up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from prometheus_client.metrics_core import Metric

from bot.auth.rate_limit import RateLimit
from bot.db.database import Database, Transaction
from bot.model.check_result import CheckResult
from bot.policy import PolicySource
from bot.queries.form_options import FormOptions
from bot.service import KeyturnService

CollectMetrics = Callable[[Transaction], Iterable[Metric]]


@dataclass(frozen=True)
class ApiParts:
    """What the routes work with."""

    service: KeyturnService
    database: Database
    policies: PolicySource
    base_url: str
    """Address of the web pages, such as `https://keyturn.example.com`."""
    rate_limit: RateLimit = field(default_factory=RateLimit)
    run_health_checks: Callable[[], Sequence[CheckResult]] = tuple
    longest_wait: float = 30.0
    """Seconds; the longest `wait` that a caller gets."""
    routers: Sequence[APIRouter] = ()
    """The routes of features."""
    metrics: Sequence[CollectMetrics] = ()
    """What features count."""
    form_options: FormOptions | None = None
    """The options that hosts list for the fields of forms."""


# A coroutine function: FastAPI runs it without a thread of its pool.
async def _get_parts(request: Request) -> ApiParts:
    return request.app.state.parts


Parts = Annotated[ApiParts, Depends(_get_parts)]

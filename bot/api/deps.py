"""What the API works with, handed to it once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from bot.api.rate_limit import Pace
from bot.db.database import Database
from bot.model.check_result import CheckResult
from bot.policy import PolicySource
from bot.service import Workflow
from bot.workflow.form_options import FormOptions


@dataclass(frozen=True)
class ApiParts:
    """base_url: how people reach the pages, such as `https://keyturn.example.com`.

    findings: how the service itself is. offering: what hosts list, for forms.
    longest_wait: seconds, of what callers may wish.
    """

    workflow: Workflow
    database: Database
    policies: PolicySource
    base_url: str
    pace: Pace = field(default_factory=Pace)
    findings: Callable[[], Sequence[CheckResult]] = tuple
    longest_wait: float = 30.0
    offering: FormOptions | None = None


# As a coroutine it takes no thread's turn.
async def _parts(request: Request) -> ApiParts:
    return request.app.state.parts


Here = Annotated[ApiParts, Depends(_parts)]

"""What the API works with, handed to it once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from bot.api.pace import Pace
from bot.finding import Finding
from bot.offering import Offering
from bot.store.database import Database
from bot.workflow import Workflow
from bot.workflow.parts import Policies


@dataclass(frozen=True)
class ApiParts:
    """base_url: how people reach the pages, such as `https://keyturn.example.com`.

    findings: how the service itself is. offering: what hosts list, for forms.
    longest_wait: seconds, of what callers may wish.
    """

    workflow: Workflow
    database: Database
    policies: Policies
    base_url: str
    pace: Pace = field(default_factory=Pace)
    findings: Callable[[], Sequence[Finding]] = tuple
    longest_wait: float = 30.0
    offering: Offering | None = None


# As a coroutine it takes no thread's turn.
async def _parts(request: Request) -> ApiParts:
    return request.app.state.parts


Here = Annotated[ApiParts, Depends(_parts)]

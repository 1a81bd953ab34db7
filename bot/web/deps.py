"""What the web door works with, handed to it once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from bot.db.database import Database
from bot.hosts.status import PendingHostSummary
from bot.model.check_result import CheckResult
from bot.policy import PolicySource
from bot.service import Workflow
from bot.web.provider import IdentityProvider
from bot.web.stream_slots import StreamSlots
from bot.workflow.form_options import FormOptions


@dataclass(frozen=True)
class ComponentHealth:
    """How another part is, in words. broken: whether it stays so until somebody mends it."""

    message: str
    is_broken: bool = False


@dataclass(frozen=True)
class WebDependencies:
    """base_url: how people reach the pages, such as `https://keyturn.example.com`.

    secure_cookies: whether that is over TLS; on plain http, cookies go without `Secure`.
    provider: whom people can prove to who they are, if there is one.
    conditions: how other doors are, asked whenever somebody wants to know.
    seats: who watches a run just now.
    enrolling: the hosts that wait for a second person.
    offering: what hosts list, for forms; None where forms offer nothing.
    findings: how the service itself is.
    """

    workflow: Workflow
    database: Database
    policies: PolicySource
    base_url: str
    secure_cookies: bool
    health_checks: Mapping[str, Callable[[], ComponentHealth]] = field(
        default_factory=dict[str, Callable[[], ComponentHealth]]
    )
    stream_slots: StreamSlots = field(default_factory=StreamSlots)
    list_enrolling_hosts: Callable[[], Sequence[PendingHostSummary]] = tuple
    form_options: FormOptions | None = None
    list_check_results: Callable[[], Sequence[CheckResult]] = tuple
    identity_provider: IdentityProvider | None = None

    @property
    def provider_name(self) -> str:
        """What people call whom they can prove to who they are; "" if there is nobody."""
        return self.identity_provider.registration.name if self.identity_provider else ""

    @property
    def origin(self) -> str:
        """What browsers call our origin: scheme, name and port."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    @property
    def cookie_name(self) -> str:
        """The name of the session's cookie; `__Host-` binds it to this very host over TLS."""
        return "__Host-keyturn" if self.secure_cookies else "keyturn"


async def _get_web_dependencies(request: Request) -> WebDependencies:
    # Not in a thread of its own, which takes longer than this.
    return request.app.state.parts


WebDeps = Annotated[WebDependencies, Depends(_get_web_dependencies)]

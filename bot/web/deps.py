"""Dependencies of the web pages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request

from bot.db.database import Database
from bot.model.check_result import CheckResult
from bot.policy import PolicySource
from bot.queries.form_options import FormOptions
from bot.queries.host_status import PendingHostSummary
from bot.service import KeyturnService
from bot.web.pages import Pages, build_page_pattern
from bot.web.provider import IdentityProvider
from bot.web.stream_slots import StreamSlots


@dataclass(frozen=True)
class ComponentHealth:
    """Health of a component, as a message."""

    message: str
    is_broken: bool = False
    """Whether it stays broken until an operator fixes it."""


@dataclass(frozen=True)
class WebDependencies:
    """Everything that the pages need from the service."""

    service: KeyturnService
    database: Database
    policies: PolicySource
    base_url: str
    """Address of the pages for browsers, such as `https://keyturn.example.com`."""
    secure_cookies: bool
    """Whether cookies have the `Secure` flag; false for plain HTTP."""
    health_checks: Mapping[str, Callable[[], ComponentHealth]] = field(
        default_factory=dict[str, Callable[[], ComponentHealth]]
    )
    """Checks of other components, by name."""
    stream_slots: StreamSlots = field(default_factory=StreamSlots)
    list_enrolling_hosts: Callable[[], Sequence[PendingHostSummary]] = tuple
    """Hosts that are pending confirmation by a second person."""
    form_options: FormOptions | None = None
    """Options that hosts list for form fields; None if they are disabled."""
    list_check_results: Callable[[], Sequence[CheckResult]] = tuple
    """Results of the health checks of the service itself."""
    pages: Sequence[Pages] = ()
    """The pages of features."""
    identity_provider: IdentityProvider | None = None
    """OpenID Connect provider for sign-in, if there is one."""
    signing_page: str = "/sign"
    """Address of the page on which people sign plans."""
    has_slack: bool = True
    """Whether people can get a sign-in link in Slack."""

    @cached_property
    def feature_page_pattern(self) -> re.Pattern[str]:
        """Pattern of the addresses of features' pages."""
        return build_page_pattern(self.pages)

    @property
    def provider_name(self) -> str:
        """Name of the identity provider; "" if there is none."""
        return self.identity_provider.registration.name if self.identity_provider else ""

    @property
    def new_link_hint(self) -> str:
        """How to get a sign-in link, as a sentence."""
        if self.has_slack:
            return "Type /keyturn web in Slack for a new one."
        return "Ask an administrator: on the server, `keyturn sign-in PERSON` prints a new one."

    @property
    def origin(self) -> str:
        """Origin of the pages: scheme, host name and port."""
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc}".lower()

    @property
    def cookie_name(self) -> str:
        """Name of the session cookie. The prefix `__Host-` binds it to this host over TLS."""
        return "__Host-keyturn" if self.secure_cookies else "keyturn"

    @property
    def cookie_flags(self) -> dict[str, Any]:
        """Arguments of `set_cookie` and `delete_cookie`, which have to be the same for both."""
        return {
            "path": "/",
            "secure": self.secure_cookies,
            "httponly": True,
            "samesite": "lax",
        }


async def _get_web_dependencies(request: Request) -> WebDependencies:
    # Async, because running this in a thread would take longer than the function itself.
    return request.app.state.deps


WebDeps = Annotated[WebDependencies, Depends(_get_web_dependencies)]

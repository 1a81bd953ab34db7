"""What the web door works with, handed to it once."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from bot.store.database import Database
from bot.workflow import Workflow
from bot.workflow.parts import Policies


@dataclass(frozen=True)
class WebParts:
    """base_url: how people reach the pages, such as `https://keyturn.example.com`.

    secure_cookies: whether that is over TLS; on plain http, cookies go without `Secure`.
    """

    workflow: Workflow
    database: Database
    policies: Policies
    base_url: str
    secure_cookies: bool

    @property
    def origin(self) -> str:
        """What browsers call our origin: scheme, name and port."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; `__Host-` binds it to this very host over TLS."""
        return "__Host-keyturn" if self.secure_cookies else "keyturn"


def _parts(request: Request) -> WebParts:
    return request.app.state.parts


Here = Annotated[WebParts, Depends(_parts)]

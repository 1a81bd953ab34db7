"""tickets.yaml: the system that is asked about change tickets. Pure."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from connectors.public_addresses import is_encrypted_or_local

ShortText = Annotated[str, Field(min_length=1, max_length=200)]


class TicketSystem(BaseModel):
    """How to ask about tickets, and where to write notes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: Literal["generic", "jira", "servicenow"]
    url: Annotated[str, Field(max_length=500)]
    """Of the generic service, or the base address of Jira or ServiceNow."""
    secret_file: ShortText
    """Absolute path of the file with the signing secret, API token or password."""
    user: Annotated[str, Field(max_length=200)] = ""
    """For Basic authentication; without it, the secret is a bearer token."""
    key: ShortText = r"[A-Za-z0-9][A-Za-z0-9._-]*"
    """A regular expression that the whole key of a ticket matches."""
    approved: tuple[ShortText, ...] = ()
    """The states in which a ticket permits its change. Jira and ServiceNow need them."""
    fields: Mapping[Literal["starts_at", "ends_at", "hosts"], ShortText] = {}
    """Jira: the ids of the fields with the window and the hosts."""
    private: bool = False
    """Whether the address may be in a private network."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if not url.isprintable() or " " in url or not parts.hostname or parts.username:
            raise ValueError("must be an address such as https://itsm.example.com")
        if not is_encrypted_or_local(parts):
            raise ValueError("must begin with https://; http:// is allowed for this machine only")
        return url.rstrip("/")

    @field_validator("secret_file")
    @classmethod
    def _check_secret_file(cls, path: str) -> str:
        if not Path(path).is_absolute():
            raise ValueError("must be an absolute path, outside the policy directory")
        return path

    @field_validator("key")
    @classmethod
    def _check_key(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @field_validator("approved")
    @classmethod
    def _check_approved(cls, states: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(state.casefold() for state in states)

    @model_validator(mode="after")
    def _check_states(self) -> "TicketSystem":
        if self.system != "generic" and not self.approved:
            raise ValueError("approved: list the states in which a ticket permits its change")
        return self

    def is_approved_state(self, state: str) -> bool:
        return state.casefold() in self.approved

    def matches_key(self, key: str) -> bool:
        return re.fullmatch(self.key, key) is not None

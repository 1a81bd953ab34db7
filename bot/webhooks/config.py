"""The file of hooks: who may tell us of events, and whom we tell of runs."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from bot.policy import NoPolicyError
from bot.policy.loader import describe_validation_error
from bot.policy.yaml_file import YamlFile
from bot.webhooks.signature import SignatureScheme, parse_secret
from connectors.inventory import Name

EventFormat = Literal["keyturn", "alertmanager", "github"]
_SIGNATURE_SCHEMES: Mapping[str, SignatureScheme] = {
    "keyturn": "standard",
    "alertmanager": "bearer",
    "github": "github",
}
CONFIG_ENTRY_KIND = "webhooks changed"
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

NonEmptyText = Annotated[str, Field(min_length=1, max_length=200)]


class WebhookConfigError(ValueError):
    """The file cannot be used. The message says where and what to do."""


class _SecretLocation(BaseModel):
    """Where a secret is: never in the file itself. secret_file: relative to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret_file: NonEmptyText | None = None
    secret_env: NonEmptyText | None = None

    @model_validator(mode="after")
    def _check_one_location(self) -> "_SecretLocation":
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("say secret_file or secret_env: where its secret is")
        return self


class _SourceSection(_SecretLocation):
    format: EventFormat = "keyturn"
    a_minute: Annotated[int, Field(ge=1, le=6000)] = 60


class _SubscriptionSection(_SecretLocation):
    url: Annotated[str, Field(max_length=500)]
    kinds: Sequence[Literal["change", "check"]] = ("change",)
    areas: Sequence[Name] = ()
    events: Sequence[Annotated[str, Field(max_length=32)]] = ()
    private: bool = False

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        # What cannot be seen in it would be dropped, or be sent as more than an address.
        if not url.isprintable() or " " in url:
            raise ValueError("holds a blank or an invisible character: write it without")
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname or parts.username:
            raise ValueError("must be an address such as https://hooks.example.com/keyturn")
        return url

    @model_validator(mode="after")
    def _check_is_encrypted(self) -> "_SubscriptionSection":
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not (self.private and parts.hostname in _LOOPBACK_HOSTS):
            raise ValueError(
                "must begin with https://: http:// is for this machine itself, with private: true"
            )
        return self


class _WebhookFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: Mapping[Name, _SourceSection] = {}
    subscriptions: Mapping[Name, _SubscriptionSection] = {}


@dataclass(frozen=True)
class WebhookSource:
    """One system that tells us of events. a_minute: how many at most."""

    name: str
    format: EventFormat
    secret: bytes
    max_per_minute: int

    @property
    def signature_scheme(self) -> SignatureScheme:
        """How it proves that it is it."""
        return _SIGNATURE_SCHEMES[self.format]


@dataclass(frozen=True)
class WebhookSubscription:
    """One system that is told of runs. areas, events: empty for all. private: may be near us."""

    name: str
    url: str
    secret: bytes
    kinds: Sequence[str]
    areas: Sequence[str]
    events: Sequence[str]
    private: bool


@dataclass(frozen=True)
class WebhookConfig:
    sources: Mapping[str, WebhookSource]
    subscriptions: Mapping[str, WebhookSubscription]

    @property
    def secrets(self) -> list[str]:
        """What must never be recorded, shown or logged."""
        both = [*self.sources.values(), *self.subscriptions.values()]
        return [one.secret.decode(errors="ignore") for one in both]


NO_WEBHOOKS = WebhookConfig({}, {})


def load_webhook_config(file: Path | None) -> WebhookConfig:
    """Return what the file says, with its secrets. Raises BadHooks."""
    if file is None:
        return NO_WEBHOOKS
    try:
        data = YamlFile(file.name, file.read_text(encoding="utf-8")).parse_data()
        found = _WebhookFile.model_validate(data)
    except OSError as trouble:
        said = f"the file of hooks {file} cannot be read: {trouble.strerror}"
        raise WebhookConfigError(f"{said}. KEYTURN_HOOKS says where it is") from None
    except (UnicodeDecodeError, NoPolicyError) as trouble:
        raise WebhookConfigError(f"the file of hooks cannot be used: {trouble}") from None
    except ValidationError as trouble:
        raise WebhookConfigError(f"{file}: {describe_validation_error(trouble)}") from None
    sources = {
        name: WebhookSource(name, one.format, _load_secret(file, name, one), one.a_minute)
        for name, one in found.sources.items()
    }
    subscriptions = {
        name: WebhookSubscription(
            name,
            one.url,
            _load_secret(file, name, one),
            tuple(one.kinds),
            tuple(one.areas),
            tuple(one.events),
            one.private,
        )
        for name, one in found.subscriptions.items()
    }
    return WebhookConfig(sources, subscriptions)


def _load_secret(file: Path, name: str, location: _SecretLocation) -> bytes:
    where = location.secret_env or str(file.parent / str(location.secret_file))
    try:
        text = (
            os.environ[where] if location.secret_env else Path(where).read_text(encoding="utf-8")
        )
        return parse_secret(text)
    except KeyError:
        raise WebhookConfigError(f"{file}: {name}: the variable {where} is not set") from None
    except OSError as trouble:
        raise WebhookConfigError(f"{file}: {name}: its secret: {trouble}") from None
    except ValueError as trouble:
        raise WebhookConfigError(f"{file}: {name}: the secret in {where}: {trouble}") from None


def render_webhook_config(config: WebhookConfig) -> dict[str, Any]:
    """Return all but the secrets, for the change log that everybody reads."""
    return {
        "sources": {name: one.format for name, one in sorted(config.sources.items())},
        "subscriptions": {
            name: _redact_url_path(one.url) for name, one in sorted(config.subscriptions.items())
        },
    }


def _redact_url_path(url: str) -> str:
    """Return where an address leads, and what differs whenever the rest of it does: with many
    services whoever knows the path may post there.
    """
    parts = urlsplit(url)
    rest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return f"{parts.scheme}://{parts.netloc}/… ({rest})"

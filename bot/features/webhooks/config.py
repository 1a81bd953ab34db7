"""The webhook file: sources of incoming events and subscriptions to runs."""

import hashlib
import os
import re
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

from bot.integrations.webhook_signature import SignatureScheme, parse_secret
from bot.policy import NoPolicyError
from bot.policy.loader import describe_validation_error
from bot.policy.yaml_file import YamlFile
from connectors.inventory import Name
from connectors.public_addresses import LOCAL_HOSTS

EventFormat = Literal["keyturn", "alertmanager", "github"]
DeliveryFormat = Literal["keyturn", "cloudevents", "grafana"]
# How a run can end that has changed its host.
_ENDS_OF_CHANGES = ("succeeded", "failed", "stopped")
_SIGNATURE_SCHEMES: Mapping[str, SignatureScheme] = {
    "keyturn": "standard",
    "alertmanager": "bearer",
    "github": "github",
}

NonEmptyText = Annotated[str, Field(min_length=1, max_length=200)]


class WebhookConfigError(ValueError):
    """The webhook file is not valid. The message says where, and what to do."""


class _SecretLocation(BaseModel):
    """Where a secret is stored, which is never the webhook file itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret_file: NonEmptyText | None = None
    """Relative to the webhook file."""
    secret_env: NonEmptyText | None = None
    """The name of an environment variable."""

    @model_validator(mode="after")
    def _check_one_location(self) -> "_SecretLocation":
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("set either secret_file or secret_env to where the secret is")
        return self


class _SourceSection(_SecretLocation):
    format: EventFormat = "keyturn"
    a_minute: Annotated[int, Field(ge=1, le=6000)] = 60


class _SubscriptionSection(_SecretLocation):
    url: Annotated[str, Field(max_length=500)]
    format: DeliveryFormat = "keyturn"
    kinds: Sequence[Literal["change", "check"]] = ("change",)
    areas: Sequence[Name] = ()
    events: Sequence[Annotated[str, Field(max_length=32)]] = ()
    private: bool = False

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        # Invisible characters could be dropped, or add lines to the HTTP request.
        if not url.isprintable() or " " in url:
            raise ValueError("contains a space or an invisible character: remove it")
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname or parts.username:
            raise ValueError("must be an address such as https://hooks.example.com/keyturn")
        return url

    @model_validator(mode="after")
    def _check_is_encrypted(self) -> "_SubscriptionSection":
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not (self.private and parts.hostname in LOCAL_HOSTS):
            raise ValueError(
                "must begin with https://. http:// is allowed only for this machine, with "
                "private: true"
            )
        return self


class _WebhookFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: Mapping[Name, _SourceSection] = {}
    subscriptions: Mapping[Name, _SubscriptionSection] = {}


@dataclass(frozen=True)
class WebhookSource:
    """A system that sends events to Keyturn."""

    name: str
    format: EventFormat
    secret: bytes
    max_per_minute: int
    """Events accepted in one minute."""

    @property
    def signature_scheme(self) -> SignatureScheme:
        """How the source signs its requests."""
        return _SIGNATURE_SCHEMES[self.format]


@dataclass(frozen=True)
class WebhookSubscription:
    """A system that Keyturn notifies about runs."""

    name: str
    url: str
    secret: bytes
    kinds: Sequence[str]
    """Kinds of runs: change, check."""
    areas: Sequence[str]
    """Empty for all."""
    events: Sequence[str]
    """Kinds of log entries; empty for all."""
    private: bool
    """Whether the address may be in a private network."""
    format: DeliveryFormat = "keyturn"
    """keyturn and cloudevents: signed with the secret. grafana: the secret is its token."""


@dataclass(frozen=True)
class WebhookConfig:
    sources: Mapping[str, WebhookSource]
    subscriptions: Mapping[str, WebhookSubscription]

    @property
    def secrets(self) -> list[str]:
        """The secrets, which must never be recorded, shown or logged."""
        parties = [*self.sources.values(), *self.subscriptions.values()]
        return [party.secret.decode(errors="ignore") for party in parties]


NO_WEBHOOKS = WebhookConfig({}, {})


def load_webhook_config(file: Path | None) -> WebhookConfig:
    """Load the webhook file and its secrets. Raises WebhookConfigError."""
    if file is None:
        return NO_WEBHOOKS
    try:
        data = YamlFile(file.name, file.read_text(encoding="utf-8")).parse_data()
        content = _WebhookFile.model_validate(data)
    except OSError as error:
        message = f"cannot read the webhook file {file}: {error.strerror}"
        raise WebhookConfigError(f"{message}. Check KEYTURN_HOOKS") from None
    except (UnicodeDecodeError, NoPolicyError) as error:
        raise WebhookConfigError(f"the webhook file is not valid: {error}") from None
    except ValidationError as error:
        raise WebhookConfigError(f"{file}: {describe_validation_error(error)}") from None
    sources = {
        name: WebhookSource(name, one.format, _load_secret(file, name, one), one.a_minute)
        for name, one in content.sources.items()
    }
    subscriptions = {
        name: WebhookSubscription(
            name,
            one.url,
            _load_subscription_secret(file, name, one),
            tuple(one.kinds),
            tuple(one.areas),
            tuple(one.events or (_ENDS_OF_CHANGES if one.format == "grafana" else ())),
            one.private,
            one.format,
        )
        for name, one in content.subscriptions.items()
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
    except OSError as error:
        raise WebhookConfigError(f"{file}: {name}: cannot read the secret: {error}") from None
    except ValueError as error:
        raise WebhookConfigError(
            f"{file}: {name}: the secret in {where} is not valid: {error}"
        ) from None


def _load_subscription_secret(file: Path, name: str, section: _SubscriptionSection) -> bytes:
    secret = _load_secret(file, name, section)
    # Another character would end the header, or could not be sent.
    if section.format == "grafana" and not re.fullmatch(rb"[!-~]+", secret):
        raise WebhookConfigError(
            f"{file}: {name}: the secret is not a token of a service account of Grafana, such as "
            "glsa_…"
        )
    return secret


def render_webhook_config(config: WebhookConfig) -> dict[str, Any]:
    """Return the configuration without secrets, for the change log."""
    return {
        "sources": {name: one.format for name, one in sorted(config.sources.items())},
        "subscriptions": {
            name: _redact_url_path(one.url) for name, one in sorted(config.subscriptions.items())
        },
    }


def _redact_url_path(url: str) -> str:
    """Return scheme and host of a URL with a digest of the whole URL.

    The path is left out: with many services, everyone who knows it can post there.
    """
    parts = urlsplit(url)
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return f"{parts.scheme}://{parts.netloc}/… ({digest})"

"""Parse the event formats of other systems. Pure.

Sources: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
https://docs.github.com/en/webhooks/webhook-events-and-payloads#deployment_status
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from bot.features.webhooks.config import EventFormat
from bot.integrations.webhook_signature import is_fresh
from bot.model.text import escape_to_one_line
from bot.model.times import LAST_TIME, to_microseconds
from bot.policy.loader import describe_validation_error
from connectors.inventory import Inventory

_HOST_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
_PORT_PATTERN = re.compile(r":[0-9]{1,5}\Z", re.ASCII)
# In one delivery.
_MAX_EVENTS = 100
_MAX_LINK_LENGTH = 500

ShortText = Annotated[str, Field(max_length=200)]
LongText = Annotated[str, Field(max_length=2000)]


class InvalidBodyError(ValueError):
    """The body does not match its format. The message says where."""


class StaleEventError(ValueError):
    """The event is too old: the delivery may be a replay."""


@dataclass(frozen=True)
class WebhookEvent:
    """An event outside Keyturn."""

    key: str
    """The same for every delivery of one event."""
    title: str
    hosts: Sequence[str] = ()
    """Names of the inventory; as sent for unknown hosts."""
    category: str = ""
    person: str = ""
    detail: str = ""
    url: str = ""
    happened_at: int | None = None
    """Microseconds since 1970, if the source sent it."""


class _ForeignModel(BaseModel):
    """A part of a foreign format; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class _KeyturnEvent(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=200)]
    category: ShortText = ""
    hosts: Annotated[
        list[Annotated[str, Field(max_length=253)]], Field(max_length=_MAX_EVENTS)
    ] = []
    person: ShortText = ""
    detail: LongText = ""
    url: LongText = ""
    at: AwareDatetime | None = None


class _AlertmanagerAlert(_ForeignModel):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's name
    endsAt: AwareDatetime | None = None  # noqa: N815
    fingerprint: str = ""
    generatorURL: str = ""  # noqa: N815


class _AlertmanagerBody(_ForeignModel):
    alerts: list[_AlertmanagerAlert]


class _GitHubName(_ForeignModel):
    full_name: str = ""
    login: str = ""


class _GitHubDeployment(_ForeignModel):
    id: int
    ref: str = ""
    environment: str = ""
    description: str | None = None


class _GitHubDeploymentStatus(_ForeignModel):
    id: int
    state: str
    description: str | None = None
    target_url: str | None = None
    updated_at: AwareDatetime
    creator: _GitHubName = _GitHubName()


class _GitHubBody(_ForeignModel):
    deployment: _GitHubDeployment | None = None
    deployment_status: _GitHubDeploymentStatus | None = None
    repository: _GitHubName = _GitHubName()


def parse_events(
    event_format: EventFormat, body: bytes, *, delivery_id: str, inventory: Inventory, now: int
) -> Sequence[WebhookEvent]:
    """Return the events in the body of a delivery.

    Args:
        event_format: The format of the source.
        body: The body of the HTTP request.
        delivery_id: The id of the delivery.
        inventory: Resolves the names of hosts.
        now: Seconds since 1970.

    Raises:
        InvalidBodyError: The body does not match the format.
        StaleEventError: The event is too old.
    """
    try:
        return [
            _sanitise_event(event, inventory)
            for event in _PARSERS[event_format](body, delivery_id, now)
        ]
    except ValidationError as error:
        raise InvalidBodyError(
            escape_to_one_line(describe_validation_error(error))[:500]
        ) from None
    except RecursionError:
        raise InvalidBodyError("the JSON is nested too deeply") from None


def _parse_keyturn_event(body: bytes, delivery_id: str, _now: int) -> Sequence[WebhookEvent]:
    event = _KeyturnEvent.model_validate_json(body, strict=False)
    return [
        WebhookEvent(
            delivery_id,
            event.title,
            tuple(event.hosts),
            event.category,
            event.person,
            event.detail,
            event.url,
            _to_microseconds(event.at),
        )
    ]


def _parse_alertmanager_body(body: bytes, _name: str, _now: int) -> Sequence[WebhookEvent]:
    content = _AlertmanagerBody.model_validate_json(body)
    return [_build_alert_event(alert) for alert in content.alerts[:_MAX_EVENTS]]


def _build_alert_event(alert: _AlertmanagerAlert) -> WebhookEvent:
    ended = alert.endsAt if alert.status == "resolved" else None
    # Alertmanager repeats an alert for as long as it fires: the key stays the same.
    labels = alert.fingerprint or json.dumps(alert.labels, sort_keys=True)
    instance = alert.labels.get("instance") or alert.labels.get("host") or ""
    return WebhookEvent(
        f"{labels} {alert.startsAt.isoformat()} {ended.isoformat() if ended else 'firing'}",
        f"{alert.labels.get('alertname', 'alert')} {alert.status}",
        (instance,) if instance else (),
        "alert",
        detail=alert.annotations.get("summary") or alert.annotations.get("description", ""),
        url=alert.generatorURL,
        happened_at=_to_microseconds(ended or alert.startsAt),
    )


def _parse_github_body(body: bytes, _name: str, now: int) -> Sequence[WebhookEvent]:
    """Return the status of a deployment. GitHub signs no timestamp, so its own time is checked."""
    content = _GitHubBody.model_validate_json(body)
    deployment, status = content.deployment, content.deployment_status
    if deployment is None or status is None:
        return []  # a ping, or an event of another kind
    at = _to_microseconds(status.updated_at) or 0
    if not is_fresh(at // 1_000_000, now):
        raise StaleEventError("the deployment's status is too old")
    repository = content.repository.full_name
    return [
        WebhookEvent(
            f"{repository} {deployment.id} {status.id} {status.state}",
            f"{repository} {deployment.ref[:40]} to {deployment.environment}: {status.state}",
            (),
            "deployment",
            status.creator.login,
            status.description or deployment.description or "",
            status.target_url or "",
            at,
        )
    ]


_PARSERS: Mapping[EventFormat, Callable[[bytes, str, int], Sequence[WebhookEvent]]] = {
    "keyturn": _parse_keyturn_event,
    "alertmanager": _parse_alertmanager_body,
    "github": _parse_github_body,
}


def _sanitise_event(event: WebhookEvent, inventory: Inventory) -> WebhookEvent:
    """Escape and shorten the texts of an event, and resolve its hosts."""
    return WebhookEvent(
        hashlib.sha256(event.key.encode()).hexdigest(),
        escape_to_one_line(event.title)[:200],
        tuple(
            dict.fromkeys(
                filter(None, (_resolve_host_name(host, inventory) for host in event.hosts))
            )
        ),
        escape_to_one_line(event.category)[:40],
        escape_to_one_line(event.person)[:80],
        escape_to_one_line(event.detail)[:1000],
        _sanitise_link(event.url),
        event.happened_at,
    )


def _sanitise_link(url: str) -> str:
    """Return the URL if it is printable and short enough to keep; "" otherwise."""
    is_complete = url.startswith(("https://", "http://")) and len(url) <= _MAX_LINK_LENGTH
    return url if is_complete and url.isprintable() and " " not in url else ""


def _resolve_host_name(host_name: str, inventory: Inventory) -> str:
    """Return the inventory's name for `web1.example.com:9100`; unknown hosts keep their name."""
    plain = _PORT_PATTERN.sub("", host_name.strip()).lower()
    if not _HOST_PATTERN.fullmatch(plain):
        return ""
    by_address = next((one.name for one in inventory if str(one.address) == plain), "")
    short = plain.partition(".")[0]
    known: Any = inventory.hosts
    return plain if plain in known else by_address or (short if short in known else plain)


def _to_microseconds(at: datetime | None) -> int | None:
    """Return microseconds since 1970; None outside the range, such as Go's zero time (year 1)."""
    found = None if at is None else to_microseconds(at)
    return found if found is not None and 0 <= found <= LAST_TIME else None

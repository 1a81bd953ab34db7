"""Formats of events: what other systems write, as one shape of ours. Pure.

Sources: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
https://docs.github.com/en/webhooks/webhook-events-and-payloads#deployment_status
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from bot.model.text import escape_to_one_line
from bot.policy.loader import describe_validation_error
from bot.webhooks.config import Format
from bot.webhooks.signature import is_fresh
from connectors.inventory import Inventory

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
_PORT = re.compile(r":[0-9]{1,5}\Z", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Later moments could be kept, and no page that tells of them could be drawn any more.
_BEYOND = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
# Of one delivery; more is told as one.
_MOST = 100
_LONGEST_LINK = 500

Short = Annotated[str, Field(max_length=200)]
Long = Annotated[str, Field(max_length=2000)]


class NotUnderstood(ValueError):
    """The body is not as its format says. The message says where."""


class Stale(ValueError):
    """It tells of a moment that is too long ago: an old delivery, sent once more."""


@dataclass(frozen=True)
class Event:
    """One thing that happened outside. key: the same whenever it is told again.

    at: microseconds, when it happened as far as its source says. hosts: as the inventory calls
    them, where it knows them.
    """

    key: str
    title: str
    hosts: Sequence[str] = ()
    category: str = ""
    person: str = ""
    detail: str = ""
    url: str = ""
    at: int | None = None


class _Foreign(BaseModel):
    """What somebody else's format has besides is none of our business."""

    model_config = ConfigDict(extra="ignore")


class _Ours(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=200)]
    category: Short = ""
    hosts: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=_MOST)] = []
    person: Short = ""
    detail: Long = ""
    url: Long = ""
    at: AwareDatetime | None = None


class _Alert(_Foreign):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's name
    endsAt: AwareDatetime | None = None  # noqa: N815
    fingerprint: str = ""
    generatorURL: str = ""  # noqa: N815


class _Alerts(_Foreign):
    alerts: list[_Alert]


class _Named(_Foreign):
    full_name: str = ""
    login: str = ""


class _Deployment(_Foreign):
    id: int
    ref: str = ""
    environment: str = ""
    description: str | None = None


class _Status(_Foreign):
    id: int
    state: str
    description: str | None = None
    target_url: str | None = None
    updated_at: AwareDatetime
    creator: _Named = _Named()


class _GitHub(_Foreign):
    deployment: _Deployment | None = None
    deployment_status: _Status | None = None
    repository: _Named = _Named()


def parse_events(
    form: Format, body: bytes, *, name: str, inventory: Inventory, now: int
) -> Sequence[Event]:
    """Return what the body tells of. name: of the delivery. now: seconds since 1970.

    Raises NotUnderstood and Stale.
    """
    try:
        return [_clean(one, inventory) for one in _READERS[form](body, name, now)]
    except ValidationError as trouble:
        raise NotUnderstood(escape_to_one_line(describe_validation_error(trouble))[:500]) from None
    except RecursionError:
        raise NotUnderstood("it is nested too deeply") from None


def _ours(body: bytes, name: str, _now: int) -> Sequence[Event]:
    told = _Ours.model_validate_json(body, strict=False)
    return [
        Event(
            name,
            told.title,
            tuple(told.hosts),
            told.category,
            told.person,
            told.detail,
            told.url,
            _micros(told.at),
        )
    ]


def _alertmanager(body: bytes, _name: str, _now: int) -> Sequence[Event]:
    told = _Alerts.model_validate_json(body)
    return [_alert(one) for one in told.alerts[:_MOST]]


def _alert(one: _Alert) -> Event:
    ended = one.endsAt if one.status == "resolved" else None
    # Alertmanager tells of the same alert again and again for as long as it fires.
    labels = one.fingerprint or json.dumps(one.labels, sort_keys=True)
    instance = one.labels.get("instance") or one.labels.get("host") or ""
    return Event(
        f"{labels} {one.startsAt.isoformat()} {ended.isoformat() if ended else 'firing'}",
        f"{one.labels.get('alertname', 'alert')} {one.status}",
        (instance,) if instance else (),
        "alert",
        detail=one.annotations.get("summary") or one.annotations.get("description", ""),
        url=one.generatorURL,
        at=_micros(ended or one.startsAt),
    )


def _github(body: bytes, _name: str, now: int) -> Sequence[Event]:
    """Tell of a deployment's status. What GitHub signs has no time but those that are in it."""
    told = _GitHub.model_validate_json(body)
    deployment, status = told.deployment, told.deployment_status
    if deployment is None or status is None:
        return []  # a ping, or an event that nobody needs here
    at = _micros(status.updated_at) or 0
    if not is_fresh(at // 1_000_000, now):
        raise Stale("the deployment's status is too old")
    repository = told.repository.full_name
    return [
        Event(
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


_READERS: Mapping[Format, Callable[[bytes, str, int], Sequence[Event]]] = {
    "keyturn": _ours,
    "alertmanager": _alertmanager,
    "github": _github,
}


def _clean(one: Event, inventory: Inventory) -> Event:
    """Return it with every word made visible and cut, and hosts as we call them."""
    return Event(
        hashlib.sha256(one.key.encode()).hexdigest(),
        escape_to_one_line(one.title)[:200],
        tuple(dict.fromkeys(filter(None, (_host(host, inventory) for host in one.hosts)))),
        escape_to_one_line(one.category)[:40],
        escape_to_one_line(one.person)[:80],
        escape_to_one_line(one.detail)[:1000],
        _link(one.url),
        one.at,
    )


def _link(said: str) -> str:
    """Return an address that leads where it seems to; "" for what is none, or would be cut."""
    whole = said.startswith(("https://", "http://")) and len(said) <= _LONGEST_LINK
    return said if whole and said.isprintable() and " " not in said else ""


def _host(said: str, inventory: Inventory) -> str:
    """Return the inventory's name for `web1.example.com:9100`, or what was said if it has none."""
    plain = _PORT.sub("", said.strip()).lower()
    if not _HOST.fullmatch(plain):
        return ""
    by_address = next((one.name for one in inventory if str(one.address) == plain), "")
    short = plain.partition(".")[0]
    known: Any = inventory.hosts
    return plain if plain in known else by_address or (short if short in known else plain)


def _micros(at: datetime | None) -> int | None:
    """Return it in microseconds; None for what is no moment, such as the year 1 of Go's zero."""
    found = None if at is None else (at - _EPOCH) // timedelta(microseconds=1)
    return found if found is not None and 0 <= found < _BEYOND else None

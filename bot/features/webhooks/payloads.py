"""What a subscription receives of an event: JSON of Keyturn's own, a CloudEvent, an annotation."""

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from bot.api.run_event import RunEventOut
from bot.features.webhooks.config import WebhookSubscription
from bot.integrations.webhook_signature import build_signature_headers

# Grafana's default of `[annotations] tags_length`, which counts brackets, quotes and commas too.
_MAX_TAGS_LENGTH = 500


@dataclass(frozen=True)
class Payload:
    """What is sent."""

    headers: dict[str, str]
    body: bytes


def build_payload(
    subscription: WebhookSubscription, event: RunEventOut, source: str, *, timestamp: int
) -> Payload | None:
    """Return what the subscription receives; None if the event is nothing to it.

    Args:
        source: The address of the service.
        timestamp: Seconds since 1970.
    """
    if subscription.format == "grafana":
        return _build_annotation(event, subscription.secret)
    is_cloud_event = subscription.format == "cloudevents"
    body = build_cloud_event(event, source) if is_cloud_event else event.model_dump_json().encode()
    headers = build_signature_headers(
        subscription.secret, f"{subscription.name}-{event.entry}", body, timestamp=timestamp
    )
    if is_cloud_event:
        headers["Content-Type"] = "application/cloudevents+json; charset=UTF-8"
    return Payload(headers, body)


def build_cloud_event(event: RunEventOut, source: str) -> bytes:
    """Return a CloudEvent in the structured mode, whose attributes the signature covers too.

    Source: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
    """
    data = event.model_dump(mode="json")
    document = {
        "specversion": "1.0",
        "id": str(event.entry),
        "source": source,
        "type": f"keyturn.run.{event.event.replace(' ', '_')}",
        "subject": f"runs/{event.run.id}",
        "time": data["at"],
        "datacontenttype": "application/json",
        "data": data,
    }
    return json.dumps(document).encode()


def _build_annotation(event: RunEventOut, token: bytes) -> Payload | None:
    """Return an annotation from the first step of a run to its end; None if no step was sent.

    A run on several hosts is one annotation, not one for each host.

    Source: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
    """
    run = event.run
    if run.started_at is None or run.parent is not None:
        return None
    people = f"requested by {run.requested_by}"
    if run.approved_by:
        people += f", approved by {', '.join(run.approved_by)}"
    # Grafana shows the text as HTML.
    link = f'<a href="{html.escape(run.page)}">Run {run.id}</a>'
    annotation = {
        "time": _to_milliseconds(run.started_at),
        "timeEnd": _to_milliseconds(event.at),
        "tags": _limit_tags(["keyturn", event.event, run.runbook, run.area, *run.hosts]),
        "text": f"{link}: {html.escape(f'{run.title}. {event.event}, {people}')}",
    }
    headers = {"Authorization": f"Bearer {token.decode()}"}
    return Payload(headers, json.dumps(annotation).encode())


def _limit_tags(tags: Iterable[str]) -> list[str]:
    """Return the first tags, as many as Grafana accepts: it refuses an annotation with more."""
    kept: list[str] = []
    length = 2
    for tag in dict.fromkeys(tags):
        length += len(tag.encode()) + 3
        if length > _MAX_TAGS_LENGTH:
            break
        kept.append(tag)
    return kept


def _to_milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)

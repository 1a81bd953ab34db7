"""`keyturn mcp`: a bridge for programs that speak MCP over standard input and output."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from bot.cli.client import URL_OPTION, ServiceClient, connect_to_service, get_service_url
from bot.cli.context import FAILED, exit_with_error

if TYPE_CHECKING:
    import httpx2

Message = Mapping[str, Any]
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
# The parameter that a header repeats, by method.
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_TIMEOUT_SECONDS = 60.0


@click.command("mcp")
@URL_OPTION
@click.pass_context
def bridge_mcp(context: click.Context, url: str) -> None:
    """Connect a program that speaks MCP over standard input and output to /mcp.

    Each line of standard input is sent to KEYTURN_URL with the agent's token in KEYTURN_TOKEN, and
    each answer is a line of standard output.

    For example: keyturn mcp
    """
    import httpx2

    token = os.environ.get("KEYTURN_TOKEN", "").strip()
    service = connect_to_service(url or get_service_url(context), token)
    version = ""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            message: Message = dict(json.loads(line))
        except (ValueError, TypeError):
            exit_with_error("standard input is not JSON-RPC: one message on each line", FAILED)
        try:
            answers = list(_send(service, message, version))
        except httpx2.HTTPError as error:
            answers = [_build_error(message, f"cannot reach {service.base_url}: {error}")]
        for answer in answers:
            version = _get_negotiated_version(answer) or version
            click.echo(json.dumps(answer, ensure_ascii=False))


def _send(service: ServiceClient, message: Message, version: str) -> Iterator[Message]:
    """Send one message and yield the answers, none for a notification."""
    response = service.http_client.post(
        f"{service.base_url}/mcp",
        content=json.dumps(message),
        headers=_build_headers(message, version),
        timeout=_TIMEOUT_SECONDS,
    )
    if response.status_code in {401, 403}:
        yield _build_error(message, "KEYTURN_TOKEN is not a valid token of an agent")
    elif not response.content:
        if response.is_error:
            yield _build_error(message, f"{service.base_url} answers {response.status_code}")
    elif response.headers.get("content-type", "").startswith("application/json"):
        yield response.json()
    else:
        yield from _read_events(response)


def _build_headers(message: Message, version: str) -> dict[str, str]:
    """Return the headers that repeat what the message says. version: as negotiated before."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    parameters: Message = message.get("params") or {}
    about: Message = parameters.get("_meta") or {}
    stated = str(about.get(_VERSION_KEY, ""))
    if stated or version:
        headers["mcp-protocol-version"] = stated or version
    if stated:
        method = str(message.get("method"))
        headers["mcp-method"] = method
        if method in _NAMED:
            headers["mcp-name"] = str(parameters.get(_NAMED[method], ""))
    return headers


def _read_events(response: "httpx2.Response") -> Iterator[Message]:
    """Yield the messages of an event stream."""
    for line in response.text.splitlines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


def _get_negotiated_version(answer: Message) -> str:
    """Return the version that an answer to `initialize` names; "" for another answer."""
    result: Message = answer.get("result") or {}
    return str(result.get("protocolVersion", ""))


def _build_error(message: Message, text: str) -> Message:
    error = {"code": -32000, "message": text}
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": error}

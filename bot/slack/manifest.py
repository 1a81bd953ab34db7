"""The manifest of the Slack app, for Socket Mode or with request URLs for HTTP."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from ruamel.yaml import YAML

from bot.model.errors import InvalidRequestError
from bot.slack.aliases import ALIASES

LOST_WITHOUT: Mapping[str, str] = {
    "im:history": "messages to Keyturn itself are not answered",
    "files:write": "long output is cut in chat, and whole on the page of its run",
    "channels:read": "public channels are not checked",
    "groups:read": "private channels are not checked",
    "links:read": "links to runs show nothing below them",
    "links:write": "links to runs show nothing below them",
    "channels:history": "in public channels, no alert is answered before a person asks, and a "
    "card whose answer was lost may be posted twice",
    "groups:history": "in private channels, no alert is answered before a person asks, and a "
    "card whose answer was lost may be posted twice",
}
"""What Keyturn cannot do without an optional scope."""
_HISTORY_SCOPES = ("channels:history", "groups:history")
_MESSAGE_EVENTS = ("message.channels", "message.groups")


def format_manifest(
    address: str = "",
    base_url: str = "",
    *,
    find_lost: bool = False,
    alerts: bool = False,
    commands: Sequence[str] = (),
) -> str:
    """Return the manifest as YAML.

    Args:
        address: HTTPS URL of Keyturn; "" for Socket Mode.
        base_url: of the web pages, whose links Slack reports to Keyturn; "" without.
        find_lost: whether Keyturn may search channels for a card whose answer was lost.
        alerts: whether Slack sends Keyturn what is posted in the channels that it is in.
        commands: the slash commands besides /keyturn, of `ALIASES`.

    Raises InvalidRequestError for an address that Slack does not accept.
    """
    text = (files("bot.slack") / "manifest.yaml").read_text()
    parts = _split_address(address)
    host = (parts if address else urlsplit(base_url)).hostname or ""
    # Slack accepts names only. A name that it does not know is no error: no link has it.
    if "." in host and not host.replace(".", "").isdecimal():
        text = text.replace("features:\n", f"features:\n  unfurl_domains: [{host}]\n", 1)
    if address and (
        parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment
    ):
        raise InvalidRequestError(f"Slack accepts HTTPS addresses only: {address!r}")
    if not (address or find_lost or alerts or commands):
        return text
    yaml = YAML()
    yaml.width = 200
    manifest = yaml.load(text)
    manifest["features"]["slash_commands"] += [_describe_command(name) for name in commands]
    if find_lost or alerts:
        for kind in ("bot", "bot_optional"):
            manifest["oauth_config"]["scopes"][kind] += _HISTORY_SCOPES
    if alerts:
        manifest["settings"]["event_subscriptions"]["bot_events"] += _MESSAGE_EVENTS
    if address:
        _set_request_urls(manifest, f"{address.rstrip('/')}/slack/events")
    out = StringIO()
    yaml.dump(manifest, out)
    return out.getvalue()


def _describe_command(name: str) -> dict[str, Any]:
    alias = ALIASES[name]
    return {
        "command": name,
        "description": alias.description,
        "usage_hint": alias.usage,
        "should_escape": True,
    }


def _split_address(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError as error:
        raise InvalidRequestError(f"{address!r} is no address: {error}") from None


@cache
def list_scopes() -> Mapping[str, Sequence[str]]:
    """Return all scopes of the app by kind: "bot", and its subset "bot_optional"."""
    text = format_manifest(find_lost=True)
    manifest = cast("dict[str, Any]", YAML(typ="safe", pure=True).load(text))
    return manifest["oauth_config"]["scopes"]


def _set_request_urls(manifest: dict[str, Any], request_url: str) -> None:
    for command in manifest["features"]["slash_commands"]:
        command["url"] = request_url
    settings = manifest["settings"]
    settings["socket_mode_enabled"] = False
    settings["interactivity"] |= {
        "request_url": request_url,
        "message_menu_options_url": request_url,
    }
    settings["event_subscriptions"]["request_url"] = request_url

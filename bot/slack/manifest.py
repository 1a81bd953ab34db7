"""The manifest of the Slack app, for Socket Mode or with request URLs for HTTP."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from ruamel.yaml import YAML

from bot.model.errors import InvalidRequestError


def format_manifest(address: str = "", base_url: str = "") -> str:
    """Return the manifest as YAML.

    Args:
        address: HTTPS URL of Keyturn; "" for Socket Mode.
        base_url: of the web pages, whose links Slack reports to Keyturn; "" without.

    Raises InvalidRequestError for an address that Slack does not accept.
    """
    text = (files("bot.slack") / "manifest.yaml").read_text()
    parts = _split_address(address)
    host = (parts if address else urlsplit(base_url)).hostname or ""
    # Slack accepts names only. A name that it does not know is no error: no link has it.
    if "." in host and not host.replace(".", "").isdecimal():
        text = text.replace("features:\n", f"features:\n  unfurl_domains: [{host}]\n", 1)
    if not address:
        return text
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequestError(f"Slack accepts HTTPS addresses only: {address!r}")
    yaml = YAML()
    manifest = yaml.load(text)
    _set_request_urls(manifest, f"{address.rstrip('/')}/slack/events")
    out = StringIO()
    yaml.dump(manifest, out)
    return out.getvalue()


def _split_address(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError as error:
        raise InvalidRequestError(f"{address!r} is no address: {error}") from None


@cache
def list_scopes() -> Mapping[str, Sequence[str]]:
    """Return the scopes of the app by kind: "bot", and its subset "bot_optional"."""
    manifest = cast("dict[str, Any]", YAML(typ="safe").load(format_manifest()))
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

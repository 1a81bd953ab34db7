"""The Slack app manifest: commands, events, addresses, and no unused scope."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.model.errors import InvalidRequestError
from bot.slack.aliases import ALIASES, COMMAND
from bot.slack.manifest import LOST_WITHOUT, format_manifest
from bot.slack.modals import ABOUT_HOST, HOST_SHORTCUT_NAME
from tests.bot.slack import schema_check
from tests.bot.slack.json_walk import walk_objects

SCOPES = {"app_mentions:read", "chat:write", "commands", "im:write", "users:read"}
OPTIONAL = {
    *("channels:read", "groups:read", "files:write", "im:history", "links:read", "links:write"),
}
# Only with --find-lost.
SEARCH = {"channels:history", "groups:history"}


@pytest.fixture
def manifest() -> dict[str, Any]:
    return YAML(typ="safe").load((files("bot.slack") / "manifest.yaml").read_text())


@pytest.mark.parametrize("address", ["", "https://keyturn.example.com"])
def test_manifest_matches_the_schema_of_slack(address: str):
    assert (
        schema_check.list_faults("Manifest", YAML(typ="safe").load(format_manifest(address))) == []
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- commands", "- comands"),
        ("- app_home_opened", "- app_home_open"),
        ("should_escape:", "should_escaped:"),
        ("socket_mode_enabled:", "socket_mode:"),
        ("name: Keyturn", f"name: {'Keyturn' * 6}"),
    ],
)
def test_manifest_schema_detects_a_typing_error(old: str, new: str):
    text = format_manifest()
    assert old in text
    slipped = YAML(typ="safe").load(text.replace(old, new))
    assert schema_check.list_faults("Manifest", slipped) != []


def test_manifest_has_the_sections_and_lengths_of_slack(manifest: dict[str, Any]):
    assert set(manifest) == {"display_information", "features", "oauth_config", "settings"}
    assert 0 < len(manifest["display_information"]["name"]) <= 35
    assert 0 < len(manifest["display_information"]["description"]) <= 140


def test_manifest_has_one_slash_command_unless_others_are_named(manifest: dict[str, Any]):
    commands = manifest["features"]["slash_commands"]
    assert [command["command"] for command in commands] == [COMMAND]


def test_manifest_lists_every_named_slash_command_with_escaping():
    manifest = YAML(typ="safe").load(format_manifest(commands=[*ALIASES]))
    assert schema_check.list_faults("Manifest", manifest) == []
    commands = manifest["features"]["slash_commands"]
    assert [command["command"] for command in commands] == [COMMAND, *ALIASES]
    for command in commands:
        assert command["should_escape"] is True
        assert len(command["command"]) <= 32
        assert len(command["description"]) <= 150
        assert len(command["usage_hint"]) <= 1000


def test_manifest_shortcut_matches_its_listener(manifest: dict[str, Any]):
    shortcuts = manifest["features"]["shortcuts"]
    assert [one["callback_id"] for one in shortcuts] == [ABOUT_HOST, "check-alert"]
    assert shortcuts[0]["name"] == HOST_SHORTCUT_NAME
    for shortcut in shortcuts:
        assert shortcut["type"] == "message"
        assert len(shortcut["name"]) <= 24
        assert len(shortcut["description"]) <= 150


def test_manifest_subscribes_only_to_what_is_answered(manifest: dict[str, Any]):
    events = manifest["settings"]["event_subscriptions"]["bot_events"]
    assert events == ["app_home_opened", "app_mention", "link_shared", "message.im"]
    assert manifest["features"]["app_home"]["home_tab_enabled"] is True


def test_manifest_requests_exactly_the_listed_scopes(manifest: dict[str, Any]):
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes) == {"bot", "bot_optional"}
    assert len(scopes["bot"]) == len(set(scopes["bot"]))
    # Slack wants the optional ones in both lists.
    assert set(scopes["bot"]) == SCOPES | OPTIONAL
    assert set(scopes["bot_optional"]) == OPTIONAL


def test_manifest_asks_to_search_channels_only_for_lost_cards():
    scopes = YAML(typ="safe").load(format_manifest(find_lost=True))["oauth_config"]["scopes"]
    assert set(scopes["bot"]) == SCOPES | OPTIONAL | SEARCH
    assert set(scopes["bot_optional"]) == OPTIONAL | SEARCH
    assert LOST_WITHOUT.keys() == OPTIONAL | SEARCH


def test_manifest_subscribes_to_messages_of_channels_only_for_alerts():
    manifest = YAML(typ="safe").load(format_manifest(alerts=True))
    assert schema_check.list_faults("Manifest", manifest) == []
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes["bot"]) == SCOPES | OPTIONAL | SEARCH
    assert set(scopes["bot_optional"]) == OPTIONAL | SEARCH
    events = manifest["settings"]["event_subscriptions"]["bot_events"]
    assert {"message.channels", "message.groups"} <= {*events}


def addresses(manifest: dict[str, Any]) -> list[str]:
    return [part[name] for part in walk_objects(manifest) for name in part if name.endswith("url")]


def test_manifest_for_socket_mode_has_no_urls(manifest: dict[str, Any]):
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert addresses(manifest) == []


def test_manifest_for_http_sends_everything_to_slack_events(manifest: dict[str, Any]):
    http = YAML(typ="safe").load(format_manifest("https://keyturn.example.com/"))
    assert http["settings"]["socket_mode_enabled"] is False
    commands = manifest["features"]["slash_commands"]
    assert addresses(http) == ["https://keyturn.example.com/slack/events"] * (len(commands) + 3)
    assert http["oauth_config"] == manifest["oauth_config"]
    assert "# /keyturn" in format_manifest("https://keyturn.example.com")


@pytest.mark.parametrize(
    ("address", "base_url", "domains"),
    [
        ("", "https://keyturn.example.com", ["keyturn.example.com"]),
        ("https://a.example.com", "https://b.example.com", ["a.example.com"]),
        ("", "http://127.0.0.1:8080", None),
        ("", "http://localhost:8080", None),
        ("", "", None),
    ],
)
def test_manifest_unfurl_domain_is_the_domain_of_the_pages(
    address: str, base_url: str, domains: list[str] | None
):
    manifest = YAML(typ="safe").load(format_manifest(address, base_url))
    assert manifest["features"].get("unfurl_domains") == domains
    assert schema_check.list_faults("Manifest", manifest) == []


@pytest.mark.parametrize(
    "address", ["http://keyturn.example.com", "keyturn", "https://", "https://k?x=1"]
)
def test_manifest_refuses_an_address_without_https(address: str):
    with pytest.raises(InvalidRequestError, match="HTTPS addresses only"):
        format_manifest(address)


# What each of our calls needs; the others need no scope.
# Source: https://docs.slack.dev/reference/methods
NEEDS = {
    "chat_postEphemeral": "chat:write",
    "chat_postMessage": "chat:write",
    "chat_unfurl": "links:write",
    "chat_update": "chat:write",
    "conversations_history": "channels:history",
    "conversations_info": "channels:read",
    "conversations_open": "im:write",
    "conversations_replies": "channels:history",
    "files_upload_v2": "files:write",
    "users_info": "users:read",
}
NO_SCOPE = {"apps_connections_open", "auth_test", "views_open", "views_publish", "views_update"}


def test_manifest_requests_no_unused_scope(manifest: dict[str, Any]):
    code = "".join(file.read_text() for file in Path(str(files("bot.slack"))).glob("*.py"))
    called = set(re.findall(r"client\.([a-z]+_\w+)\(", code))
    assert called <= NEEDS.keys() | NO_SCOPE
    needed = {NEEDS[name] for name in called - NO_SCOPE}
    # A slash command and an event need their own; private and direct channels have others than
    # public ones.
    elsewhere = {"app_mentions:read", "links:read", "groups:read", "im:history"}
    asked = set(manifest["oauth_config"]["scopes"]["bot"])
    assert asked == (needed - SEARCH) | {"commands"} | elsewhere


def test_manifest_allows_direct_messages_to_the_bot(manifest: dict[str, Any]):
    home = manifest["features"]["app_home"]
    assert home["messages_tab_enabled"] is True
    assert home["messages_tab_read_only_enabled"] is False
    assert manifest["settings"]["interactivity"]["is_enabled"] is True

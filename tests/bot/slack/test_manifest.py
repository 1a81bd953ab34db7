"""The app manifest asks for what the door uses, and for no more than is written down here."""

from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from ruamel.yaml import YAML

from bot.slack.aliases import ALIASES, COMMAND
from bot.slack.form import ABOUT_HOST, ABOUT_HOST_NAME

SCOPES = {
    "app_mentions:read",
    "channels:read",
    "chat:write",
    "commands",
    "files:write",
    "groups:read",
    "im:history",
    "im:write",
    "usergroups:read",
    "users:read",
    "users:read.email",
}


@pytest.fixture
def manifest() -> dict[str, Any]:
    return YAML(typ="safe").load((files("bot.slack") / "manifest.yaml").read_text())


def test_it_has_the_parts_that_slack_knows(manifest: dict[str, Any]):
    assert set(manifest) == {"display_information", "features", "oauth_config", "settings"}
    assert 0 < len(manifest["display_information"]["name"]) <= 35
    assert 0 < len(manifest["display_information"]["description"]) <= 140


def test_the_commands_are_ours_and_escaped(manifest: dict[str, Any]):
    commands = manifest["features"]["slash_commands"]
    assert [command["command"] for command in commands] == [COMMAND, *ALIASES]
    for command in commands:
        assert command["should_escape"] is True
        assert len(command["command"]) <= 32
        assert len(command["description"]) <= 150
        assert len(command["usage_hint"]) <= 1000


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_described_alike_everywhere(manifest: dict[str, Any], name: str):
    commands = {one["command"]: one for one in manifest["features"]["slash_commands"]}
    assert commands[name]["description"] == ALIASES[name].description
    assert commands[name]["usage_hint"] == ALIASES[name].usage


def test_the_shortcut_is_the_one_that_is_listened_to(manifest: dict[str, Any]):
    [shortcut] = manifest["features"]["shortcuts"]
    assert (shortcut["type"], shortcut["callback_id"]) == ("message", ABOUT_HOST)
    assert shortcut["name"] == ABOUT_HOST_NAME
    assert len(shortcut["name"]) <= 24
    assert len(shortcut["description"]) <= 150


def test_it_hears_of_nothing_but_visits_to_its_home(manifest: dict[str, Any]):
    assert manifest["settings"]["event_subscriptions"]["bot_events"] == ["app_home_opened"]
    assert manifest["features"]["app_home"]["home_tab_enabled"] is True


def test_the_scopes_are_those_that_were_weighed(manifest: dict[str, Any]):
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes) == {"bot"}
    assert len(scopes["bot"]) == len(set(scopes["bot"]))
    assert set(scopes["bot"]) == SCOPES


def test_every_address_is_the_door_over_https(manifest: dict[str, Any]):
    settings = manifest["settings"]
    commands = manifest["features"]["slash_commands"]
    for url in (
        *(command["url"] for command in commands),
        settings["interactivity"]["request_url"],
        settings["interactivity"]["message_menu_options_url"],
        settings["event_subscriptions"]["request_url"],
    ):
        parts = urlsplit(str(url))
        assert (parts.scheme, parts.path, parts.query) == ("https", "/slack/events", "")


def test_people_can_write_to_it_directly(manifest: dict[str, Any]):
    home = manifest["features"]["app_home"]
    assert home["messages_tab_enabled"] is True
    assert home["messages_tab_read_only_enabled"] is False
    assert manifest["settings"]["interactivity"]["is_enabled"] is True

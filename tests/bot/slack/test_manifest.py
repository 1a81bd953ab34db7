"""The app manifest asks for what the door uses, and for no more than is written down here."""

from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from ruamel.yaml import YAML

from bot.slack.answers import COMMAND

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


def test_the_command_is_ours_and_escaped(manifest: dict[str, Any]):
    [command] = manifest["features"]["slash_commands"]
    assert command["command"] == COMMAND
    assert command["should_escape"] is True
    assert len(command["description"]) <= 150
    assert len(command["usage_hint"]) <= 1000


def test_the_scopes_are_those_that_were_weighed(manifest: dict[str, Any]):
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes) == {"bot"}
    assert len(scopes["bot"]) == len(set(scopes["bot"]))
    assert set(scopes["bot"]) == SCOPES


def test_every_address_is_the_door_over_https(manifest: dict[str, Any]):
    [command] = manifest["features"]["slash_commands"]
    for url in (str(command["url"]), str(manifest["settings"]["interactivity"]["request_url"])):
        parts = urlsplit(url)
        assert (parts.scheme, parts.path, parts.query) == ("https", "/slack/events", "")


def test_people_can_write_to_it_directly(manifest: dict[str, Any]):
    home = manifest["features"]["app_home"]
    assert home["messages_tab_enabled"] is True
    assert home["messages_tab_read_only_enabled"] is False
    assert manifest["settings"]["interactivity"]["is_enabled"] is True

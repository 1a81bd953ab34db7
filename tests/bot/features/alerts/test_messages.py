"""What is read from the messages of alerts, and what is not."""

from collections.abc import Mapping
from typing import Any

import pytest

from bot.features.alerts.messages import AlertState, read_alert
from connectors.inventory import Host
from tests.bot.features.alerts import recorded
from tests.bot.slack.hostile import BRIEF, HIDDEN, LOUD, SAID
from tests.policies import HOST_KEY

FIRING, ENDED = AlertState.FIRING, AlertState.ENDED


def build_hosts(**addresses: str) -> Mapping[str, Host]:
    """Return hosts of an inventory, by name, with their addresses."""
    return {
        name: Host(name=name, address=address, user="keyturn", host_key=HOST_KEY, area="edge")
        for name, address in addresses.items()
    }


HOSTS = build_hosts(lb1="10.0.0.1", lb2="10.0.0.2", web1="web1.example.com")


@pytest.mark.parametrize(
    ("name", "state", "hosts", "values"),
    [
        ("ALERTMANAGER", FIRING, ["lb1"], {}),
        ("ALERTMANAGER_RESOLVED", ENDED, ["lb1"], {}),
        ("GRAFANA", FIRING, ["web1"], {"service": "nginx"}),
        ("ICINGA", FIRING, ["web1"], {"service": "nginx"}),
        ("ICINGA_LINE", FIRING, ["web1"], {"service": "nginx"}),
        ("ICINGA_HOST", FIRING, ["web1"], {}),
        ("ICINGA_RECOVERY", ENDED, ["web1"], {"service": "nginx"}),
        ("NAGIOS", FIRING, ["web1"], {"service": "nginx"}),
        ("NAGIOS_TITLE", FIRING, ["web1"], {"service": "nginx"}),
        ("NAGIOS_ACKNOWLEDGED", ENDED, ["web1"], {"service": "nginx"}),
        ("PINGDOM", FIRING, ["web1"], {}),
        ("PINGDOM_UP", ENDED, ["web1"], {}),
        ("PINGDOM_BLOCKS", FIRING, ["web1"], {}),
    ],
)
def test_state_host_and_service_are_read_from_each_program(
    name: str, state: AlertState, hosts: list[str], values: dict[str, str]
) -> None:
    alert = read_alert(getattr(recorded, name), HOSTS)
    assert (alert.state, alert.hosts, alert.values) == (state, hosts, values)


def test_every_recorded_message_is_read() -> None:
    named = {name for name in vars(recorded) if name.isupper()}
    rows: list[Any] = [
        mark
        for mark in test_state_host_and_service_are_read_from_each_program.pytestmark  # pyright: ignore[reportFunctionMemberAccess]
        if mark.name == "parametrize"
    ]
    assert named == {row[0] for row in rows[0].args[1]}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("[FIRING:1] Down (lb1:9100)", ["lb1"]),
        ("[FIRING:1] Down (10.0.0.1:9100)", ["lb1"]),
        ("[FIRING:2] Down (lb2 lb1)", ["lb2", "lb1"]),
        ("[FIRING:1] Down (LB1.example.com)", ["lb1"]),
        ("[FIRING:1] Down (https://web1.example.com/shop?x=1)", ["web1"]),
        # Another host of a similar name, and a word that only resembles one.
        ("[FIRING:1] Down (web1.staging.example.com)", []),
        ("[FIRING:1] Down (web2.example.com, wb1, lb11, lb-1)", []),
        ("[FIRING:1] Down\nSource: http://lb1:3000/alerting", []),
        # What a label names is what it is about.
        ("[FIRING:1] Down as seen by lb2\n - instance = lb1:9100", ["lb1"]),
        ("PROBLEM: disk on 10.0.0.77", []),
    ],
)
def test_only_hosts_of_the_inventory_are_found_by_their_exact_names(
    text: str, hosts: list[str]
) -> None:
    assert read_alert({"text": text}, HOSTS).hosts == hosts


def test_address_is_read_unless_it_is_that_of_the_host() -> None:
    text = "[FIRING:1] AbusersShow (lb1)\nClient 203.0.113.9 of 10.0.0.1, then 203.0.113.10"
    assert read_alert({"text": text}, HOSTS).addresses == ["203.0.113.9"]


def test_words_are_those_of_the_headline_without_hosts_and_states() -> None:
    text = "[FIRING:1] HostHighCPULoad (lb1:9100 critical)"
    assert read_alert({"text": text}, HOSTS).words == ["host", "high", "cpu", "load"]


def test_state_of_a_message_without_one_is_that_of_its_colour() -> None:
    attachment = {"title": "lb1 is slow", "color": "a30200"}
    assert read_alert({"attachments": [attachment]}, HOSTS).state is FIRING
    attachment["color"] = "2eb886"
    assert read_alert({"attachments": [attachment]}, HOSTS).state is AlertState.UNCLEAR
    assert read_alert({"text": "lb1 is slow"}, HOSTS).state is AlertState.UNCLEAR


@pytest.mark.parametrize("text", [LOUD, BRIEF, HIDDEN, SAID])
def test_hostile_text_is_read_as_text(text: str) -> None:
    for message in (
        {"text": text},
        {"attachments": [{"title": text, "fields": [{"title": text, "value": text}]}]},
        {"blocks": [{"type": "section", "text": {"text": text}}], "attachments": [text, None, 3]},
        {"attachments": [{"title": f"[FIRING:1] lb1 {text}", "text": f" - service = {text}"}]},
    ):
        alert = read_alert(message, HOSTS)
        assert set(alert.hosts) <= {*HOSTS}


def test_nested_and_long_messages_are_read_to_a_limit() -> None:
    nested: dict[str, Any] = {"text": "lb1"}
    for _ in range(5000):
        nested = {"blocks": [nested]}
    assert read_alert(nested, HOSTS).hosts == []
    long = {"text": "PROBLEM " + "x=y " * 200_000, "attachments": [{"title": "lb1"}] * 5000}
    assert read_alert(long, HOSTS).state is FIRING

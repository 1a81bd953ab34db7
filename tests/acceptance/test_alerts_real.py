"""An alert in chat is answered with what real hosts say, before a person asks."""

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from bot.features.alerts.chat import SHORTCUT
from bot.model.run import State
from tests.acceptance.test_first_time_user import (
    Newcomer,
    get_newest_run,
    iterate_values,
    wait_for,
)
from tests.bot.slack import payloads
from tests.bot.slack.json_walk import list_texts
from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet
from tests.playground.service import Service
from tests.slack_emulator.messages import Message
from tests.slack_emulator.places import MessagePlace
from tests.slack_emulator.server import CHANNEL

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
ALERT: dict[str, Any] = {
    "text": "",
    "attachments": [
        {
            "color": "a30200",
            "title": f"[FIRING:1] HAProxyAbusersShown (lb1:9101 {ABUSER} critical)",
            "fallback": "[FIRING:1] HAProxyAbusersShown",
        }
    ],
}
AGENT = """
@id("the alert bot checks hosts")
@description("The alert bot runs checks, and sees what changed.")
permit (principal == Agent::"alert-bot", action == Action::"request", resource)
when { context.kind == "check" };

@id("the alert bot sees changes")
@description("The alert bot sees runs.")
permit (principal == Agent::"alert-bot", action == Action::"view", resource);
"""


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    policy = tmp_path / "policy"
    sample_company.create_policy(policy)
    areas = policy / "areas.yaml"
    areas.write_text(_ask_for_answers(areas.read_text()))
    rules = policy / "policy.cedar"
    rules.write_text(rules.read_text() + AGENT)
    with LoopbackFleet(policy) as fleet, Service(tmp_path) as service:
        fleet.haproxy.abuse(ABUSER)
        actions = service.keyturn.service.agents
        actions.add_agent("alert-bot", owner="adam", purpose="alerts", days=9, person="olga")
        actions.confirm_agent("alert-bot", person="stan")
        yield service


def _ask_for_answers(areas: str) -> str:
    """Have the alerts of the edge answered in the only channel there is."""
    found = "title: the edge, owners: [olga, adam]"
    assert areas.count(found) == 1, areas
    return areas.replace(found, f"{found}, channel: {CHANNEL}, alert_agent: alert-bot")


class Channel:
    """The channel in which a program posts an alert."""

    def __init__(self, service: Service) -> None:
        self._service, self.dora = service, Newcomer(service, "U0DORA")

    def post_alert(self) -> Message:
        """Post an alert, and have Slack deliver it."""
        emulator = self._service.emulator
        title = ALERT["attachments"][0]["title"]
        ts = emulator.workspace.next_ts()
        # A person stands for the program: the emulator has no other apps.
        message = emulator.workspace.post(Message(CHANNEL, ts, "U0STAN", title))
        self.post_alert_again(message)
        return message

    def post_alert_again(self, message: Message) -> None:
        """Have Slack deliver a message again."""
        raw = json.loads(payloads.app_message(ALERT, channel=CHANNEL, ts=message.ts))
        self.dora.run(_call(self._service.emulator.interactions.event, raw["event"]))

    def choose_shortcut(self, message: Message) -> None:
        chosen = self._service.emulator.interactions.message_shortcut(
            self.dora.user, SHORTCUT, MessagePlace(message)
        )
        self.dora.run(chosen)

    def await_answer(self) -> Message:
        return wait_for(lambda: self.dora.find("Found on lb1", CHANNEL), "the answer")

    def list_answers(self) -> list[Message]:
        shown = self.dora.list_messages(CHANNEL)
        return [one for one in shown if one.text.startswith("Found on")]


async def _call(act: Callable[[Any], None], what: Any) -> None:
    act(what)


def test_alert_is_answered_in_its_thread_with_the_state_of_the_host(service: Service):
    channel = Channel(service)
    message = channel.post_alert()
    answer = channel.await_answer()
    assert answer.thread_ts == message.ts
    words = " ".join(list_texts([*answer.blocks]))
    assert "abusers show lb1" in words
    assert ABUSER in words
    assert "host changes lb1" in words
    assert "Read as alert-bot. Nothing was changed." in words

    # Slack delivers it again, and a person has it checked too: there is one answer.
    channel.post_alert_again(message)
    channel.choose_shortcut(message)
    wait_for(lambda: channel.dora.find("Keyturn answers this alert already", CHANNEL), "the note")
    assert len(channel.list_answers()) == 1

    # A button opens the filled-in form, as the person who presses it.
    channel.dora.press(answer, f"abusers clear host=lb1 address={ABUSER}")
    form = channel.dora.await_form("abusers clear")
    assert dict(iterate_values(form))["address"] == ABUSER
    channel.dora.submit(form)
    channel.dora.submit(channel.dora.await_form("Plan"))
    wait_for(lambda: get_newest_run(service).state is State.PENDING, "the request")
    assert get_newest_run(service).requested_by == "dora"


def test_person_has_an_alert_checked_where_no_area_asks_for_it(service: Service):
    areas = service.keyturn.settings.policy / "areas.yaml"
    areas.write_text(areas.read_text().replace(", alert_agent: alert-bot", ""))
    channel = Channel(service)
    message = channel.post_alert()
    channel.choose_shortcut(message)
    answer = channel.await_answer()
    assert answer.thread_ts == message.ts
    assert "Read as Dora Developer." in " ".join(list_texts([*answer.blocks]))
    assert get_newest_run(service).requested_by == "dora"

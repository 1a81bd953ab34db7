"""A day in chat: requested, decided by two at once, denied, expired, and everything in the way.

The same steps run against the Slack emulator, over HTTP and over Socket Mode, and against any
server that speaks as Slack does: set KEYTURN_SLACK_BOT_TOKEN, KEYTURN_SLACK_SIGNING_SECRET and
KEYTURN_SLACK_TEAM, and HTTPS_PROXY and SSL_CERT_FILE where slack.com shall be that server. Its
workspace needs a channel with the bot in it and three people; with a deactivated account and a
channel without the bot, the steps about these run too. There Keyturn takes requests over HTTP, and
this test signs and posts them, as the server would.

With KEYTURN_SLACK_APP_TOKEN Keyturn takes them over Socket Mode. Then somebody has to have the
server send them: KEYTURN_SLACK_STAGE is an address where what Slack would post is posted to
`deliver`, and a number to `limit` has that many calls answered 429.
test_slack_elsewhere.py runs all of it so.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2
import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import runs, tables
from bot.model.run import Run, State
from tests.bot.slack import payloads
from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet
from tests.playground.service import Chat, Service
from tests.policies import TEAM

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
CLEAR = f"/keyturn abusers clear lb1 {ABUSER}"
ELSEWHERE = "KEYTURN_SLACK_BOT_TOKEN" in os.environ
OVER_SOCKETS = (
    {"elsewhere": "KEYTURN_SLACK_APP_TOKEN" in os.environ}
    if ELSEWHERE
    else {"the emulator over HTTP": False, "the emulator over Socket Mode": True}
)
PEOPLE = ("dora", "olga", "adam", "stan")
FORM = "application/x-www-form-urlencoded"

Json = dict[str, Any]
Found = TypeVar("Found")


class Slack(Protocol):
    """A workspace with our people in it. users: their accounts, by the names of the policy."""

    @property
    def users(self) -> Mapping[str, str]: ...
    @property
    def channel(self) -> str: ...
    def say(self, person: str, text: str, channel: str = "") -> None: ...
    def press(self, person: str, card: Json, label: str) -> None: ...
    def press_late(self, person: str, card: Json, label: str) -> None:
        """Press as somebody whose account was closed while the click was under way."""
        ...

    def call(self, method: str, **args: str) -> Json: ...
    def deactivate(self, person: str) -> None: ...
    def shut_out(self) -> str:
        """Return a channel that the bot is not in."""
        ...

    def limit(self, calls: int) -> None:
        """Answer 429 to the next calls."""
        ...

    def close(self) -> None: ...


class Emulated:
    """The emulator beside the service, with a browser at its pages."""

    def __init__(self, service: Service) -> None:
        assert service.slack is not None
        self._server, self._chat = service.slack, Chat(service)
        emulator = self._emulator = service.slack.emulator
        self.channel = next(iter(emulator.workspace.channels))
        self.users: dict[str, str] = {person: f"U0{person.upper()}" for person in PEOPLE}
        self._api = httpx2.Client(base_url=emulator.api_url)

    def say(self, person: str, text: str, channel: str = "") -> None:
        assert channel in ("", self.channel)
        self._chat.say(self.users[person], text)

    def press(self, person: str, card: Json, label: str) -> None:
        block, button = _find_button(card, label)
        where = f"{block['block_id']}/{button['action_id']}"
        self._chat.press(self.users[person], card["ts"], where)

    def press_late(self, person: str, card: Json, label: str) -> None:
        _, button = _find_button(card, label)
        place = {"channel": self.channel, "ts": card["ts"]}
        click = payloads.click(button["action_id"], button["value"], self.users[person], **place)
        self._server.run(self._emulator.courier.interaction(click))

    def call(self, method: str, **args: str) -> Json:
        headers = {"Authorization": f"Bearer {self._emulator.bot_token}"}
        while (answer := self._api.post(method, data=args, headers=headers)).status_code == 429:
            time.sleep(0.2)
        return answer.json()

    def deactivate(self, person: str) -> None:
        self._emulator.workspace.set_active(self.users[person], active=False)

    def shut_out(self) -> str:
        self._emulator.workspace.set_bot_inside(self.channel, inside=False)
        return self.channel

    def limit(self, calls: int) -> None:
        self._emulator.workspace.faults.calls_to_limit = calls

    def close(self) -> None:
        self._chat.close()
        self._api.close()


class Elsewhere:
    """A server that speaks as Slack does, somewhere else; we sign in its place."""

    def __init__(self) -> None:
        api = os.environ.get("KEYTURN_SLACK_API", "https://slack.com/api/")
        self._api = httpx2.Client(base_url=api, timeout=30)
        self._team = os.environ["KEYTURN_SLACK_TEAM"]
        self._stage = os.environ.get("KEYTURN_SLACK_STAGE", "")
        self.address = ""
        members: list[Json] = self.call("users.list")["members"]
        people = [one for one in members if not one.get("is_bot") and one["id"] != "USLACKBOT"]
        here = [one["id"] for one in people if not one.get("deleted")]
        gone = [one["id"] for one in people if one.get("deleted")]
        assert len(here) >= 3, "the workspace needs three people"
        self.gone = bool(gone)
        self.users: dict[str, str] = dict(
            zip(PEOPLE, [*here[:3], *gone[:1], *here[3:]], strict=False)
        )
        channels: list[Json] = self.call("conversations.list")["channels"]
        self.channel = next(one["id"] for one in channels if one.get("is_member"))
        self._outside = [one["id"] for one in channels if not one.get("is_member")]

    def say(self, person: str, text: str, channel: str = "") -> None:
        words = text.removeprefix("/keyturn").strip()
        raw = payloads.slash(words, self.users[person], channel or self.channel)
        self._post(raw)

    def press(self, person: str, card: Json, label: str) -> None:
        _, button = _find_button(card, label)
        place = {"channel": self.channel, "ts": card["ts"]}
        click = payloads.click(button["action_id"], button["value"], self.users[person], **place)
        self._post(payloads.interaction(click))

    def press_late(self, person: str, card: Json, label: str) -> None:
        self.press(person, card, label)

    def call(self, method: str, **args: str) -> Json:
        token = os.environ["KEYTURN_SLACK_BOT_TOKEN"]
        headers = {"Authorization": f"Bearer {token}"}
        while (answer := self._api.post(method, data=args, headers=headers)).status_code == 429:
            time.sleep(float(answer.headers.get("retry-after", "1")))
        body: Json = answer.json()
        assert body["ok"], (method, body)
        return body

    def deactivate(self, person: str) -> None:  # noqa: ARG002 - it is already
        if not self.gone:
            pytest.skip("that workspace has no deactivated account")

    def shut_out(self) -> str:
        if not self._outside:
            pytest.skip("that workspace has no channel without the bot")
        return self._outside[0]

    def limit(self, calls: int) -> None:
        if not self._stage:
            pytest.skip("that server cannot be told to answer 429")
        assert self._on_stage("limit", b"%d" % calls, {}).status_code == 200

    def close(self) -> None:
        self._api.close()

    def _post(self, raw: bytes) -> None:
        body = raw.replace(TEAM.encode(), self._team.encode())
        answer = (
            self._sent(body) if "KEYTURN_SLACK_APP_TOKEN" in os.environ else self._signed(body)
        )
        assert answer.status_code == 200, answer.text

    def _sent(self, body: bytes) -> httpx2.Response:
        """Have the server send it by a connection that Keyturn has opened."""
        assert self._stage, "over Socket Mode the server has to be told what people do"
        return self._on_stage("deliver", body, {"content-type": FORM})

    def _signed(self, body: bytes) -> httpx2.Response:
        """Post it in the server's place."""
        secret = os.environ["KEYTURN_SLACK_SIGNING_SECRET"]
        headers = {k.decode(): v.decode() for k, v in payloads.signed(body, secret=secret)}
        with httpx2.Client(trust_env=False) as door:
            return door.post(f"{self.address}/slack/events", content=body, headers=headers)

    def _on_stage(self, do: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        with httpx2.Client(trust_env=False, timeout=15) as stage:
            return stage.post(f"{self._stage}/{do}", content=body, headers=headers)


class Stage:
    """A fleet with an abuser on lb1, Keyturn in front of it, and a Slack in front of that."""

    def __init__(self, fleet: LoopbackFleet, service: Service, slack: Slack) -> None:
        self.fleet, self.service, self.slack = fleet, service, slack
        self._before = {card["ts"] for card in self._history("")}

    def ask(self, reason: str = "a customer called", channel: str = "") -> Run:
        self.slack.say("dora", f"{CLEAR} because {reason}", channel)
        return wait_for(lambda: next(iter(self.runs()), None), "a run")

    def runs(self) -> list[Run]:
        with self.service.keyturn.database.reading() as tx:
            requested = [
                entry.run
                for entry in change_log.list_entries_after(tx, 0)
                if entry.kind == "requested"
            ]
            return [runs.get_run(tx, number) for number in reversed(requested) if number]

    def run(self, number: int) -> Run:
        with self.service.keyturn.database.reading() as tx:
            return runs.get_run(tx, number)

    def reaches(self, run: Run, state: State) -> None:
        wait_for(lambda: self.run(run.id).state is state, f"{state}")

    def entries(self) -> list[str]:
        with self.service.keyturn.database.reading() as tx:
            return [entry.kind for entry in change_log.list_entries_after(tx, 0)]

    def cards(self, channel: str = "") -> list[Json]:
        """Return what was written since we began, the newest first."""
        return [card for card in self._history(channel) if card["ts"] not in self._before]

    def _history(self, channel: str) -> list[Json]:
        return self.slack.call("conversations.history", channel=channel or self.slack.channel)[
            "messages"
        ]

    def card(self, *words: str) -> Json:
        """Wait for the card that says all this."""
        return wait_for(
            lambda: next(
                (c for c in self.cards() if all(w in json.dumps(c) for w in words)), None
            ),
            f"a card with {words}",
        )


def _find_button(card: Json, label: str) -> tuple[Json, Json]:
    return next(
        (block, element)
        for block in card["blocks"]
        if block["type"] == "actions"
        for element in block["elements"]
        if "text" in element and element["text"]["text"].startswith(label)
    )


def _list_button_labels(card: Json) -> list[str]:
    return [
        element["text"]["text"]
        for block in card["blocks"]
        if block["type"] == "actions"
        for element in block["elements"]
        if "url" not in element and "text" in element
    ]


def wait_for(look: Callable[[], Found | None], what: str) -> Found:
    """Return what *look* finds as soon as it finds something."""
    deadline = time.monotonic() + 30
    while not (value := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return value


def _create_policy(policy: Path, slack: Elsewhere | None) -> None:
    """Write the company's policy; Stan is one more owner of the edge."""
    sample_company.create_policy(policy)
    areas = policy / "areas.yaml"
    areas.write_text(
        areas.read_text().replace("owners: [olga, adam]", "owners: [olga, adam, stan]")
    )
    if slack is None:
        return
    people = policy / "people.yaml"
    text = people.read_text().replace(TEAM, os.environ["KEYTURN_SLACK_TEAM"])
    for person, user in slack.users.items():
        text = text.replace(f"U0{person.upper()}", user)
    people.write_text(text)


@pytest.fixture(params=OVER_SOCKETS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Stage]:
    elsewhere = Elsewhere() if request.param == "elsewhere" else None
    _create_policy(tmp_path / "policy", elsewhere)
    way: Any = {"the emulator over HTTP": "http", "the emulator over Socket Mode": "socket"}
    more = {"slack_channel": elsewhere.channel} if elsewhere else {}
    with (
        LoopbackFleet(tmp_path / "policy") as fleet,
        Service(tmp_path, slack=way.get(request.param, ""), **more) as service,
    ):
        fleet.haproxy.abuse(ABUSER)
        if elsewhere is not None:
            elsewhere.address = service.address
        slack: Slack = elsewhere or Emulated(service)
        chat = service.keyturn.chat
        assert chat is not None
        sockets = chat.service.socket_mode
        assert (sockets is not None) is OVER_SOCKETS[request.param]
        if sockets is not None:
            wait_for(lambda: sockets.status.open_connections == 2, "two connections")
        yield Stage(fleet, service, slack)
        slack.close()


def test_request_decided_by_two_approvers_at_once_is_sent_once(stage: Stage):
    run = stage.ask()
    card = stage.card("Approve", f"Run {run.id} ")
    clicks = [
        threading.Thread(target=stage.slack.press, args=(who, card, "Approve"))
        for who in ("olga", "adam")
    ]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    stage.reaches(run, State.SUCCEEDED)
    assert not stage.fleet.haproxy.marked(ABUSER)
    assert stage.entries().count("started") == 1
    assert stage.entries().count("step sending") == 1
    wait_for(
        lambda: "Undo…" in _list_button_labels(stage.card(f"Run {run.id} ")),
        "the buttons to change",
    )
    stage.card("Succeeded", "Verified")


def test_denial_in_chat_shows_its_reason_to_the_requester(stage: Stage):
    run = stage.ask()
    stage.card("Approve", f"Run {run.id} ")
    stage.slack.say("olga", f"/keyturn deny {run.id} not during the sale")
    stage.reaches(run, State.DENIED)
    assert _list_button_labels(stage.card("Denied", "not during the sale")) == [
        "Request again",
        "Details",
    ]
    assert stage.fleet.haproxy.marked(ABUSER)


def test_expired_request_ignores_the_buttons_of_its_old_card(stage: Stage):
    run = stage.ask()
    card = stage.card("Approve", f"Run {run.id} ")
    with stage.service.keyturn.database.transaction() as tx:
        tx.sql.execute(update(tables.run).values(expires_at=tx.now - 1))
    stage.service.keyturn.service.advancer.expire_runs()
    stage.reaches(run, State.EXPIRED)
    expected = ["Re-plan", "Request again", "Details"]
    assert _list_button_labels(stage.card("Expired")) == expected
    stage.slack.press("olga", card, "Approve")
    assert stage.run(run.id).state is State.EXPIRED
    assert "step sending" not in stage.entries()


def test_approval_by_a_deactivated_slack_account_is_ignored(stage: Stage):
    run = stage.ask()
    card = stage.card("Approve", f"Run {run.id} ")
    stage.slack.deactivate("stan")
    stage.slack.press_late("stan", card, "Approve")
    assert stage.run(run.id).state is State.PENDING
    assert "approved" not in stage.entries()
    stage.slack.press("olga", card, "Approve")
    stage.reaches(run, State.SUCCEEDED)


def test_requester_is_told_to_invite_the_bot_to_a_channel_without_it(stage: Stage):
    channel = stage.slack.shut_out()
    stage.ask(channel=channel)
    opened = stage.slack.call("conversations.open", users=stage.slack.users["dora"])
    direct = opened["channel"]["id"]
    wait_for(lambda: "/invite" in json.dumps(stage.cards(direct)), "an invitation")


def test_slack_rate_limits_delay_updates_and_lose_none(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    run = stage.ask()
    card = stage.card("Approve", f"Run {run.id} ")
    stage.slack.press("olga", card, "Approve")
    stage.slack.limit(3)
    stage.reaches(run, State.SUCCEEDED)
    wait_for(lambda: "ratelimited" in caplog.text, "a refusal of Slack's")
    stage.card("Succeeded", "Verified")

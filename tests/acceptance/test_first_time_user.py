"""A person uses Keyturn for the first time: opens the app, types what they want, changes a host.

Nobody has told them a command. Each answer has something that they can press.
"""

import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bot.db import outbox, search
from bot.model.run import Run, State
from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet
from tests.playground.service import Service
from tests.slack_emulator.form_values import initial_state, plain_value
from tests.slack_emulator.messages import Message
from tests.slack_emulator.places import MessagePlace, ViewPlace
from tests.slack_emulator.views import View

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
DORA, OLGA = "U0DORA", "U0OLGA"
Found = TypeVar("Found")


def wait_for(look: Callable[[], Found | None], what: str) -> Found:
    """Return what *look* finds as soon as it finds something."""
    deadline = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class Newcomer:
    """One person at the emulator."""

    def __init__(self, service: Service, user: str) -> None:
        assert service.slack is not None
        self._server, self.emulator = service.slack, service.emulator
        self.user = user
        self.app = self.emulator.workspace.open_direct([user]).id

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._server.run(work)

    def list_messages(self, channel: str = "") -> list[Message]:
        """Return what the bot wrote that this person sees, also in threads."""
        workspace, channel = self.emulator.workspace, channel or self.app
        return [
            one
            for one in workspace.everything()
            if one.channel == channel
            and one.user == workspace.app.bot_user_id
            and one.only_for in ("", self.user)
        ]

    def find(self, text: str, channel: str = "") -> Message | None:
        """Return a message that begins with a text."""
        found = (one for one in self.list_messages(channel) if one.text.startswith(text))
        return next(found, None)

    def open_app(self) -> Message:
        return self._await_answer(self._open_app, "a welcome")

    def _open_app(self) -> None:
        async def open_app() -> None:
            self.emulator.interactions.home_opened(self.user, self.app, tab="messages")

        self.run(open_app())

    def type(self, text: str, channel: str = "", thread: str = "") -> Message:
        """Type a text; return the answer, which has something to press."""
        place = channel or self.app

        def say() -> None:
            typing = self.emulator.typed_input.say(self.user, place, text, thread_ts=thread)
            self.run(typing)

        answer = self._await_answer(say, f"an answer to {text!r}", place)
        assert list_buttons(answer), f"a dead end after {text!r}: {answer.text}"
        return answer

    def _await_answer(self, act: Callable[[], None], what: str, channel: str = "") -> Message:
        before = {one.ts for one in self.list_messages(channel)}
        act()
        new = (one for one in self.list_messages(channel) if one.ts not in before)
        return wait_for(
            lambda: (
                next((o for o in self.list_messages(channel) if o.ts not in before), None)
                or next(new, None)
            ),
            what,
        )

    def press(self, message: Message, label: str) -> None:
        where = next(at for text, at in list_buttons(message) if text.startswith(label))
        place = MessagePlace(message)
        self.run(self.emulator.interactions.press(self.user, place, {"press": [where]}))

    def await_form(self, title: str) -> View:
        return wait_for(lambda: self._find_form(title), f"a form {title!r}")

    def _find_form(self, title: str) -> View | None:
        view = self.emulator.views.top(self.user)
        is_it = view is not None and view.payload["title"]["text"].startswith(title)
        return view if is_it and view and "submit" in view.payload else None

    def submit(self, view: View) -> None:
        """Hand in a form as it is filled in."""
        fields = {
            f"v/{block}/{action}": [str(plain_value(value))]
            for block, values in initial_state(ViewPlace(view).blocks).items()
            for action, value in values.items()
            if plain_value(value)
        }
        self.run(self.emulator.interactions.submit(self.user, view, fields))


def list_buttons(message: Message) -> list[tuple[str, str]]:
    """Return the label of each button, and where it is."""
    return [
        (element["text"]["text"], f"{block['block_id']}/{element['action_id']}")
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
        if "text" in element
    ]


def iterate_values(view: View) -> Iterator[tuple[str, str]]:
    for block, values in initial_state(ViewPlace(view).blocks).items():
        for value in values.values():
            yield block, str(plain_value(value))


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    sample_company.create_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy") as fleet, Service(tmp_path) as service:
        fleet.haproxy.abuse(ABUSER)
        yield service


def get_newest_run(service: Service) -> Run:
    with service.keyturn.database.reading() as tx:
        return search.find_newest_runs(tx, search.RunFilter(), most=1)[0]


def is_card_recorded(service: Service, channel: str, ts: str) -> bool:
    with service.keyturn.database.reading() as tx:
        return outbox.find_run_of_message(tx, channel, ts) is not None


def test_first_time_user_gets_from_opening_the_app_to_an_approved_change(service: Service):
    dora, olga = Newcomer(service, DORA), Newcomer(service, OLGA)
    welcome = dora.open_app()
    assert len(list_buttons(welcome)) >= 3

    help_screen = dora.type("hi")
    assert "lb1" in [label for label, _ in list_buttons(help_screen)]
    assert dora.type("LB1").text == "lb1: choose what to do"
    checked = dora.type("who is blocked on lb1?")
    dora.press(checked, "Open form")
    dora.submit(dora.await_form("abusers show"))
    wait_for(lambda: dora.find("Run 1 · Succeeded: abusers show lb1"), "the report of the check")
    assert "host changes" in dora.type("who changed lb1").text

    found = dora.type(f"please unblock {ABUSER} on lb1, because a customer called")
    dora.press(found, "abusers clear lb1")
    form = dora.await_form("abusers clear")
    filled = dict(iterate_values(form))
    assert (filled["host"], filled["address"]) == ("lb1", ABUSER)
    assert filled["because"] == "a customer called"
    dora.submit(form)
    dora.submit(dora.await_form("Plan"))
    wait_for(lambda: get_newest_run(service).state is State.PENDING, "the request")

    channel = next(iter(service.emulator.workspace.channels))
    title = f"Run {get_newest_run(service).id} · Needs approval: abusers clear lb1"
    card = wait_for(lambda: olga.find(title, channel), "the card")
    wait_for(lambda: is_card_recorded(service, channel, card.ts), "the record of the card")
    answer = olga.type("@keyturn approve", channel, card.ts)
    olga.press(answer, "Approve")
    wait_for(lambda: get_newest_run(service).state is State.SUCCEEDED, "the change")

"""The request form of a runbook in Slack: fields, suggestions, preview and submission."""

import asyncio
import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from bot.db import dedup
from bot.model.run import State
from bot.slack import modals
from tests.bot.slack import payloads
from tests.bot.slack.asgi import Answer
from tests.bot.slack.chat import PENDING_BUTTONS, Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.web_api import Posted
from tests.policies import INVENTORY
from tests.ticket_system import require_unreachable_tickets

pytestmark = pytest.mark.anyio

_CLICKS = itertools.count()


@dataclass
class OpenForm:
    """A form that somebody has open. id: of the view."""

    chat: Chat
    id: str
    user: str

    @property
    def view(self) -> dict[str, Any]:
        return self.chat.slack.views[self.id]

    @property
    def words(self) -> str:
        return " ".join(list_texts(self.view["blocks"]))

    @property
    def inputs(self) -> dict[str, dict[str, Any]]:
        return {block["block_id"]: block for block in self.view["blocks"] if "element" in block}

    def choices(self, block: str) -> list[str]:
        element = self.inputs[block]["element"]
        return [one["value"] for one in element["options"]]

    def payload(self, values: Mapping[str, str]) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for block, value in values.items():
            element = self.inputs[block]["element"]
            entered: dict[str, Any] = {"type": element["type"], "value": value}
            if element["type"].endswith("select"):
                option = {"text": {"type": "plain_text", "text": value}, "value": value}
                entered = {"type": element["type"], "selected_option": option}
            state[block] = {element["action_id"]: entered}
        return {"id": self.id, "hash": "1.a", **self.view, "state": {"values": state}}

    async def choose_host(self, host: str, **values: str) -> None:
        view = self.payload({**values, "host": host})
        option = {"text": {"type": "plain_text", "text": host}, "value": host}
        action = {"action_id": modals.HOST, "block_id": "host", "type": "static_select"}
        action |= {"selected_option": option}
        stamp = f"1.{next(_CLICKS)}"
        payload = payloads.in_view(
            "block_actions", view, self.user, actions=[action | {"action_ts": stamp}]
        )
        assert (await self.chat.send(payloads.interaction(payload))).status == 200
        await self.chat.settle()

    async def choose(self, block: str, value: str, **values: str) -> None:
        """Choose in a field that tells so at once."""
        element = self.inputs[block]["element"]
        option = {"text": {"type": "plain_text", "text": value}, "value": value}
        action = {"action_id": element["action_id"], "block_id": block, "type": element["type"]}
        payload = payloads.in_view(
            "block_actions",
            self.payload({**values, block: value}),
            self.user,
            actions=[action | {"selected_option": option, "action_ts": f"2.{next(_CLICKS)}"}],
        )
        assert (await self.chat.send(payloads.interaction(payload))).status == 200
        await self.chat.settle()

    async def suggest(self, block: str, typed: str, **values: str) -> list[str]:
        options = await self.suggest_options(block, typed, **values)
        return [option["value"] for option in options]

    async def suggest_options(self, block: str, typed: str, **values: str) -> list[dict[str, Any]]:
        payload = payloads.in_view(
            "block_suggestion",
            self.payload(values),
            self.user,
            block_id=block,
            action_id=self.inputs[block]["element"]["action_id"],
            value=typed,
        )
        answer = await self.chat.send(payloads.interaction(payload))
        return answer.json["options"]

    async def submit(self, **values: str) -> Answer:
        payload = payloads.in_view("view_submission", self.payload(values), self.user)
        answer = await self.chat.send(payloads.interaction(payload))
        await self.chat.settle()
        return answer


async def open_form(chat: Chat, text: str, user: str = "U0DORA") -> OpenForm:
    before = set(chat.slack.views)
    answer = await chat.type(text, user)
    assert (answer.status, answer.body) == (200, b"")
    [made] = set(chat.slack.views) - before
    return OpenForm(chat, made, user)


async def test_form_opens_with_a_placeholder_and_is_then_updated(chat: Chat):
    await open_form(chat, "toy tune")
    calls = [(call, args["view"]) for call, args in chat.slack.calls if call.startswith("views.")]
    assert [call for call, _ in calls] == ["views.open", "views.update"]
    assert "Loading" in str(calls[0][1])
    assert chat.slack.posted == []


async def test_form_fields_match_the_fields_of_the_runbook(chat: Chat):
    shown = await open_form(chat, "Toy Tune")
    assert shown.view["title"]["text"] == "toy tune"
    assert list(shown.inputs) == ["host", "name", "how", "because"]
    assert shown.choices("host") == ["lb1", "lb2"]
    assert shown.inputs["name"]["element"]["type"] == "external_select"
    assert shown.choices("how") == ["on", "dim"]
    assert shown.inputs["how"]["element"]["initial_option"]["value"] == "on"
    assert shown.inputs["because"]["optional"] is True
    assert "Light one of the switches" in shown.words


async def test_form_has_a_ticket_field_where_a_rule_requires_a_ticket(chat: Chat):
    require_unreachable_tickets(chat.harness.policies.path)
    shown = await open_form(chat, "toy set")
    assert list(shown.inputs)[-2:] == ["because", "ticket"]
    assert "ticket" not in (await open_form(chat, "toy show")).inputs
    await shown.submit(host="lb1", name="lamp", value="on", ticket="CHG7")
    await chat.type("toy set lb1 lamp on ticket=CHG8 because it is dark")
    assert [chat.run(number).ticket for number in (1, 2)] == ["CHG7", "CHG8"]
    answer = await chat.type("toy set lb1 lamp on")
    assert "requires an approved change ticket" in answer.json["text"]


async def test_submitted_form_plans_and_requests_the_run(chat: Chat):
    shown = await open_form(chat, "toy tune")
    assert shown.view["submit"]["text"] == "Plan"
    answer = await shown.submit(host="lb1", name="lamp", because="it is “dark”\nhere")
    assert answer.json["response_action"] == "update"
    assert "Reading lb1" in str(answer.json["view"])
    assert (chat.run().state, chat.slack.posted) == (State.PLANNED, [])
    for expected in ("not lit", "1. Light it", "set lamp on", "It needs 1 approval from the own"):
        assert expected in shown.words
    assert shown.view["submit"]["text"] == "Request approval"
    answer = await shown.submit(because="it is “dark”\nhere")
    assert (answer.status, answer.body) == (200, b"")
    run = chat.run()
    assert (run.state, run.request) == (State.PENDING, "toy tune lb1 lamp")
    assert (run.reason, run.requested_by) == ("it is “dark” here", "dora")
    assert (run.origin.source, run.origin.channel, run.origin.user) == ("slack", "C0OPS", "U0DORA")
    assert set(chat.slack.card.buttons) == PENDING_BUTTONS


async def test_form_shows_a_value_error_below_its_field(chat: Chat):
    shown = await open_form(chat, "toy tune")
    answer = await shown.submit(host="lb1", name="LAMP")
    assert answer.json["response_action"] == "errors"
    assert "is not valid" in answer.json["errors"]["name"]
    assert chat.harness.list_entry_kinds() == []
    # Corrected, the same form is taken.
    answer = await shown.submit(host="lb1", name="lamp")
    assert answer.json["response_action"] == "update"
    assert chat.run().state is State.PLANNED


async def test_form_refuses_a_reason_with_an_invisible_character(chat: Chat):
    shown = await open_form(chat, "toy tune")
    answer = await shown.submit(host="lb1", name="lamp", because="\u202etrust me")
    assert "U+202E" in answer.json["errors"]["because"]


async def test_form_submitted_three_times_is_planned_once(chat: Chat):
    shown = await open_form(chat, "toy tune")
    answers = await asyncio.gather(*(shown.submit(host="lb1", name="lamp") for _ in range(3)))
    actions = sorted(answer.json["response_action"] for answer in answers)
    assert actions == ["errors", "errors", "update"]
    assert chat.harness.list_entry_kinds().count("plan requested") == 1


async def test_without_deduplication_a_form_submitted_twice_is_planned_twice(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dedup, "remember_first", _always_first)
    shown = await open_form(chat, "toy tune")
    await asyncio.gather(*(shown.submit(host="lb1", name="lamp") for _ in range(2)))
    assert chat.harness.list_entry_kinds().count("plan requested") == 2


async def test_form_shows_approvers_and_prefetches_options_of_the_chosen_host(chat: Chat):
    shown = await open_form(chat, "toy tune")
    await shown.choose_host("lb1")
    assert "Needs 1 approval from the owners of the edge" in shown.words
    asked = chat.harness.fleet.asked
    assert asked > 0
    assert await shown.suggest("name", "", host="lb1") == ["fan", "lamp"]
    # Slack does not always tell what else is filled in.
    assert await shown.suggest("name", "LA") == ["lamp", "LA"]
    assert chat.harness.fleet.asked == asked


async def test_form_suggests_blocked_addresses_of_the_chosen_host_and_table(chat: Chat):
    shown = await open_form(chat, "abusers clear")
    assert shown.inputs["address"]["element"]["type"] == "external_select"
    assert shown.inputs["table"]["dispatch_action"] is True
    await shown.choose_host("lb1")
    # Slack does not say what else is filled in while somebody looks for options.
    assert await shown.suggest("address", "") == ["203.0.113.9"]
    await shown.choose("table", "www", host="lb1")
    assert await shown.suggest("address", "") == ["198.51.100.7", "2001:db8::7"]
    assert await shown.suggest("address", "2001") == ["2001:db8::7", "2001"]
    # What is not the name of a table is put to no host.
    await shown.choose("table", "http; id", host="lb1")
    assert await shown.suggest("address", "") == []
    await shown.choose("table", "www", host="lb1")
    await shown.submit(host="lb1", table="www", address="2001:db8::7")
    assert chat.run().request == "abusers clear lb1 2001:db8::7 table=www"


async def test_form_preview_is_updated_when_a_standing_grant_depends_on_a_value(chat: Chat):
    shown = await open_form(chat, "toy tune")
    assert "dispatch_action" not in shown.inputs["how"]
    grant = "grant dora toy tune lb* how=dim 5 an hour until 4h"
    assert "can run" in (await chat.type(grant, "U0OLGA")).text
    shown = await open_form(chat, "toy tune")
    assert shown.inputs["how"]["dispatch_action"] is True
    assert "dispatch_action" not in shown.inputs["because"]
    await shown.choose_host("lb1")
    assert "Needs 1 approval" in shown.words
    await shown.choose("how", "dim", host="lb1")
    assert "Runs without another approval: standing grant 1" in shown.words
    await shown.choose("how", "on", host="lb1")
    assert "Needs 1 approval" in shown.words
    # Slack sends a text when Enter is pressed in it.
    await chat.type("grant dora toy set lb* name=la* 5 an hour until 4h", "U0OLGA")
    text = (await open_form(chat, "toy set")).inputs["name"]
    assert (text["element"]["type"], text["dispatch_action"]) == ("plain_text_input", True)


async def test_form_labels_have_words_and_units(chat: Chat):
    shown = await open_form(chat, "nfs scheduler set")
    labels = [block["label"]["text"] for block in shown.inputs.values()]
    assert "Queued requests" in labels
    assert "Read-ahead (KiB)" in labels


async def test_form_accepts_a_typed_value_when_the_host_query_fails(chat: Chat):
    def silence(_host: str) -> None:
        raise TimeoutError

    chat.harness.fleet.before_query = silence
    shown = await open_form(chat, "toy tune")
    assert await shown.suggest("name", "lamp") == ["lamp"]


async def test_form_suggestions_do_not_wait_for_a_slow_host(chat: Chat):
    late = threading.Event()

    def wait(_host: str) -> None:
        late.wait(20)

    chat.harness.fleet.before_query = wait
    shown = await open_form(chat, "toy tune")
    began = asyncio.get_running_loop().time()
    try:
        assert await shown.suggest("name", "fa", host="lb1") == ["fa"]
        assert asyncio.get_running_loop().time() - began < 2.5
    finally:
        late.set()


async def test_form_hides_hosts_that_the_policy_forbids(chat: Chat):
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + 'forbid (principal == Person::"dora", action == Action::"request", resource)\n'
        + 'when { resource == Host::"lb1" };\n'
    )
    assert (await open_form(chat, "toy tune")).choices("host") == ["lb2"]
    assert (await open_form(chat, "toy tune", "U0OLGA")).choices("host") == ["lb1", "lb2"]


async def test_policy_is_evaluated_again_when_a_form_is_submitted(chat: Chat):
    shown = await open_form(chat, "toy tune")
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + '@id("no toys")@description("Toys rest in winter.")\n'
        + 'forbid (principal, action == Action::"request", resource);\n'
    )
    answer = await shown.submit(host="lb1", name="lamp", because="dark")
    assert "Toys rest in winter." in answer.json["errors"]["host"]
    assert chat.harness.fleet.sent == []


async def test_form_is_submitted_as_the_person_who_submits_it(chat: Chat):
    shown = await open_form(chat, "toy tune")
    shown.user = "U0NOBODY"
    answer = await shown.submit(host="lb1", name="lamp")
    assert "does not know your Slack account" in answer.json["errors"]["host"]
    assert chat.harness.list_entry_kinds() == ["unknown user refused"]


async def test_form_with_many_hosts_searches_them_by_name(chat: Chat):
    more = "".join(f"  lb{n}: {{area: edge, tags: [haproxy]}}\n" for n in range(3, 150))
    (chat.harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
    shown = await open_form(chat, "toy tune")
    assert shown.inputs["host"]["element"]["type"] == "external_select"
    assert await shown.suggest("host", "lb14") == ["lb14", *(f"lb14{n}" for n in range(10))]
    assert len(await shown.suggest("host", "")) == 100


async def test_form_that_slack_refuses_to_open_is_replaced_by_command_usage(chat: Chat):
    chat.slack.refuse("views.open", "expired_trigger_id")
    await chat.type("toy tune")
    [message] = chat.slack.whispers("U0DORA")
    assert "/keyturn toy tune HOST NAME" in message.words


async def test_message_shortcut_offers_runbooks_for_hosts_named_in_the_message(chat: Chat):
    text = "ALERT lb2.example.com is slow, see <http://mon/lb1|lb1>; web-9 is fine"
    await chat.send(payloads.interaction(payloads.message_action("about-host", text, "U0DORA")))
    await chat.settle()
    [made] = chat.slack.views
    shown = OpenForm(chat, made, "U0DORA")
    assert shown.choices("host") == ["lb2", "lb1"]
    found = await shown.suggest_options("what-lb2", "toy s")
    descriptions = {one["value"]: one["description"]["text"] for one in found}
    assert descriptions["toy show"].startswith("Check: ")
    assert descriptions["toy set"] == "Change: Set one switch."

    await shown.choose_host("lb1")
    answer = await shown.submit(**{"host": "lb1", "what-lb1": "toy show"})
    assert answer.json["response_action"] == "update"
    chat.slack.views[made] = answer.json["view"]
    assert json.loads(shown.view["private_metadata"])["host"] == "lb1"
    assert (await shown.submit(host="lb1")).body == b""
    assert chat.run().state is State.SUCCEEDED


async def test_message_shortcut_offers_all_hosts_when_the_message_names_none(chat: Chat):
    payload = payloads.message_action("about-host", "hello", "U0DORA")
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    [made] = chat.slack.views
    shown = OpenForm(chat, made, "U0DORA")
    assert shown.choices("host") == ["lb1", "lb2", "web1", "nas1"]
    answer = await shown.submit(host="lb1")
    assert "choose another host" in answer.json["errors"]["host"]


async def test_help_button_opens_the_search_for_runbooks(chat: Chat):
    answer = await chat.type("help")
    [rest] = [block for block in answer.json["blocks"] if block.get("block_id") == "rest"]
    find = rest["elements"][0]
    assert find["text"]["text"] == "Find a runbook"
    shown = await press_form_button(chat, find)
    assert shown.inputs["host"]["optional"] is True
    assert "toy tune" in await shown.suggest("what-", "tune")
    # Without a host, the form of the runbook offers all hosts that one may choose.
    answer = await shown.submit(**{"what-": "toy tune"})
    chat.slack.views[shown.id] = answer.json["view"]
    assert (shown.view["title"]["text"], shown.choices("host")) == ("toy tune", ["lb1", "lb2"])


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("unblock", "abusers clear"),
        ("unblo", "agents unblock"),
        ("disk", "disk io"),
        ("who changed", "host changes"),
        ("certificate", "cert check"),
    ],
)
async def test_chooser_finds_runbooks_by_purpose(chat: Chat, typed: str, first: str):
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text('permit (principal, action == Action::"request", resource);\n')
    payload = payloads.message_action("about-host", "hello", "U0DORA")
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    [made] = chat.slack.views
    assert first in (await OpenForm(chat, made, "U0DORA").suggest("what-", typed))[:3]


async def mention_bot(chat: Chat, text: str, user: str = "U0DORA", **other: str) -> Posted:
    """Mention the bot; return the one answer, which only that person sees."""
    await chat.send(payloads.mention(text, user, **other))
    await chat.settle()
    [answer] = chat.slack.whispers(user)
    assert chat.slack.posted == [answer]
    assert chat.harness.list_entry_kinds() in ([], ["unknown user refused"])
    return answer


async def press_form_button(chat: Chat, shown: dict[str, Any]) -> OpenForm:
    """Press a button of an ephemeral message that opens a form."""
    click = payloads.click(
        shown["action_id"], shown["value"], "U0DORA", channel="C0OPS", ts="1.000001"
    )
    await chat.send(payloads.interaction(click))
    await chat.settle()
    [made] = chat.slack.views
    return OpenForm(chat, made, "U0DORA")


async def test_bot_mention_suggests_a_command_and_opens_its_filled_form(chat: Chat):
    text = "please <@U0KEYTURN>  toy tune lb1\nlamp dim because it&amp;s “dark”"
    answer = await mention_bot(chat, text, thread_ts="1700000000.000001")
    assert answer.thread == "1700000000.000001"
    assert "/keyturn toy tune lb1 lamp dim because it&s “dark”" in answer.words
    shown = await press_form_button(chat, answer.buttons["ask-0"])
    for _ in range(2):
        filled = {name: block["element"] for name, block in shown.inputs.items()}
        assert filled["host"]["initial_option"]["value"] == "lb1"
        assert filled["name"]["initial_option"]["value"] == "lamp"
        assert filled["how"]["initial_option"]["value"] == "dim"
        assert filled["because"]["initial_value"] == "it&s “dark”"
        values = {"name": "lamp", "how": "dim", "because": "it&s “dark”"}
        await shown.choose_host("lb1", **values)
    assert chat.harness.list_entry_kinds() == []


@pytest.mark.parametrize(
    ("text", "expected", "buttons"),
    [
        # Slack shows an ephemeral message in a thread only if there is one.
        ("toy tune lb1 lamp <@U0KEYTURN>", "/keyturn toy tune lb1 lamp", ["ask-0"]),
        ("<@U0KEYTURN> /keyturn runs lb1", "No run matches.", []),
        ("<@U0KEYTURN> deny", "/keyturn deny", []),
        ("<@U0KEYTURN> toy set lb* lamp on", "/keyturn toy set lb* lamp on", []),
        ("<@U0KEYTURN> toy tune", "/keyturn toy tune HOST NAME", ["ask-0"]),
        ("<@U0KEYTURN> toy tune lb1", "Request not sent:", ["ask-0"]),
        ("<@U0KEYTURN> abusers lb1", "/keyturn abusers tables lb1", ["ask-0", "ask-1"]),
        ("<@U0KEYTURN> abusers", "begin with “abusers”", ["ask-0", "ask-1"]),
        ("<@U0KEYTURN> toi tune lb1", "/keyturn toy tune lb1 NAME", ["ask-0"]),
        ("<@U0KEYTURN>", "By purpose", ["read-0"]),
        ("<@U0KEYTURN> toy 'tune", "A quotation mark is not closed", ["ask-0"]),
    ],
)
async def test_bot_mention_is_answered_with_command_usage_or_error(
    chat: Chat, text: str, expected: str, buttons: list[str]
):
    answer = await mention_bot(chat, text)
    assert (expected in answer.words, answer.thread) == (True, ""), answer.words
    assert list(answer.buttons)[: len(buttons) or 1] == buttons


async def test_bot_mention_by_an_unknown_account_is_refused_and_by_a_bot_ignored(chat: Chat):
    text = "<@U0KEYTURN> toy tune lb1 lamp"
    answer = await mention_bot(chat, text, "U0NOBODY")
    assert "does not know your Slack account" in answer.words
    assert list(answer.buttons) == ["ask-access"]
    await chat.send(payloads.mention(text, "U0ROBOT", bot_id="B0ROBOT"))
    await chat.settle()
    assert chat.slack.posted == [answer]


def _always_first(_tx: object, _key: str) -> bool:
    return True

"""Actions in the emulator reach a bot built with the real Bolt, and its answers come back."""

import json

from tests.slack_emulator.form_values import address
from tests.slack_emulator.messages import Message
from tests.slack_emulator.page_client import PageClient, open_page_client, run
from tests.slack_emulator.serving import wait_until

HOST = address("host", "host")
URGENCY = address("urgency", "urgency")
REASON = address("reason", "reason")


def test_slash_command_is_answered_ephemerally_to_its_sender() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn hello @bob in #ops & <b>")
            (payload,) = dora.made.payloads
            assert payload["text"] == "hello <@U0BOB|bob> in <#C0OPS|ops> &amp; &lt;b&gt;"
            assert payload["team_id"] == "T0EMULATOR"
            assert payload["channel_name"] == "ops"
            assert payload["is_enterprise_install"] == "false"
            assert "You said" in dora.words[0]
            assert dora.shown[0].only_for == "U0DORA"
            assert dora.acting_as("U0ALICE").shown == []
            assert "Only visible to you" in await dora.page()
            assert "Only visible to you" not in await dora.acting_as("U0ALICE").page()

    run(scene())


def test_in_channel_answer_shows_the_command_to_everyone() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn shout")
            assert dora.acting_as("U0BOB").words == ["/keyturn shout", "Heard by all"]

    run(scene())


def test_button_click_updates_the_message_and_replies_in_a_thread() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn restart web-3")
            await wait_until(lambda: dora.shown)
            alice = dora.acting_as("U0ALICE")
            await alice.press(dora.shown[0], "decide", "approve")
            workspace = dora.made.emulator.workspace
            await wait_until(lambda: len(list(workspace.everything())) == 2)
            (click,) = dora.made.of_type("block_actions")
            assert click["user"]["id"] == "U0ALICE"
            assert click["actions"][0]["value"] == "run-7"
            assert click["container"]["message_ts"] == dora.shown[0].ts
            assert click["message"]["blocks"][3]["block_id"] == "decide"
            assert click["response_url"].startswith(dora.made.emulator.url)
            page = await dora.page()
            assert "Approve Restart" not in page
            assert "1 reply" in page
            assert "api is <strong>active</strong>" in await dora.page(thread=dora.shown[0].ts)

    run(scene())


def test_button_with_a_confirm_dialog_sends_nothing_until_confirmed() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn restart web-3")
            await wait_until(lambda: dora.shown)
            asked = await dora.press(dora.shown[0], "decide", "deny")
            assert asked.status_code == 200
            assert "Deny this run?" in asked.text
            assert dora.made.of_type("block_actions") == []
            await dora.press(dora.shown[0], "decide", "deny", confirmed="yes")
            await wait_until(lambda: "Denied." in dora.words)
            assert dora.shown[-1].only_for == "U0DORA"

    run(scene())


async def _open_form(dora: PageClient) -> None:
    await dora.say("/keyturn ask")
    await wait_until(lambda: dora.made.emulator.views.top("U0DORA"))


def test_modal_form_is_filled_in_and_submitted_without_javascript() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await _open_form(dora)
            await dora.form("", {"find": HOST, f"q/{HOST}": "web"})
            page = await dora.page()
            assert '<option value="web-2">web-2</option>' in page
            assert "db-1" not in page
            (asked,) = dora.made.of_type("block_suggestion")
            assert (asked["action_id"], asked["value"]) == ("host", "web")
            # As Slack does: what else is filled in is not said while options are looked for.
            assert asked["view"]["state"]["values"] == {}
            await dora.form("submit", {f"v/{HOST}": "web-2", f"v/{URGENCY}": "high"})
            await wait_until(lambda: dora.made.emulator.views.top("U0DORA") is None)
            (handed_in,) = dora.made.of_type("view_submission")
            view = handed_in["view"]
            assert view["private_metadata"] == "from-the-test"
            values = view["state"]["values"]
            assert values["host"]["host"]["selected_option"]["value"] == "web-2"
            assert values["reason"]["reason"] == {"type": "plain_text_input", "value": None}
            direct = dora.made.emulator.workspace.open_direct(["U0DORA"]).id
            workspace = dora.made.emulator.workspace
            await wait_until(lambda: workspace.log(direct, "U0DORA"))
            assert workspace.log(direct, "U0DORA")[0].text == "Planned for web-2"

    run(scene())


def test_option_that_was_not_suggested_cannot_be_submitted() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await _open_form(dora)
            await dora.form("submit", {f"v/{HOST}": "evil", f"v/{URGENCY}": "high"})
            assert dora.made.of_type("view_submission") == []
            assert dora.modal.errors == {"host": "Please complete this required field."}

    run(scene())


def test_submission_errors_of_the_bot_are_shown_below_their_blocks() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await _open_form(dora)
            await dora.form("", {"find": HOST, f"q/{HOST}": ""})
            filled = {f"v/{HOST}": "db-1", f"v/{URGENCY}": "low", f"v/{REASON}": "because"}
            await dora.form("submit", filled)
            page = await dora.page()
            assert "Say more than that." in page
            assert "because</textarea>" in page

    run(scene())


def test_closed_modal_sends_view_closed() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await _open_form(dora)
            await dora.form("close")
            (closed,) = dora.made.of_type("view_closed")
            assert closed["is_cleared"] is True
            assert dora.made.emulator.views.top("U0DORA") is None

    run(scene())


def test_home_tab_is_published_when_opened_and_its_button_opens_a_modal() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.page("home")
            views = dora.made.emulator.views
            await wait_until(lambda: views.home("U0DORA"))
            assert "Nothing waits for you" in await dora.page("home")
            home = views.home("U0DORA")
            assert home is not None
            block = home.payload["blocks"][2]
            pressed = address(block["block_id"], "open")
            await dora.post("act", {"at": "home", "view": home.id, "press": pressed})
            await wait_until(lambda: views.top("U0DORA"))
            (click,) = dora.made.of_type("block_actions")
            assert click["container"] == {"type": "view", "view_id": home.id}
            assert "response_url" not in click

    run(scene())


def test_bot_mention_is_answered_in_its_thread() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("@keyturn are you there?")
            workspace = dora.made.emulator.workspace
            await wait_until(
                lambda: len(workspace.thread("C0OPS", dora.shown[0].ts, "U0DORA")) == 2
            )
            (event,) = dora.made.of_type("event_callback")
            assert event["event"]["type"] == "app_mention"
            assert event["event"]["text"] == "<@U0KEYTURN> are you there?"

    run(scene())


def test_direct_message_is_delivered_to_the_bot() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            dora.at = dora.made.emulator.workspace.open_direct(["U0DORA"]).id
            await dora.say("hello")
            await wait_until(lambda: "Type `/keyturn help`." in dora.words)

    run(scene())


def test_global_and_message_shortcuts_reach_the_bot() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.post("shortcut", {"shortcut": "ask"})
            await wait_until(lambda: dora.made.emulator.views.top("U0DORA"))
            await dora.say("something odd")
            ts = dora.shown[0].ts
            await dora.post("shortcut", {"shortcut": "explain", "channel": "C0OPS", "ts": ts})
            await wait_until(lambda: "It was a message." in dora.words)

    run(scene())


def test_slash_command_without_acknowledgement_shows_a_timeout() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            dora.made.emulator.courier.ack_seconds = 0.05
            await dora.say("/slow")
            assert dora.words == ['/slow failed with the error "operation_timeout"']

    run(scene())


def test_unknown_shortcut_shows_dispatch_failed() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.post("shortcut", {"shortcut": "nosuch"})
            assert dora.words == ["Keyturn did not answer: dispatch_failed"]

    run(scene())


def test_unknown_slash_command_or_one_in_a_thread_is_refused() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/nosuch")
            assert "is not a valid command" in dora.words[0]
            await dora.say("first")
            ts = dora.shown[-1].ts
            await dora.say("/keyturn help", reply=ts)
            thread = dora.made.emulator.workspace.thread("C0OPS", ts, "U0DORA")
            assert "not supported in threads" in thread[-1].text
            assert dora.made.payloads == []

    run(scene())


def test_bot_answers_through_the_response_url() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn later")
            await wait_until(lambda: "Answered through the response URL" in dora.words)
            assert dora.shown[0].only_for == "U0DORA"

    run(scene())


def test_invited_bot_joins_the_channel_and_gets_an_event() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            dora.at = "C0ALARMS"
            channel = dora.made.emulator.workspace.channel("C0ALARMS")
            assert "U0KEYTURN" not in channel.members
            await dora.say("/invite @keyturn")
            assert "U0KEYTURN" in channel.members
            await wait_until(lambda: dora.made.of_type("event_callback"))
            event = dora.made.of_type("event_callback")[0]["event"]
            assert event["type"] == "member_joined_channel"

    run(scene())


def test_deactivated_person_cannot_click_and_the_bot_gets_an_event() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn restart web-3")
            await wait_until(lambda: dora.shown)
            await dora.post("faults", {"do": "deactivate:U0DORA"})
            await dora.press(dora.shown[0], "decide", "approve")
            assert dora.made.of_type("block_actions") == []
            page = await dora.page()
            assert "account is deactivated" in page
            await wait_until(lambda: dora.made.of_type("event_callback"))
            event = dora.made.of_type("event_callback")[0]["event"]
            assert event["user"]["deleted"] is True

    run(scene())


def test_click_on_a_removed_button_is_not_delivered() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            workspace = dora.made.emulator.workspace
            old = workspace.post(Message("C0OPS", "", "U0KEYTURN", "plain"))
            await dora.press(old, "decide", "approve")
            assert dora.made.payloads == []
            assert "That button or choice is gone" in dora.words[-1]

    run(scene())


def test_ephemeral_message_or_modal_of_another_person_cannot_be_used() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn hello")
            bob = dora.acting_as("U0BOB")
            await bob.press(dora.shown[0], "x", "y")
            assert "That message is gone." in bob.words[-1]
            await _open_form(dora)
            await bob.post("act", {"view": dora.modal.id, "do": "close"})
            assert dora.modal

    run(scene())


def test_suggest_route_returns_options_as_json() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await _open_form(dora)
            fields = {"view": dora.modal.id, "where": HOST, "typed": "nfs"}
            answer = await dora.post("suggest", fields)
            assert json.loads(answer.text) == {"options": [{"value": "nfs-1", "text": "nfs-1"}]}

    run(scene())

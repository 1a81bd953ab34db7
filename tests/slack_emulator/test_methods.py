"""Every method of the emulator's Web API, called with Slack's own client."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.slack_emulator.expiring_ids import ResponseTarget
from tests.slack_emulator.methods import METHODS
from tests.slack_emulator.page_client import PageClient, open_page_client, run

Payload = dict[str, Any]
# The client is Slack's own AsyncWebClient, whose answers have no types worth the name.
Scene = Callable[[PageClient, Any], Awaitable[None]]


def play(scene: Scene) -> None:
    async def whole() -> None:
        async with open_page_client() as dora:
            await scene(dora, dora.made.bolt.client)

    run(whole())


async def refused(error: str, call: Awaitable[Any]) -> Payload:
    """Expect a call to be refused with an error, and return the whole answer."""
    with pytest.raises(SlackApiError) as caught:
        await call
    response: Any = vars(caught.value)["response"]
    answer: Payload = response.data
    assert answer["error"] == error
    return answer


def block(words: str = "x", **more: Any) -> Payload:
    return {"type": "section", "text": {"type": "mrkdwn", "text": words}, **more}


def modal(title: str = "A form", **more: Any) -> Payload:
    return {
        "type": "modal",
        "title": {"type": "plain_text", "text": title},
        "blocks": [block()],
        **more,
    }


HOME: Payload = {"type": "home", "blocks": [block()]}


def test_auth_test_returns_team_and_bot_user() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        response = await client.auth_test()
        assert (response["team_id"], response["user_id"]) == ("T0EMULATOR", "U0KEYTURN")

    play(scene)


def test_wrong_or_missing_bot_token_is_refused() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        url = dora.made.emulator.api_url
        await refused("invalid_auth", AsyncWebClient("xoxb-wrong", base_url=url).auth_test())
        await refused("not_authed", AsyncWebClient(base_url=url).auth_test())

    play(scene)


@pytest.mark.malformed
def test_method_arguments_are_accepted_as_query_form_or_json() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        emulator = dora.made.emulator
        args = {"channel": "C0OPS", "text": "hi", "blocks": json.dumps([block()])}
        bearer = {"authorization": f"Bearer {emulator.bot_token}"}
        url = f"{emulator.api_url}chat.postMessage"
        async with httpx2.AsyncClient() as http:
            answers = [
                await http.get(url, params={**args, "token": emulator.bot_token}),
                await http.post(url, data={**args, "token": emulator.bot_token}),
                await http.post(url, data=args, headers=bearer),
                await http.post(url, json={**args, "blocks": [block()]}, headers=bearer),
                await http.post(url, params=args, headers=bearer),
            ]
            broken = await http.post(
                url, content=b"{", headers={**bearer, "content-type": "application/json"}
            )
        assert [answer.json()["ok"] for answer in answers] == [True] * 5
        assert {answer.status_code for answer in answers} == {200}
        assert len(dora.shown) == 5
        assert broken.json() == {"ok": False, "error": "invalid_json"}
        assert all(emulator.bot_token not in str(call) for call in emulator.web_api.calls)

    play(scene)


@pytest.mark.malformed
def test_unsupported_method_is_unknown_method() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        await refused("unknown_method", client.api_call("chat.startStream"))

    play(scene)


def test_users_and_usergroups_methods_list_people() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        response = await client.users_info(user="U0DORA")
        assert response["user"]["profile"]["title"] == "developer"
        assert response["user"]["deleted"] is False
        found_user = await client.users_lookupByEmail(email="ALICE@example.org")
        assert found_user["user"]["id"] == "U0ALICE"
        everyone = await client.users_list()
        assert [one["is_bot"] for one in everyone["members"]] == [False, False, False, True]
        groups = await client.usergroups_list()
        assert groups["usergroups"][0]["handle"] == "oncall-leads"
        members = await client.usergroups_users_list(usergroup="S0LEADS")
        assert members["users"] == ["U0ALICE", "U0BOB"]
        dora.made.emulator.workspace.set_active("U0ALICE", active=False)
        response = await client.users_info(user="U0ALICE")
        assert response["user"]["deleted"] is True
        members = await client.usergroups_users_list(usergroup="S0LEADS")
        assert members["users"] == ["U0BOB"]
        await refused("users_not_found", client.users_lookupByEmail(email="alice@example.org"))
        await refused("user_not_found", client.users_info(user="U0NOBODY"))
        await refused("no_such_subteam", client.usergroups_users_list(usergroup="S0NONE"))

    play(scene)


def test_chat_methods_post_update_and_delete_a_message() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        posted = await client.chat_postMessage(channel="C0OPS", text="one", blocks=[block()])
        ts = posted["ts"]
        assert posted["message"]["blocks"][0]["block_id"]
        await client.chat_update(channel="C0OPS", ts=ts, text="two", blocks=[block("new")])
        assert dora.shown[0].text == "two"
        await client.chat_update(channel="C0OPS", ts=ts, text="three")
        assert (dora.shown[0].text, dora.shown[0].blocks) == ("three", ())
        link = await client.chat_getPermalink(channel="C0OPS", message_ts=ts)
        assert link["permalink"].startswith(dora.made.emulator.url)
        await client.chat_delete(channel="C0OPS", ts=ts)
        assert dora.shown == []
        await refused("message_not_found", client.chat_delete(channel="C0OPS", ts=ts))
        await refused("message_not_found", client.chat_update(channel="C0OPS", ts=ts, text="x"))

    play(scene)


def test_message_timestamps_are_unique_and_increase() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        posts = [client.chat_postMessage(channel="C0OPS", text=str(n)) for n in range(20)]
        stamps = [response["ts"] for response in await asyncio.gather(*posts)]
        assert len(set(stamps)) == 20
        assert all(len(ts) == 17 and ts.endswith("00") for ts in stamps)
        found_user = dora.shown
        assert [message.ts for message in found_user] == sorted(stamps)

    play(scene)


def test_bot_can_update_and_delete_only_its_own_messages() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        await dora.say("mine")
        ts = dora.shown[0].ts
        await refused("cant_update_message", client.chat_update(channel="C0OPS", ts=ts, text="x"))
        await refused("cant_delete_message", client.chat_delete(channel="C0OPS", ts=ts))

    play(scene)


def test_post_message_error_says_why_the_bot_cannot_post() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        workspace = dora.made.emulator.workspace
        await refused("channel_not_found", client.chat_postMessage(channel="C0NONE", text="x"))
        await refused("not_in_channel", client.chat_postMessage(channel="C0ALARMS", text="x"))
        await client.conversations_join(channel="C0ALARMS")
        await client.chat_postMessage(channel="#alarms", text="by name")
        workspace.set_bot_inside("C0DESK", inside=False)
        await refused("channel_not_found", client.chat_postMessage(channel="C0DESK", text="x"))
        workspace.set_archived("C0OPS", archived=True)
        await refused("is_archived", client.chat_postMessage(channel="C0OPS", text="x"))
        workspace.set_active("U0BOB", active=False)
        await refused("user_disabled", client.chat_postMessage(channel="U0BOB", text="x"))

    play(scene)


@pytest.mark.malformed
def test_post_message_refuses_empty_long_or_invalid_blocks() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        post = client.chat_postMessage
        empty = client.api_call("chat.postMessage", json={"channel": "C0OPS", "text": " "})
        await refused("no_text", empty)
        wrong = await refused(
            "invalid_blocks", post(channel="C0OPS", text="x", blocks=[block("x" * 3001)])
        )
        assert "json-pointer:/blocks/0/text/text" in wrong["response_metadata"]["messages"][0]
        await refused("invalid_blocks_format", post(channel="C0OPS", text="x", blocks="{"))
        response = await post(channel="C0OPS", text="x" * 40_001)
        assert response["warning"] == "message_truncated"
        assert len(dora.shown[0].text) == 40_000
        long = client.chat_update(channel="C0OPS", ts=response["ts"], text="x" * 40_001)
        await refused("msg_too_long", long)
        assert len(dora.shown) == 1

    play(scene)


def test_ephemeral_message_is_shown_to_one_member_of_the_channel() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        response = await client.chat_postEphemeral(channel="C0OPS", user="U0DORA", text="psst")
        assert dora.words == ["psst"]
        assert dora.acting_as("U0BOB").words == []
        ts = response["message_ts"]
        await refused("message_not_found", client.chat_update(channel="C0OPS", ts=ts, text="x"))
        stranger = client.chat_postEphemeral(channel="C0DESK", user="U0DORA", text="x")
        await refused("user_not_in_channel", stranger)

    play(scene)


def test_conversations_methods_open_list_and_read_channels() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        opened = await client.conversations_open(users="U0DORA")
        assert opened["channel"]["is_im"] is True
        several = await client.conversations_open(users="U0DORA,U0BOB")
        again = await client.conversations_open(users="U0BOB,U0DORA")
        assert several["channel"]["id"] == again["channel"]["id"]
        info = await client.conversations_info(channel="C0DESK")
        assert info["channel"]["is_private"] is True
        members = await client.conversations_members(channel="C0DESK")
        assert members["members"] == ["U0ALICE", "U0KEYTURN"]
        public = await client.conversations_list()
        assert [one["name"] for one in public["channels"]] == ["ops", "alarms"]
        parent = await client.chat_postMessage(channel="C0OPS", text="parent")
        ts = parent["ts"]
        await client.chat_postMessage(channel="C0OPS", text="child", thread_ts=ts)
        replies = await client.conversations_replies(channel="C0OPS", ts=ts)
        assert [one["text"] for one in replies["messages"]] == ["parent", "child"]
        history = await client.conversations_history(channel="C0OPS")
        assert [one["text"] for one in history["messages"]] == ["parent"]
        await refused("not_in_channel", client.conversations_history(channel="C0ALARMS"))
        lost = client.conversations_replies(channel="C0OPS", ts="1.000100")
        await refused("thread_not_found", lost)

    play(scene)


def _trigger(dora: PageClient) -> str:
    return dora.made.emulator.web_api.context.triggers.issue("U0DORA")


def test_views_methods_open_push_and_update_a_modal() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        first = await client.views_open(trigger_id=_trigger(dora), view=modal())
        await client.views_push(trigger_id=_trigger(dora), view=modal("Two"))
        third = await client.views_push(trigger_id=_trigger(dora), view=modal("Three"))
        assert third["view"]["root_view_id"] == first["view"]["id"]
        full = client.views_push(trigger_id=_trigger(dora), view=modal("Four"))
        await refused("push_limit_reached", full)
        view = third["view"]
        new = await client.views_update(view_id=view["id"], hash=view["hash"], view=modal("New"))
        assert dora.modal.payload["title"]["text"] == "New"
        stale = client.views_update(view_id=view["id"], hash=view["hash"], view=modal("Old"))
        await refused("hash_conflict", stale)
        assert new["view"]["hash"] != view["hash"]
        await refused("not_found", client.views_update(view_id="V0", view=modal()))

    play(scene)


def test_trigger_id_opens_one_view() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        trigger = _trigger(dora)
        await client.views_open(trigger_id=trigger, view=modal())
        again = client.views_open(trigger_id=trigger, view=modal())
        await refused("exchanged_trigger_id", again)
        await refused("invalid_trigger_id", client.views_open(trigger_id="1.2.3", view=modal()))

    play(scene)


@pytest.mark.malformed
def test_invalid_view_is_refused_and_leaves_the_trigger_id_valid() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        trigger = _trigger(dora)
        wrong = client.views_open(trigger_id=trigger, view=modal("x" * 25))
        answer = await refused("invalid_arguments", wrong)
        assert "/view/title/text" in answer["response_metadata"]["messages"][0]
        await client.views_open(trigger_id=trigger, view=modal())
        named = modal("Named", external_id="one")
        await client.views_push(trigger_id=_trigger(dora), view=named)
        double = client.views_push(trigger_id=_trigger(dora), view=named)
        await refused("duplicate_external_id", double)
        await client.views_update(external_id="one", view=modal("By its name"))

    play(scene)


def test_views_publish_sets_the_home_tab_of_one_person() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        response = await client.views_publish(user_id="U0DORA", view=HOME)
        old = response["view"]["hash"]
        await client.views_publish(user_id="U0DORA", view=HOME, hash=old)
        stale = client.views_publish(user_id="U0DORA", view=HOME, hash=old)
        await refused("hash_conflict", stale)
        wrong = client.views_publish(user_id="U0DORA", view=modal())
        await refused("invalid_arguments", wrong)
        assert dora.made.emulator.views.home("U0BOB") is None

    play(scene)


def test_files_upload_posts_a_file_for_download() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        await client.files_upload_v2(
            channel="C0OPS", content="<script>", filename="out.html", initial_comment="All of it"
        )
        message = dora.shown[0]
        assert (message.text, message.files[0].content) == ("All of it", b"<script>")
        answer = await dora.client.get(f"files/{message.files[0].file_id}")
        assert answer.content == b"<script>"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"] == "application/octet-stream"
        await refused("file_not_found", client.files_completeUploadExternal(files=[{"id": "F0"}]))

    play(scene)


def test_reaction_is_added_once() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        await dora.say("look")
        ts = dora.shown[0].ts
        await client.reactions_add(channel="C0OPS", timestamp=ts, name="eyes")
        again = client.reactions_add(channel="C0OPS", timestamp=ts, name="eyes")
        await refused("already_reacted", again)
        assert "👀 1" in await dora.page()

    play(scene)


def test_calls_to_limit_fault_answers_429_with_retry_after() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        dora.made.emulator.workspace.faults.calls_to_limit = 1
        dora.made.emulator.workspace.faults.retry_after = 7
        with pytest.raises(SlackApiError) as caught:
            await client.auth_test()
        response: Any = vars(caught.value)["response"]
        assert response.status_code == 429
        assert response.headers["retry-after"] == "7"
        await client.auth_test()

    play(scene)


def test_response_url_works_five_times() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        ticket = ResponseTarget("C0OPS", "U0DORA")
        url = dora.made.emulator.interactions.response_url(ticket)
        async with httpx2.AsyncClient() as http:
            for number in range(5):
                answer = await http.post(url, json={"text": str(number)})
                assert answer.status_code == 200
            sixth = await http.post(url, json={"text": "6"})
            unknown = await http.post(url + "x", json={"text": "x"})
        assert (sixth.status_code, sixth.json()["error"]) == (404, "used_url")
        assert unknown.status_code == 404
        assert dora.words == ["0", "1", "2", "3", "4"]

    play(scene)


@pytest.mark.malformed
def test_response_url_replaces_deletes_and_publishes_messages() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        response = await client.chat_postEphemeral(channel="C0OPS", user="U0DORA", text="old")
        ticket = ResponseTarget("C0OPS", "U0DORA", response["message_ts"])
        url = dora.made.emulator.interactions.response_url(ticket)
        async with httpx2.AsyncClient() as http:
            await http.post(url, json={"replace_original": True, "text": "new"})
            assert (dora.words, dora.shown[0].only_for) == (["new"], "U0DORA")
            await http.post(url, json={"response_type": "in_channel", "text": "all"})
            assert dora.acting_as("U0BOB").words == ["all"]
            await http.post(url, json={"delete_original": True})
            assert dora.words == ["all"]
            wrong = await http.post(url, json={"blocks": [{"type": "nothing"}]})
        assert wrong.json()["error"] == "invalid_blocks"

    play(scene)


def test_chat_unfurl_shows_and_replaces_blocks_for_a_link() -> None:
    async def scene(dora: PageClient, client: Any) -> None:
        url = "https://keyturn.example.com/runs/1?a=1&b=2"
        await dora.say(f"look at {url}")
        [message] = dora.shown
        place = {"channel": message.channel, "ts": message.ts}
        for words in ("it waits", "it is done"):
            await client.chat_unfurl(**place, unfurls={url: {"blocks": [block(words)]}})
        other = {"https://keyturn.example.com/runs/2": {"blocks": [block()]}}
        await refused("cannot_unfurl_url", client.chat_unfurl(**place, unfurls=other))
        page = await dora.page()
        assert "it is done" in page
        assert "it waits" not in page

    play(scene)


def test_emulator_implements_the_methods_that_keyturn_calls() -> None:
    wanted = {
        *("auth.test", "users.info", "users.list", "users.lookupByEmail", "usergroups.list"),
        *("usergroups.users.list", "chat.postMessage", "chat.update", "chat.delete"),
        *("chat.postEphemeral", "chat.getPermalink", "conversations.open", "conversations.info"),
        *("conversations.members", "conversations.list", "conversations.replies"),
        *("conversations.history", "conversations.join", "views.open", "views.update"),
        *("views.push", "views.publish", "files.getUploadURLExternal"),
        *("files.completeUploadExternal", "reactions.add"),
    }
    assert wanted <= METHODS.keys()

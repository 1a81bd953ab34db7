"""Unfurled links to runs: who sees them, and how they follow the run."""

from pathlib import Path

import pytest

from bot.model.run import State
from tests.bot.restricted_view import HIDDEN, open_restricted_harness
from tests.bot.slack import payloads
from tests.bot.slack.chat import PAGES, Chat, open_chat
from tests.bot.slack.json_walk import list_texts

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on because of ticket 4711"
RUN_1 = f"{PAGES}/runs/1"


async def share(chat: Chat, *urls: str, user: str = "U0DORA", channel: str = "C0OPS") -> None:
    await chat.send(payloads.shared_link(*urls, user=user, channel=channel))
    await chat.settle()


def unfurls(chat: Chat) -> list[str]:
    """Return the text of each unfurl that was sent."""
    return [
        " ".join(list_texts(shown))
        for _, _, unfurled in chat.slack.unfurled
        for shown in unfurled.values()
    ]


async def test_shared_link_unfurls_the_run_and_follows_its_state(chat: Chat):
    await chat.type(LAMP_ON)
    await share(chat, RUN_1)
    [(channel, ts, unfurled)] = chat.slack.unfurled
    assert (channel, list(unfurled)) == ("C0OPS", [RUN_1])
    [shown] = unfurls(chat)
    assert "Needs approval: toy set lb1 lamp on" in shown
    assert "Run 1 · lb1 · the edge · requested by Dora Developer" in shown
    assert "0 of 1 approval from the owners of the edge" in shown
    assert "4711" not in shown
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    assert {one[:2] for one in chat.slack.unfurled} == {("C0OPS", ts)}
    last = unfurls(chat)[-1]
    assert "Succeeded: toy set lb1 lamp on" in last
    assert "Approved by Olga Owner" in last
    assert len(chat.slack.seen_in("C0OPS")) == len({one.ts for one in chat.slack.posted})


async def test_an_unfurl_is_sent_again_only_if_it_differs(chat: Chat):
    await chat.type(LAMP_ON)
    await share(chat, RUN_1)
    await chat.type("question 1 which ticket?", "U0OLGA")
    assert len(chat.slack.unfurled) == 1


@pytest.mark.parametrize(
    ("typed", "channel"),
    [
        (LAMP_ON, "C0OTHER"),
        (LAMP_ON, "G0GROUP"),
        ("privately toy show lb1", "C0OPS"),
        ("privately toy show lb1", "C0EDGE"),
    ],
)
async def test_link_in_a_channel_without_the_card_is_not_unfurled(
    chat: Chat, typed: str, channel: str
):
    await chat.type(typed)
    await share(chat, RUN_1, channel=channel)
    assert chat.slack.unfurled == []


async def test_a_plan_that_is_not_requested_is_not_unfurled_in_a_channel(chat: Chat):
    await chat.type(f"plan {LAMP_ON}")
    assert chat.run().plan_only
    await share(chat, RUN_1)
    assert chat.slack.unfurled == []


async def test_unfurl_in_a_direct_message_needs_the_right_to_view_of_its_poster(
    tmp_path: Path, anyio_backend: str
):
    assert anyio_backend
    with open_restricted_harness(tmp_path) as restricted:
        async with open_chat(restricted.harness) as chat:
            hidden = [f"{PAGES}/runs/{run.id}" for run in restricted.hidden.values()]
            await share(chat, *hidden, f"{PAGES}/runs/{restricted.shown.id}", channel="D0DORA")
            [(channel, _, unfurled)] = chat.slack.unfurled
            assert (channel, list(unfurled)) == ("D0DORA", [f"{PAGES}/runs/{restricted.shown.id}"])
            assert HIDDEN not in unfurls(chat)[0]
            await share(chat, hidden[0], user="U0OLGA", channel="D0OLGA")
            assert chat.slack.unfurled[-1][0] == "D0OLGA"


@pytest.mark.parametrize(
    "url",
    [
        f"{PAGES}/runs/2",
        f"{PAGES}/runs/1x",
        f"{PAGES}/runs/1/erase",
        f"{PAGES}/hosts/lb1",
        f"{PAGES}.evil.example/runs/1",
        "https://evil.example/runs/1",
        f"{PAGES}/runs/9999999999",
        f"{RUN_1}?{'x' * 200}",
        "",
    ],
)
async def test_only_links_to_pages_of_runs_are_unfurled(chat: Chat, url: str):
    await chat.type(LAMP_ON)
    await share(chat, url)
    assert chat.slack.unfurled == []
    await share(chat, f"{RUN_1}?step=1#output")
    assert list(chat.slack.unfurled[-1][2]) == [f"{RUN_1}?step=1#output"]


async def test_link_by_an_unknown_account_or_in_the_composer_is_not_unfurled(chat: Chat):
    await chat.type(LAMP_ON)
    posted_before = len(chat.slack.posted)
    await share(chat, RUN_1, user="U0NOBODY")
    await chat.send(payloads.shared_link(RUN_1, channel="COMPOSER", source="composer"))
    await chat.settle()
    assert chat.slack.unfurled == []
    assert len(chat.slack.posted) == posted_before


async def test_link_to_a_child_run_unfurls_its_parent_run(chat: Chat):
    await chat.type("toy set lb1,lb2 lamp on")
    assert chat.run(2).parent == 1
    await share(chat, f"{PAGES}/runs/2")
    assert list(chat.slack.unfurled[-1][2]) == [f"{PAGES}/runs/2"]
    assert "Run 1 · lb1 and 1 more · the edge" in unfurls(chat)[-1]


async def test_the_five_newest_unfurls_of_a_run_are_updated(chat: Chat):
    await chat.type(LAMP_ON)
    for _ in range(7):
        await share(chat, RUN_1)
    posted = [ts for _, ts, _ in chat.slack.unfurled]
    assert len(set(posted)) == 7
    chat.slack.unfurled.clear()
    await chat.type("withdraw 1")
    assert [ts for _, ts, _ in chat.slack.unfurled] == posted[2:]


async def test_refused_unfurl_is_dropped_and_the_others_are_updated(chat: Chat):
    await chat.type(LAMP_ON)
    await share(chat, RUN_1)
    await share(chat, RUN_1)
    (_, first, _), (_, second, _) = chat.slack.unfurled
    chat.slack.refuse("chat.unfurl", "cannot_unfurl_message")
    await chat.type("deny 1 not today", "U0OLGA")
    assert [ts for _, ts, _ in chat.slack.unfurled] == [first, second, second]
    assert chat.slack.card.text.startswith("Run 1 · Denied")


async def test_an_unfurl_is_retried_while_slack_limits_the_rate(chat: Chat):
    await chat.type(LAMP_ON)
    chat.slack.refuse("chat.unfurl", "ratelimited", status=429, retry_after=9)
    await share(chat, RUN_1)
    assert chat.slack.unfurled == []
    with chat.harness.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE outbox SET next_attempt_at = 0")
    await chat.settle()
    assert len(chat.slack.unfurled) == 1

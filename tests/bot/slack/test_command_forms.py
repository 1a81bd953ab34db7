"""Buttons that open the form of a command, which then runs as if the person had typed it."""

from typing import Any

import pytest

from bot.db import tables
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio
CARD = Posted("C0OPS", "1.1", "", [])


def list_buttons(blocks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rows = [block["elements"] for block in blocks if block["type"] == "actions"]
    return {one["text"]["text"]: one for row in rows for one in row}


async def press(chat: Chat, shown: dict[str, Any], user: str) -> None:
    await chat.press(shown["action_id"], user, message=CARD, value=shown["value"])


async def submit(chat: Chat, values: dict[str, str], user: str) -> str:
    answer = await chat.submit(values, user)
    return " ".join([*list_texts(answer.json), *answer.json.get("errors", {}).values()])


async def test_grant_and_delegation_are_ended_by_their_buttons(chat: Chat) -> None:
    await chat.type("grant dora toy set lb* 5 an hour until 4h because the fair", "U0OLGA")
    await chat.type("delegate to stan for 2 hours because away", "U0OLGA")
    for command, table in (("grants", "standing_grant"), ("delegations", "delegation")):
        shown = list_buttons((await chat.type(command, "U0OLGA")).json["blocks"])
        await press(chat, shown["End 1…"], "U0OLGA")
        assert "has ended" in await submit(chat, {}, "U0OLGA")
        with chat.harness.database.reading() as tx:
            [row] = tx.sql.execute(tables.metadata.tables[table].select())
        assert row.revoked_at is not None


async def test_plain_request_for_two_hosts_is_one_request(chat: Chat) -> None:
    typed = "<@U0KEYTURN> please set the switch lamp to on at lb1 and lb2, because it is dark"
    await chat.send(payloads.mention(typed, "U0DORA"))
    await chat.settle()
    shown = list_buttons(chat.slack.whispers("U0DORA")[0].blocks)
    values = [one["value"] for one in shown.values()]
    [both] = [one for one in shown.values() if "toy set" in one["value"]]
    assert "host=lb1,lb2" in both["value"], values
    await press(chat, both, "U0DORA")
    view = list(chat.slack.views.values())[-1]
    text = " ".join(list_texts(view["blocks"]))
    assert "/keyturn toy set " in text
    assert "host=lb1,lb2" in text
    [reason] = [one["element"] for one in view["blocks"] if one.get("block_id") == "because"]
    assert reason["initial_value"] == "it is dark"
    assert "It is requested" in await submit(chat, {"because": "it is dark"}, "U0DORA")
    assert (chat.run().hosts, chat.run().reason) == (("lb1", "lb2"), "it is dark")


@pytest.mark.parametrize("value", ["", "r:Adopt", "x:Adopt:drift adopt 1", "drift adopt 1"])
async def test_forged_command_button_is_refused(chat: Chat, value: str) -> None:
    await chat.press("command-0", "U0OLGA", message=CARD, value=value)
    assert "out of date" in chat.slack.whispers("U0OLGA")[0].text
    assert chat.slack.views == {}

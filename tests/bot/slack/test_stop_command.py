"""Stop and ban commands in Slack."""

import re
from typing import Any, cast

import pytest

from bot.db import search, stops
from bot.model.run import State
from bot.queries.banned_people import PolicyWithoutBanned
from tests.bot.bogus_entry import add_bogus_entry
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.json_walk import list_texts
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


async def test_stop_command_stops_a_run_by_its_number(chat: Chat):
    run = chat.harness.request(LAMP_ON)
    answer = await chat.type(f"stop #{run.id} because the wrong lamp", "U0DORA")
    assert f"You stopped run {run.id}. Dora Developer stopped it (the wrong lamp)" in answer.text
    assert chat.harness.get_run(run.id).state is State.STOPPED


async def test_stop_all_command_holds_runs_until_another_person_resumes(chat: Chat):
    refused = await chat.type("stop all because I feel like it", "U0DORA")
    assert "You cannot do that. Those who can: Adam Admin" in refused.text
    assert "Enter a reason" in (await chat.type("stop all", "U0ADAM")).text
    stopped = await chat.type("stop all because the cellar is on fire", "U0ADAM")
    assert "Everything is stopped; no run was active" in stopped.text
    asked = await chat.type("toy set lb1 lamp on", "U0DORA")
    assert "Adam Admin stopped everything (the cellar is on fire)" in asked.text
    listed = " ".join(list_texts((await chat.type("runs", "U0DORA")).json["blocks"]))
    assert "Everything is stopped by Adam Admin: the cellar is on fire." in listed
    own = await chat.type("resume because it is out", "U0ADAM")
    assert "nother person has to revert what you ordered" in own.text
    assert "Runs can start again" in (await chat.type("resume because it is out", "U0OLGA")).text
    with chat.harness.database.reading() as tx:
        assert stops.get_stop_of_everything(tx) is None


@pytest.mark.parametrize("whom", ["dora", "@dora", "<@U0DORA|whoever>"])
async def test_ban_command_bans_a_person_and_unban_lifts_it(chat: Chat, whom: str):
    reply = await chat.type(f"ban {whom} because the laptop is stolen", "U0ADAM")
    assert "Dora Developer is banned" in reply.text
    assert "unban dora because" in reply.text
    twice = await chat.type(f"ban {whom} because the laptop is stolen", "U0OLGA")
    assert "Dora Developer is banned already" in twice.text
    assert "their API tokens are revoked for good" in reply.text
    with chat.harness.database.reading() as tx:
        assert stops.list_banned_people(tx) == {"dora"}
    back = (await chat.type(f"unban {whom} because it is hers", "U0OLGA")).text
    assert "Dora Developer is no longer banned" in back
    assert "stay revoked" in back


@pytest.mark.parametrize("text", ["stop", "stop lb1", "ban", "ban dora and olga"])
async def test_invalid_stop_or_ban_command_is_refused_with_its_usage(chat: Chat, text: str):
    assert "is missing: type" in (await chat.type(f"{text} because smoke", "U0ADAM")).text


async def test_banned_person_is_refused_with_the_time_and_a_contact(harness: Harness):
    directory = harness.policies
    harness.policies = cast("Any", PolicyWithoutBanned(directory, harness.database))
    harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
    async with open_chat(harness) as chat:
        reply = (await chat.type("toy set lb1 lamp on", "U0DORA")).text
        assert re.fullmatch(
            r"You have been banned from Keyturn since \d{4}-\d\d-\d\d \d\d:\d\d UTC by Adam "
            r"Admin\. Nothing was done\. Contact Adam Admin or a Keyturn administrator\.",
            reply,
        )
        assert "Keyturn does not know" in (await chat.type("help", "U0NOBODY")).text
        with harness.database.reading() as tx:
            assert search.find_newest_runs(tx, search.RunFilter()) == []
        harness.service.unban_person("dora", unbanned_by="olga", reason="it was found")
        cast("Any", harness.policies).forget_banned_people()
        await chat.type("toy set lb1 lamp on", "U0DORA")
        assert harness.get_run(1).requested_by == "dora"


async def test_person_banned_on_the_command_line_is_referred_to_an_administrator(harness: Harness):
    directory = harness.policies
    harness.policies = cast("Any", PolicyWithoutBanned(directory, harness.database))
    with harness.database.transaction() as tx:
        stops.add_ban(tx, "dora", by="", why="")
    async with open_chat(harness) as chat:
        reply = (await chat.type("help", "U0DORA")).text
        assert reply.endswith(" UTC. Nothing was done. Contact a Keyturn administrator.")


async def test_chat_says_which_entry_of_the_change_log_is_not_ours(chat: Chat):
    says = add_bogus_entry(chat.harness.database)
    # Slack's own backticks would format it.
    assert (await chat.type("toy set lb1 lamp on")).text == says.replace("`", "ˋ")

"""The right to view in Slack: commands, Home tab and buttons."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.features import load_chat
from bot.model.run import State
from bot.slack.commands import SlackCommands
from bot.slack.run_facts import SlackRunViewBuilder
from tests.bot.features.tables import collect
from tests.bot.restricted_view import HIDDEN, SHOWN, RestrictedHarness, open_restricted_harness
from tests.bot.slack.chat import PAGES, Chat, open_chat
from tests.bot.slack.test_commands import words
from tests.bot.slack.test_home import open_home
from tests.bot.slack.test_home import words as of_home
from tests.policies import TEAM

pytestmark = pytest.mark.anyio

VIEWING = collect("CHAT_VIEWING")


def _of(decision: str) -> list[str]:
    return [text for text, decided in VIEWING.items() if decided == decision]


RECORDS = sorted(collect("RECORDS"))
# What somebody types about a run: one that may not be viewed is none.
ABOUT_ONE = (
    "run {run}",
    "approve {run}",
    "approve {run} 0123456789",
    "deny {run} no",
    "undo {run}",
    "again {run}",
    "withdraw {run}",
    "hold {run}",
    "question {run} why now?",
    "answer {run} because of the sale",
    "reassign {run} adam",
    "break-glass {run} because the building is on fire now",
    "review {run} it was right, the disk was full",
    "counter {run} value=off",
    "accept {run} 0123456789",
    "stop {run}",
)
LISTS = (
    *("runs", "runs lb1", f"runs {HIDDEN}", "changed now", "changed now lb1"),
    *_of("leaves out"),
)
TELLS_OF_NONE = (
    *("", "help", "web", "can-i toy set lb1", "delegate", "delegations", "grant", "grants"),
    *("resume", "ban", "unban", "who", "who lb1", "handover"),
    *_of("tells of none"),
)
# Makes a run of the person's own, which they may view.
REQUESTS = ("privately toy show lb1", "plan toy set web1 lamp on")
ABSENT = 987_654


@pytest.fixture
async def restricted(
    tmp_path: Path, anyio_backend: str
) -> AsyncIterator[tuple[RestrictedHarness, Chat]]:
    assert anyio_backend
    with open_restricted_harness(tmp_path) as restricted:
        async with open_chat(restricted.harness) as chat:
            yield restricted, chat


async def type_command(chat: Chat, text: str, user: str = "U0DORA") -> str:
    return words(await chat.type(text, user))


async def test_viewing_test_covers_every_slack_command(chat: Chat):
    harness = chat.harness
    run_views = SlackRunViewBuilder(harness.policies, team=TEAM, base_url=PAGES)
    known = SlackCommands(
        harness.service, harness.database, harness.policies, run_views, load_chat()
    ).command_words
    decided = (*ABOUT_ONE, *LISTS, *TELLS_OF_NONE, *REQUESTS, *VIEWING)
    assert {text.split(" ")[0] for text in decided} == {"", *known}


@pytest.mark.parametrize("text", ABOUT_ONE)
async def test_slack_command_answers_for_a_hidden_run_as_for_a_missing_one(
    restricted: tuple[RestrictedHarness, Chat], text: str
):
    harness, chat = restricted
    absent = await type_command(chat, text.format(run=ABSENT))
    for run in harness.hidden.values():
        answer = await type_command(chat, text.format(run=run.id))
        assert answer.replace(f" {run.id}", f" {ABSENT}") == absent
    assert harness.harness.get_run(harness.hidden["pending"].id).state is State.PENDING


@pytest.mark.parametrize(
    ("text", "kind"), [(text, kind) for kind in RECORDS for text in _of(kind)]
)
async def test_slack_command_answers_for_a_hidden_record_as_for_a_missing_one(
    restricted: tuple[RestrictedHarness, Chat], text: str, kind: str
):
    harness, chat = restricted
    hidden, _ = harness.records[kind]
    absent = await type_command(chat, text.format(number=ABSENT))
    answer = await type_command(chat, text.format(number=hidden))
    assert answer.replace(f" {hidden}", f" {ABSENT}") == absent


@pytest.mark.parametrize("text", LISTS)
async def test_slack_lists_leave_out_hidden_runs(
    restricted: tuple[RestrictedHarness, Chat], text: str
):
    harness, chat = restricted
    reply = await type_command(chat, text)
    assert HIDDEN not in reply.replace(text, "").replace(f"'{HIDDEN}'", "")
    assert "toy set lb1" not in reply
    assert "lb1" in (await type_command(chat, text, "U0ADAM"))
    if text in {"runs", "changed now"}:
        assert "web1" in reply
    assert harness


@pytest.mark.parametrize("text", TELLS_OF_NONE)
async def test_slack_commands_about_no_run_show_no_hidden_run(
    restricted: tuple[RestrictedHarness, Chat], text: str
):
    _, chat = restricted
    assert HIDDEN not in await type_command(chat, text)


async def test_home_tab_shows_only_runs_that_its_person_may_view(
    restricted: tuple[RestrictedHarness, Chat],
):
    _, chat = restricted
    mine = of_home(await open_home(chat, "U0DORA"))
    assert "lb1" not in mine
    assert HIDDEN not in mine
    assert "web1" in mine
    whole = of_home(await open_home(chat, "U0ADAM"))
    assert "lb1" in whole
    assert SHOWN

"""`/keyturn tree`: fault trees and what is down now."""

import pytest

from bot.model.run import State
from tests.bot.slack.chat import Chat

pytestmark = pytest.mark.anyio


def add_pair(chat: Chat) -> None:
    inventory = chat.harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [lb1, lb2]\n")


async def test_tree_command_shows_a_fault_tree_as_an_outline(chat: Chat):
    add_pair(chat)
    await chat.type("toy restart lb1 lamp on")
    text = await chat.read("tree lb1-lb2")
    assert "Survives 1 more failure" in text
    assert "├─ lb1: lb1 is down" in text
    assert "Single points of failure: none" in text


async def test_tree_command_without_a_name_lists_the_fault_trees(chat: Chat):
    add_pair(chat)
    assert "lb1-lb2 – Not known: Keyturn reads its legs" in (await chat.read("tree")).replace(
        "  ", " "
    )
    await chat.type("toy restart lb1 lamp on")
    assert "lb1-lb2 – Survives 1 more failure" in (await chat.read("tree")).replace("  ", " ")


async def test_tree_command_with_an_unknown_name_lists_the_known_ones(chat: Chat):
    add_pair(chat)
    answer = await chat.type("tree shop")
    assert "it has: lb1-lb2" in str(answer.json)


async def test_tree_command_reports_a_policy_without_fault_trees(chat: Chat):
    assert "no fault trees yet" in await chat.read("tree")


async def test_change_on_the_last_reachable_host_of_a_pair_is_refused_in_slack(chat: Chat):
    add_pair(chat)
    chat.harness.fleet.refusing.add("lb2")
    await chat.type("toy restart lb1 lamp on")
    run = chat.run(1)
    assert run.state is State.REFUSED
    sent = str(chat.slack.calls)
    assert "lb2 could not be reached at" in sent
    assert "This change would take lb1 down too" in sent

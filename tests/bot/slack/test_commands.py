"""The commands behind /keyturn and their answers."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bot.auth import sessions
from bot.db import runs, search
from bot.features import load_chat
from bot.model.run import State
from bot.policy import Policy, PolicyDirectory
from bot.policy.oncall import Duty
from bot.slack import changed_command
from bot.slack.aliases import ALIASES, Alias, expand_alias
from bot.slack.commands import SlackCommands
from bot.slack.run_facts import SlackRunViewBuilder
from runbooks import load_catalogue
from tests.bot.duties import add_calendar, build_duties, with_facts
from tests.bot.features.tables import collect
from tests.bot.harness import Harness
from tests.bot.slack import payloads
from tests.bot.slack.asgi import Answer
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.slack.json_walk import list_mentions, list_texts, walk_objects

pytestmark = pytest.mark.anyio


def words(answer: Answer) -> str:
    assert answer.json["response_type"] == "ephemeral"
    return " ".join(list_texts(answer.json["blocks"]))


async def test_who_command_loads_the_policy_once(chat: Chat, monkeypatch: pytest.MonkeyPatch):
    await chat.type("who lb1")
    looks: list[PolicyDirectory] = []
    look = PolicyDirectory.get_policy

    def counted(directory: PolicyDirectory) -> Policy:
        looks.append(directory)
        return look(directory)

    monkeypatch.setattr(PolicyDirectory, "get_policy", counted)
    assert "is in" in words(await chat.send(payloads.slash("who lb1")))
    assert len(looks) == 1


HELLOS = ("", "help", "  HELP  ", "?", "hi", "Hello!", "help.")


@pytest.mark.parametrize("text", HELLOS)
async def test_help_is_one_screen_with_a_button_for_each_purpose_and_host(chat: Chat, text: str):
    answer = await chat.type(text)
    blocks = {block.get("block_id"): block for block in answer.json["blocks"]}
    values = {name: [one["value"] for one in blocks[name]["elements"]] for name in SCREEN}
    assert "help toy" in values["purposes"]
    assert values["hosts"][:2] == ["anything lb1", "anything lb2"]
    assert values["rest"] == ["anything", "changed 24h", "runs", "who"]
    assert len(answer.json["blocks"]) <= 8
    assert chat.slack.posted == []


SCREEN = ("purposes", "hosts", "rest")


async def test_help_begins_with_the_last_and_most_frequent_own_requests(chat: Chat):
    for text in ("toy show lb2", "toy show lb2", "toy show lb1", "toy set lb1 lamp on"):
        await chat.type(text)
    await chat.type("toy show web1", "U0OLGA")
    answer = await chat.type("help")
    [recent] = [one for one in answer.json["blocks"] if one.get("block_id") == "recent"]
    typed = [one["value"] for one in recent["elements"]]
    assert typed == ["toy set lb1 lamp on", "toy show lb2", "toy show lb1"]


async def test_help_commands_lists_every_command_with_its_usage(chat: Chat):
    shown = words(await chat.type("help commands"))
    assert "/keyturn approve N PLAN" in shown
    assert "because …" in shown


async def test_help_hides_runbooks_that_the_policy_forbids(chat: Chat):
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + 'forbid (principal == Person::"dora", action == Action::"request", resource)\n'
        + 'when { context.runbook == "toy break" };\n'
    )
    [dora, olga] = [
        next(line for line in list_texts((await chat.type("help", user)).json) if "break" in line)
        if user == "U0OLGA"
        else " ".join(list_texts((await chat.type("help", user)).json))
        for user in ("U0DORA", "U0OLGA")
    ]
    assert "break" not in dora
    assert "break" in olga


@pytest.mark.parametrize("text", ["help toy set", "help Toy Set", "help toy set lb1"])
async def test_help_with_a_runbook_shows_summary_usage_and_example(chat: Chat, text: str):
    shown = words(await chat.type(text))
    assert "Set one switch." in shown
    assert "/keyturn toy set HOST NAME VALUE" in shown
    assert "/keyturn toy set lb1 lamp on" in shown
    assert "Undo sets it back." in shown


BUILT_IN = (
    *("help", "runs", "run", "approve", "deny", "undo", "again", "withdraw", "web", "can-i"),
    *("break-glass", "review", "delegate", "delegations", "grant", "grants", "counter", "accept"),
    *("stop", "resume", "ban", "unban", "changed"),
    *("who", "handover", "privately", "plan", "question", "answer", "reassign", "hold"),
    *sorted({text.split()[0] for text in collect("CHAT_VIEWING")}),
)


@pytest.mark.parametrize("word", BUILT_IN)
async def test_help_with_a_command_shows_its_usage(chat: Chat, word: str):
    answer = await chat.type(f"help {word}")
    assert answer.text == f"Usage of {word}"
    assert re.search(rf"/keyturn {word[:5]}", words(answer)) or f" {word} " in words(answer)


async def test_help_test_covers_every_slack_command(chat: Chat):
    commands = SlackCommands(
        chat.harness.service,
        chat.harness.database,
        chat.harness.policies,
        SlackRunViewBuilder(chat.harness.policies, team="T1", base_url=""),
        load_chat(),
    )
    assert set(commands.command_words) == set(BUILT_IN)


async def test_help_with_a_mistyped_command_suggests_the_nearest(chat: Chat):
    assert "did you mean /keyturn approve?" in (await chat.type("help aprove 7")).text


async def test_second_host_argument_is_refused_with_the_comma_syntax(chat: Chat):
    answer = await chat.type("toy show lb1 lb2")
    assert "'lb2' is a host: name several with commas, as in toy show lb1,lb2" in answer.text


@pytest.mark.parametrize("text", ["toy st lb1 lamp on", "toy sett lb1 lamp on"])
async def test_mistyped_runbook_is_offered_with_its_values(chat: Chat, text: str):
    answer = await chat.type(text)
    assert re.search(r"Do you mean .*\? toy set lb1 lamp on\b", answer.text)
    assert chat.harness.list_entry_kinds() == []


async def test_help_with_a_mistyped_runbook_suggests_the_nearest(chat: Chat):
    assert "toy set" in (await chat.type("help toy st")).text


async def test_unknown_words_are_answered_with_the_search_and_help(chat: Chat):
    answer = await chat.type("qqq")
    assert "For a list, type help in chat" in answer.text
    [row] = [block for block in answer.json["blocks"] if block["type"] == "actions"]
    assert [one["value"] for one in row["elements"]] == ["anything", "help"]


async def test_request_names_all_invalid_values_at_once(chat: Chat):
    shown = words(await chat.type("toy set LB1"))
    for name in ("host", "name", "value"):
        assert name in shown
    assert "Request not sent" in shown
    assert "/keyturn toy set HOST NAME VALUE" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toy set lb9 lamp on", "There is no host 'lb9' in the inventory: did you mean lb1, lb2"),
        ("toy set lb1 lamp on extra", "one word too many"),
        ("toy set lb1 'lamp on", "quotation mark"),
        ("run", "The run number is missing: type /keyturn run N"),
        ("run twelve", "The run number is missing: type /keyturn run N"),
        ("run ١", "The run number is missing: type /keyturn run N"),
        ("run 99999999999", "The run number is missing: type /keyturn run N"),
        ("run 7", "There is no run 7."),
        ("approve 7 0123456789", "There is no run 7."),
        ("deny 7", "The reason is missing"),
        ("undo 7", "There is no run 7."),
        ("undo person dora", "Type /keyturn undo person NAME since 2h"),
        ("undo person dora since soon", "“soon” is not a time"),
        ("undo person dora since 2h", "No run of these can be undone"),
        ("withdraw 7", "There is no run 7."),
        ("aprove 7 0123456789", "Unknown command 'aprove': did you mean /keyturn approve?"),
        ("withdra", "did you mean /keyturn withdraw?"),
        ("runs lb9", "No run contains 'lb9', and there is no host 'lb9' in the inventory: did"),
        ("runs lb1 203.0.113.9", "No run contains '203.0.113.9'"),
    ],
)
async def test_invalid_command_is_refused_with_a_fix_and_no_log_entry(
    chat: Chat, text: str, message: str
):
    answer = await chat.type(text)
    assert message in answer.text
    assert chat.slack.posted == []
    assert chat.harness.list_entry_kinds() == []


async def test_invisible_character_in_a_reason_is_refused_by_code_point(chat: Chat):
    answer = await chat.type("toy set lb1 lamp on because \u202etrust me")
    assert "U+202E" in answer.text
    assert chat.harness.list_entry_kinds() == []


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("dark\nand cold\tthere", "dark and cold there"),
        ("for \U0001f468\u200d\U0001f469\u200d\U0001f467", None),
        ("می\u200cخواهم", None),
        ("no\u00a0break", "no break"),
    ],
)
async def test_reason_is_normalised_to_one_line_of_text(chat: Chat, typed: str, kept: str | None):
    await chat.type(f"toy set lb1 lamp on because {typed}")
    assert chat.run().reason == (kept or typed)
    assert (kept or typed) in chat.slack.card.words
    await chat.type(f"deny 1 {typed}", "U0OLGA")
    with chat.harness.database.reading() as tx:
        [vote] = runs.list_decisions(tx, 1)
    assert vote.reason == (kept or typed)
    assert "\\u" not in chat.slack.card.words


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000"])
async def test_unicode_spaces_separate_words_of_a_command(chat: Chat, space: str):
    await chat.type(f"toy{space}set lb1{space}lamp on")
    assert chat.run().values == {"host": "lb1", "name": "lamp", "value": "on"}
    assert "set lamp on" in words(await chat.type(f"run{space}1"))
    await chat.type(f"deny 1{space}no", "U0OLGA")
    assert chat.run().state is State.DENIED
    assert "There is no runbook 'qqq xx'" in (await chat.type(f"qqq{space}xx")).text


@pytest.mark.parametrize(
    "text",
    ["&lt;!channel&gt;", "toy set &lt;@U0OLGA&gt; a b", "toy set lb1 a b c&lt;!here&gt; d"],
)
async def test_error_repeats_typed_mentions_as_plain_text(chat: Chat, text: str):
    answer = await chat.type(text)
    assert "<" not in answer.text
    assert [part for part in walk_objects(answer.json) if part.get("type") == "mrkdwn"] == []


async def test_smart_quotes_and_slack_links_are_parsed_in_a_request(chat: Chat):
    await chat.type("toy set <http://lb1|lb1> name=“lamp” value=on because it&amp;s dark")
    assert chat.run().values == {"host": "lb1", "name": "lamp", "value": "on"}
    assert chat.run().reason == "it&s dark"


async def test_runs_command_lists_and_filters_runs(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    await chat.type("toy show lb2", "U0STAN")
    shown = words(await chat.type("runs"))
    assert "1  Needs approval" in shown
    assert "Dora Developer" in shown
    assert "toy show lb2" in shown
    only = words(await chat.type("runs lb2"))
    assert "toy set lb1" not in only
    assert "No run matches" in (await chat.type("runs web1")).text


async def test_runs_command_finds_runs_by_value_and_reason(chat: Chat):
    await chat.type("toy set lb1 lamp on because ticket 4711")
    await chat.type("toy set lb2 bell on")
    for asked in ("runs lamp", "runs LB1 lamp", "runs name=lamp", "runs 4711 lamp"):
        shown = words(await chat.type(asked))
        assert "toy set lb1 lamp on" in shown
        assert "bell" not in shown


async def test_runs_and_changed_commands_show_the_approver(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    await chat.type(f"approve 1 {chat.run().short_digest}", "U0OLGA")
    await chat.settle()
    for asked in ("runs", "changed 5 minutes ago ±10m"):
        assert "toy set lb1 lamp on" in words(await chat.type(asked))
        assert ", approved by Olga Owner" in words(await chat.type(asked))
    assert ", by Dora Developer" in words(await chat.type("changed 5 minutes ago ±10m"))


async def test_changed_command_shows_the_approver_of_a_parent_run_for_its_child_run(chat: Chat):
    await chat.type("toy set lb* lamp on")
    await chat.type(f"approve 1 {chat.run().short_digest}", "U0OLGA")
    await chat.settle()
    reply = words(await chat.type("changed 5 minutes ago ±10m lb1"))
    of_part = [line for line in reply.splitlines() if "toy set lb1 lamp on" in line]
    assert of_part
    assert all(", approved by Olga Owner" in line for line in of_part), reply


async def test_run_command_shows_a_run_without_buttons(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    answer = await chat.type("run #1", "U0STAN")
    assert "set lamp on" in words(answer)
    assert [block for block in answer.json["blocks"] if block["type"] == "actions"] == []


async def test_command_that_contains_the_word_payload_is_parsed(chat: Chat):
    chat.harness.fleet.hosts["lb1"]["payload"] = "off"
    await chat.type("toy set lb1 payload on")
    assert chat.run().values["name"] == "payload"


async def test_approve_command_shows_its_reason_on_the_card(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    await chat.type(f"approve 1 {chat.run().short_digest} because I saw it", "U0OLGA")
    assert "I saw it" in chat.slack.card.words


async def test_web_command_returns_a_single_use_sign_in_link(chat: Chat):
    answer = await chat.type("web", "U0DORA")
    assert "once, within ten minutes" in words(answer)
    link = str(answer.json["blocks"]).partition("/sign-in/")[2]
    token = link.partition("'")[0]
    with chat.harness.database.transaction() as tx:
        assert sessions.use_sign_in_link(tx, token) == "dora"
        assert sessions.use_sign_in_link(tx, token) is None


async def test_host_pattern_is_requested_as_one_run(chat: Chat):
    await chat.type("toy set lb* lamp on")
    run = chat.harness.get_run(1)
    assert run.hosts == ("lb1", "lb2")
    assert run.title == "toy set lb* lamp on"


async def test_can_i_command_shows_needed_approvals_without_a_request(chat: Chat):
    shown = words(await chat.type("can-i toy set lb1", "U0DORA"))
    assert shown.startswith("Needs 1 approval from the owners of the edge")
    assert words(await chat.type("can-i toy show lb1", "U0DORA")).startswith(
        "Runs immediately, no approval needed."
    )
    assert "The host is missing" in (await chat.type("can-i toy set", "U0DORA")).text
    with chat.harness.database.reading() as tx:
        assert search.find_newest_runs(tx, search.RunFilter()) == []


async def test_runs_command_lists_a_check_with_problems_as_needs_attention(chat: Chat):
    await chat.type("toy show lb1")
    chat.harness.fleet.hosts["lb1"]["lamp"] = "broken"
    await chat.type("toy show lb1")
    listed = words(await chat.type("runs"))
    assert re.search(r"2 +Needs attention +just now", listed)
    assert re.search(r"1 +Succeeded +just now", listed)


async def test_common_prefix_lists_its_runbooks_with_form_buttons(chat: Chat):
    answer = await chat.type("toy")
    assert "/keyturn toy set HOST NAME VALUE" in words(answer)
    [row] = [block for block in answer.json["blocks"] if block["type"] == "actions"]
    assert "toy set" in [button["value"] for button in row["elements"]]
    payload = payloads.click("ask-1", "toy set", "U0DORA", channel="C0OPS", ts="1.1")
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    [view] = chat.slack.views.values()
    assert view["title"]["text"] == "toy set"


@pytest.mark.parametrize("value", ["toy nothing", "x" * 200])
async def test_form_button_with_an_unknown_runbook_opens_no_form(chat: Chat, value: str):
    payload = payloads.click("ask-1", value, "U0DORA", channel="C0OPS", ts="1.1")
    await chat.send(payloads.interaction(payload))
    await chat.settle()
    assert chat.slack.views == {}
    assert len(chat.slack.whispers("U0DORA")) == 1


@pytest.mark.parametrize(
    ("command", "text", "means"),
    [
        ("/abusers", "clear lb1", "abusers clear lb1"),
        ("/scrub", "start nas1 tank", "zfs scrub start nas1 tank"),
        ("/bond", "", "bond"),
        ("/nfs-scheduler", "show nas1", "nfs scheduler show nas1"),
        ("/pingdom-refresh", "web1 because new", "csf pingdom refresh web1 because new"),
        ("/pingdom-refresh", "", "csf pingdom refresh"),
        ("/scrub", "help", "help zfs scrub"),
        ("/scrub", "help start", "help zfs scrub start"),
        ("/keyturn", "runs", "runs"),
    ],
)
def test_slash_command_alias_expands_to_its_runbook(command: str, text: str, means: str):
    assert expand_alias(command, text) == means


@pytest.mark.parametrize("alias", ALIASES.values(), ids=ALIASES)
def test_every_slash_command_alias_names_a_runbook(alias: Alias):
    assert [one for one in load_catalogue() if f"{one} ".startswith(f"{alias.runbook} ")]


async def test_slash_command_alias_shows_usage_or_opens_its_form(chat: Chat):
    answer = await chat.send(payloads.slash("", command="/scrub"))
    assert "zfs scrub start" in words(answer)
    await chat.send(payloads.slash("", command="/pingdom-refresh"))
    await chat.settle()
    [view] = chat.slack.views.values()
    assert "csf pingdom refresh" in str(view)


async def test_who_command_shows_own_roles_and_all_owners(chat: Chat):
    shown = words(await chat.type("who", "U0OLGA"))
    assert "Olga Owner  (olga): administrator, owner of the edge, the web servers" in shown
    assert "Owners" in shown


@pytest.mark.parametrize(
    ("text", "expected", "people"),
    [
        ("who lb1", "lb1 (haproxy) is in the edge, owned by", ["U0OLGA", "U0ADAM"]),
        ("who storage", "Its hosts: nas1", ["U0STAN"]),
        ("who <@U0DORA|dora>", "Dora Developer (dora): developer", []),
        ("who dora", "Dora Developer (dora): developer", []),
    ],
)
async def test_who_command_describes_hosts_areas_and_people(
    chat: Chat, text: str, expected: str, people: list[str]
):
    answer = await chat.type(text)
    assert expected in words(answer).replace("  ", " ")
    assert list_mentions(answer.json["blocks"]) == people


async def test_who_command_shows_who_is_on_duty(harness: Harness):
    add_calendar(harness.policies.path)
    async with open_chat(harness) as chat:
        answer = await chat.type("who")
        assert "On duty" in words(answer)
        assert "edge :  not known, so no one is on duty" in words(answer)
    facts = build_duties(edge=Duty(("adam",), ends_at=2 * 10**15, is_known=True, read_at=10**15))
    harness.policies = with_facts(harness.policies, harness.database, facts)
    async with open_chat(harness) as chat:
        answer = await chat.type("who")
        assert list_mentions(answer.json["blocks"])[-1] == "U0ADAM"
        assert "On duty edge :   until  ; read" in words(answer)


async def test_who_command_with_an_unknown_name_is_refused(chat: Chat):
    assert "No host, area or person is called" in (await chat.type("who knows")).text


async def test_changed_command_counts_the_changes_it_leaves_out(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    for host in ("lb1", "lb2"):
        await chat.type(f"toy set {host} lamp on", "U0OLGA")
    await chat.settle()
    assert "Left out" not in words(await chat.type("changed 5 minutes ago ±10m lb*"))
    monkeypatch.setattr(changed_command, "_MAX_EVENTS", 1)
    reply = words(await chat.type("changed 5 minutes ago ±10m lb*"))
    assert "Less likely and not shown: 1. The web pages list more." in reply


async def test_changed_command_lists_changes_around_a_time(chat: Chat):
    await chat.type("toy set lb1 lamp on", "U0OLGA")
    await chat.settle()
    reply = words(await chat.type("changed 5 minutes ago ±10m lb*"))
    assert "toy set lb1 lamp on" in reply
    assert "on lb*" in reply
    assert "approved by" not in reply
    assert "No known changes" in words(await chat.type("changed 2026-01-01 02:00"))
    for recent in ("changed", "changed 1h", "changed 1h lb1", "changed last 2 hours"):
        assert "toy set lb1 lamp on" in words(await chat.type(recent))
    for unclear in ("changed soon", "changed 02:00 ±x"):
        assert "ype " in (await chat.type(unclear)).text


async def test_changed_command_uses_the_time_zone_of_the_slack_profile(chat: Chat):
    await chat.type("toy set lb1 lamp on", "U0OLGA")
    await chat.settle()
    chat.slack.users["U0DORA"] = {"tz": "Pacific/Auckland"}
    there = datetime.now(ZoneInfo("Pacific/Auckland")).strftime("%Y-%m-%d %H:%M")
    reply = words(await chat.type(f"changed {there} ±10m lb*", "U0DORA"))
    assert "Pacific/Auckland on lb*" in reply
    assert "toy set lb1 lamp on" in reply
    # Where Slack names no zone that there is, it is UTC: half a day ahead, so it is still to come.
    chat.slack.users["U0STAN"] = {"tz": "Mars/Olympus"}
    assert "is in the future" in (await chat.type(f"changed {there} ±10m lb*", "U0STAN")).text


async def test_changed_command_refuses_times_ambiguous_at_a_clock_change(chat: Chat):
    chat.slack.users["U0DORA"] = {"tz": "Europe/Amsterdam"}
    twice = (await chat.type("changed 2025-10-26 02:30 ±10m", "U0DORA")).text
    assert "occurs twice: type 2025-10-26 02" in twice
    reply = words(await chat.type("changed 2025-10-26 02:30+01:00 ±10m", "U0DORA"))
    assert "Between 2025-10-26 02:20:00" in reply
    assert "clocks skip it" in (await chat.type("changed 2026-03-29 02:30", "U0DORA")).text
    for strange in ("changed 02:00 Mars/Olympus", "changed 2026-01-01 26:00"):
        assert "Between" not in (await chat.type(strange)).text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("approve", "The run number is missing: type /keyturn approve N PLAN"),
        ("deny", "The run number is missing: type /keyturn deny N REASON"),
        ("review", "The run number is missing: type /keyturn review N FINDINGS"),
        ("question", "The run number is missing: type /keyturn question N TEXT"),
        ("answer 7", "The answer is missing: type /keyturn answer 7 TEXT"),
        ("reassign 7", "The person is missing: type /keyturn reassign N PERSON because …"),
        ("undo", "The run number is missing: type /keyturn undo N"),
        ("withdraw", "The run number is missing: type /keyturn withdraw N"),
        ("accept", "The run number is missing: type /keyturn accept N PLAN"),
        ("counter", "The run number is missing: type /keyturn counter N field=value"),
        (
            "stop",
            "The run number is missing: type /keyturn stop N, or /keyturn stop all because …",
        ),
        ("ban", "The person is missing: type /keyturn ban PERSON because …"),
        ("can-i", "The runbook is missing: type /keyturn can-i WORDS HOST"),
        ("approve 7 PLAN", "'plan' is not a plan: copy its ten characters from Details."),
    ],
)
async def test_command_without_arguments_shows_its_usage(chat: Chat, text: str, message: str):
    assert (await chat.type(text)).text.startswith(message)


async def test_runs_command_counts_one_run_in_the_singular(chat: Chat):
    await chat.type("toy show lb1")
    assert (await chat.type("runs")).text == "The newest run"
    await chat.type("toy show lb2")
    assert (await chat.type("runs")).text == "The newest 2 runs"


async def test_card_names_the_freeze_that_holds_the_run_after_approval(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    assert "once approved it waits" not in chat.slack.card.words
    (chat.harness.policies.path / "freezes.yaml").write_text(
        'freezes:\n  - {name: the *sale*, areas: [edge], from: "2000-01-01 00:00",'
        ' until: "2200-01-01 00:00"}\n'
    )
    await chat.type("toy set lb1 lamp on")
    frozen = chat.slack.posted[-1].words
    assert "on hold after approval: the edge is frozen until <!date^7258118400^" in frozen


async def test_privately_command_answers_where_it_was_typed_and_keeps_it_in_direct_messages(
    chat: Chat,
):
    await chat.type("privately toy show lb1 because I wonder", "U0DORA")
    assert chat.run().runbook == "toy show"
    assert chat.run().state is State.SUCCEEDED
    [answer] = [posted for posted in chat.slack.posted if posted.channel == "C0OPS"]
    assert answer.seen_by == "U0DORA"
    assert "Succeeded: toy show lb1" in answer.words
    assert answer.buttons == {}
    others = [posted for posted in chat.slack.posted if posted is not answer]
    assert {posted.channel for posted in others} == {"D0DORA"}
    assert "requested" in chat.harness.list_entry_kinds()


async def test_private_check_typed_in_direct_messages_is_answered_by_its_card_only(chat: Chat):
    await chat.type("privately toy show lb1", "U0DORA", "D0DORA")
    assert {(one.channel, one.seen_by) for one in chat.slack.posted} == {("D0DORA", "")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("privately toy set lb1 lamp on", "Only checks can be private"),
        ("privately", "The check is missing: type /keyturn privately WORDS HOST"),
        ("privately toy sho lb1", "Did you mean: toy"),
        ("privately toy show", "Values are missing: type /keyturn privately toy show HOST"),
    ],
)
async def test_privately_command_refuses_changes_and_invalid_checks(
    chat: Chat, text: str, message: str
):
    assert message in (await chat.type(text, "U0DORA")).text
    assert chat.harness.list_entry_kinds() == []
    assert chat.slack.posted == []

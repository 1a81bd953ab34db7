"""What people type in plain words: the offered form carries the runbook, host and values."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bot.features import load_chat
from bot.model.request_form import RequestSyntaxError, find_runbook
from bot.model.run import RequestOrigin
from bot.slack.blocks import Message
from bot.slack.commands import SlackCommands
from bot.slack.features import ChatFeatures, ChatWords
from bot.slack.parsing import TypedCommand
from bot.slack.run_facts import SlackRunViewBuilder
from tests.bot.harness import Harness
from tests.bot.slack.typed_lines import LINES
from tests.policies import INVENTORY, TEAM
from tests.slack_emulator.blockkit import faults_of_blocks

ORIGIN = RequestOrigin("slack", "C0OPS", "U0DORA")
ALL_PERMITTED = """\
permit (principal, action == Action::"request", resource);
permit (principal, action == Action::"view", resource);
"""
HOSTS = """\
  mail1: {area: web}
  sw1: {area: edge, tags: [switch]}
  r1: {area: edge, tags: [bgp, router]}
  pdu1: {area: edge, tags: [pdu]}
  vpn1: {area: edge, tags: [vpn]}
"""
Request = tuple[str, frozenset[str]]


@pytest.fixture
def commands(harness: Harness) -> SlackCommands:
    directory = harness.policies.path
    known = INVENTORY.replace("tags: [nginx]", "tags: [nginx, csf]")
    known = known.replace("tags: [nfs, zfs]", "tags: [nfs, zfs, bmc]")
    (directory / "inventory.yaml").write_text(known + HOSTS)
    (directory / "policy.cedar").write_text(ALL_PERMITTED)
    views = SlackRunViewBuilder(harness.policies, team=TEAM, base_url="")
    return SlackCommands(harness.service, harness.database, harness.policies, views, load_chat())


def mention(commands: SlackCommands, harness: Harness, text: str, person: str = "dora") -> Message:
    policy = harness.policies.get_policy()
    return commands.answer_message(text, person=person, policy=policy, origin=ORIGIN)


def type_command(commands: SlackCommands, harness: Harness, text: str) -> Any:
    policy = harness.policies.get_policy()
    return commands.answer_command(text, person="dora", policy=policy, origin=ORIGIN)


def list_buttons(answer: Message) -> list[dict[str, Any]]:
    return [
        element
        for block in answer.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    ]


def list_forms(commands: SlackCommands, answer: Message) -> list[Request]:
    """Return the request that each offered form carries."""
    typed = [
        button["value"]
        for button in list_buttons(answer)
        if button["action_id"].startswith("ask-") and not button["value"].startswith("anything")
    ]
    forms = [commands.get_typed_form(one) for one in typed]
    return [
        (
            form.runbook.words,
            frozenset(f"{name}={value}" for name, value in form.values.items() if name != BECAUSE),
        )
        for form in forms
    ]


BECAUSE = "because"


def split_request(text: str) -> Request:
    words = text.split()
    values = frozenset(word for word in words if "=" in word)
    return " ".join(word for word in words if "=" not in word), values


# --- what keyboards, people and Slack make of a line ---


def _change_longest_word(line: str, expected: str, change: Callable[[str], str]) -> str:
    """Change the longest word that is no value."""
    values = {word.partition("=")[2] for word in expected.split() if "=" in word}
    words = [word for word in line.split() if word.isalpha() and word not in values]
    longest = max(words, key=len)
    return line.replace(longest, change(longest), 1) if len(longest) > 5 else line


def swap_letters(line: str, expected: str) -> str:
    return _change_longest_word(
        line, expected, lambda word: f"{word[:2]}{word[3]}{word[2]}{word[4:]}"
    )


def drop_letter(line: str, expected: str) -> str:
    return _change_longest_word(line, expected, lambda word: f"{word[:3]}{word[4:]}")


def double_letter(line: str, expected: str) -> str:
    return _change_longest_word(line, expected, lambda word: f"{word[:3]}{word[2:]}")


def end_sentence(line: str, expected: str) -> str:
    del expected
    return f"{line[:1].upper()}{line[1:]}."


def shout_host(line: str, expected: str) -> str:
    host = _get_host(expected)
    return line.replace(host, host.upper())


def link_host(line: str, expected: str) -> str:
    host = _get_host(expected)
    return line.replace(host, f"<http://{host}|{host}>")


def name_host_in_full(line: str, expected: str) -> str:
    host = _get_host(expected)
    name = f"{host}.example.com"
    return line.replace(host, f"<http://{name}|{name}>")


def format_host(line: str, expected: str) -> str:
    host = _get_host(expected)
    return line.replace(host, f"*`{host}`*")


def quote_host(line: str, expected: str) -> str:
    host = _get_host(expected)
    return line.replace(host, f"“{host}”")


def hyphenate_host(line: str, expected: str) -> str:
    host = _get_host(expected)
    return line.replace(host, re.sub(r"(\d)", r"-\1", host))


def give_reason(line: str, expected: str) -> str:
    del expected
    return f"{line}, because a customer called"


def give_reason_behind_dash(line: str, expected: str) -> str:
    del expected
    return f"{line}—because a customer called"


def misspell_because(line: str, expected: str) -> str:
    del expected
    return f"{line} becuase a customer called"


def ask_politely(line: str, expected: str) -> str:
    del expected
    return f"hey, could you please {line} for me?"


def address_bot(line: str, expected: str) -> str:
    del expected
    return f"<@U0KEYTURN>: {line}"


def _get_host(expected: str) -> str:
    return expected.partition("host=")[2].split()[0]


CHANGES = (
    *(swap_letters, drop_letter, double_letter, end_sentence, shout_host, link_host),
    *(name_host_in_full, format_host, quote_host, hyphenate_host, give_reason),
    *(give_reason_behind_dash, misspell_because, ask_politely, address_bot),
)
GENERATED = [
    (CHANGES[(n + shift) % len(CHANGES)](line, expected), expected)
    for n, (line, expected) in enumerate(LINES)
    for shift in (0, 7)
]


def test_two_hundred_lines_are_answered_with_the_form_that_they_mean(
    commands: SlackCommands, harness: Harness
):
    lines = [*LINES, *GENERATED]
    assert len(set(lines)) >= 200
    wrong: list[Any] = []
    for line, expected in lines:
        answer = mention(commands, harness, line)
        assert faults_of_blocks([*answer.blocks], surface="message") == []
        forms = list_forms(commands, answer)
        if forms[:1] != [split_request(expected)]:
            wrong.append((line, expected, forms))
    assert wrong == []
    assert harness.list_entry_kinds() == []


def test_plain_slash_command_offers_the_form_and_requests_nothing(
    commands: SlackCommands, harness: Harness
):
    lines = [one for one in LINES if not _is_runbook(one[0])]
    assert len(lines) > 90
    for line, expected in lines:
        answer = type_command(commands, harness, line)
        assert isinstance(answer, Message), line
        assert list_forms(commands, answer)[:1] == [split_request(expected)], line
    assert harness.list_entry_kinds() == []


def _is_runbook(line: str) -> bool:
    try:
        find_runbook(shlex.split(line))
    except RequestSyntaxError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("abusers clear lb1 198.51.100.35, because comma", "198.51.100.35"),
        ("abusers clear lb1 203.0.113.9.", "203.0.113.9"),
        ("ABUSERS CLEAR LB1 203.0.113.9", "203.0.113.9"),
        ("abusers clear lb1 203.0.113.9 – because x", "203.0.113.9"),
        ("abusers clear lb1 203.0.113.9—because x", "203.0.113.9"),
        ("abusers clear lb1, 203.0.113.9", "203.0.113.9"),
    ],
)
def test_complete_command_with_punctuation_is_requested_as_meant(
    commands: SlackCommands, harness: Harness, text: str, values: str
):
    assert type_command(commands, harness, text) is None
    run = harness.get_run(1)
    assert (run.host, run.values["address"], run.values["table"]) == ("lb1", values, "http")


def test_reason_is_in_the_offered_form(commands: SlackCommands, harness: Harness):
    for text in (
        "unblock 203.0.113.9 on lb1 becuase of 4711",
        "unblock 203.0.113.9 lb1 - of 4711",
    ):
        answer = mention(commands, harness, text)
        form = commands.get_typed_form(list_buttons(answer)[0]["value"])
        assert form.values[BECAUSE] == "of 4711"


@pytest.mark.parametrize("text", ["LB1", "<http://lb1|lb1>", "lb1.", "<@U0KEYTURN> lb1?"])
def test_host_alone_is_answered_with_what_can_be_done_there(
    commands: SlackCommands, harness: Harness, text: str
):
    values = [button["value"] for button in list_buttons(mention(commands, harness, text))]
    assert values == ["anything lb1", "changed 24h lb1", "runs lb1", "who lb1"]


def test_invalid_value_is_answered_with_a_form_that_has_the_others(
    commands: SlackCommands, harness: Harness
):
    for text in ("abusers clear lb1 203.0.113.999", "abusers clear LB1 203.0.113 because x"):
        for answer in (mention(commands, harness, text), type_command(commands, harness, text)):
            assert list_forms(commands, answer) == [("abusers clear", frozenset({"host=lb1"}))]


@pytest.mark.parametrize("text", ["qqq", "what is the meaning of life", "42", "🙂", "'"])
def test_text_that_means_nothing_is_answered_with_the_search(
    commands: SlackCommands, harness: Harness, text: str
):
    values = [button["value"] for button in list_buttons(mention(commands, harness, text))]
    assert values[0] == "anything"


def restrict(harness: Harness, *rules: str) -> None:
    (harness.policies.path / "policy.cedar").write_text("".join((ALL_PERMITTED, *rules)))


NO_CLEAR = (
    'forbid (principal, action == Action::"request", resource)\n'
    'when { context.runbook like "abusers *clear" };\n'
)


def test_runbook_that_the_person_may_not_use_is_named_but_not_offered(
    commands: SlackCommands, harness: Harness
):
    restrict(harness, NO_CLEAR)
    answer = mention(commands, harness, "unblock 203.0.113.9 on lb1")
    assert list_forms(commands, answer) == []
    assert "abusers clear on lb1 fits, but the policy does not allow you" in answer.text
    assert "Olga Owner" in answer.text
    assert "can-i abusers clear lb1" in [button["value"] for button in list_buttons(answer)]


def test_runbook_whose_runs_the_person_may_not_view_is_not_named(
    commands: SlackCommands, harness: Harness
):
    hidden = 'forbid (principal, action == Action::"view", resource == Host::"lb1");\n'
    restrict(harness, NO_CLEAR, hidden)
    answer = mention(commands, harness, "unblock 203.0.113.9 on lb1")
    assert list_forms(commands, answer) == []
    assert "abusers" not in answer.text


def test_reading_command_in_a_message_is_answered_and_others_only_suggested(
    commands: SlackCommands, harness: Harness
):
    assert mention(commands, harness, "<@U0KEYTURN>, runs lb1").text == "No run matches."
    for text in ("ban dora because x", "approve 1 0123456789", "stop all because x"):
        assert f"Type /keyturn {text}" in mention(commands, harness, text).text
    assert harness.list_entry_kinds() == []


def test_word_of_a_feature_that_only_shows_is_answered_in_a_message(harness: Harness):
    views = SlackRunViewBuilder(harness.policies, team=TEAM, base_url="")

    def show(_: TypedCommand) -> Message:
        return Message("The moon is full", [])

    moon = ChatWords((("moon", "the moon"),), lambda _service, _database: {"moon": show})
    core, reading, acting = (
        SlackCommands(harness.service, harness.database, harness.policies, views, features)
        for features in (
            ChatFeatures(),
            ChatFeatures(words=[replace(moon, showing=frozenset({"moon"}))]),
            ChatFeatures(words=[moon]),
        )
    )
    assert mention(reading, harness, "moon").text == "The moon is full"
    assert mention(reading, harness, "moon 3").text == "The moon is full"
    for commands, typed in ((core, "moon"), (acting, "moon"), (reading, "moon lb1")):
        assert "full" not in mention(commands, harness, typed).text
        assert not commands.is_reading(typed)


def list_first_forms(commands: SlackCommands, harness: Harness, texts: Sequence[str]) -> list[str]:
    return [list_forms(commands, mention(commands, harness, text))[0][0] for text in texts]


def test_another_name_of_a_runbook_finds_it_as_its_words_do(
    commands: SlackCommands, harness: Harness
):
    texts = ("unban 203.0.113.9 web1", "scrub nas1", "lacp nas1", "iostat nas1")
    assert list_first_forms(commands, harness, texts) == [
        *("csf unblock", "zfs scrub start", "bond check", "disk io")
    ]

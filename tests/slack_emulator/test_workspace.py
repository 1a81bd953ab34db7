"""Expiring ids, timestamps and input rules of the emulator's workspace."""

import asyncio

import pytest

from tests.slack_emulator.change_sequence import ChangeSequence
from tests.slack_emulator.expiring_ids import ResponseTarget, ResponseUrls, Triggers
from tests.slack_emulator.form_values import complaints, read_state
from tests.slack_emulator.message_encoding import (
    encode_command_text,
    encode_message,
    parse_slash_command,
)
from tests.slack_emulator.page_client import run
from tests.slack_emulator.payloads import Typed
from tests.slack_emulator.showcase import DESK, DORA, OPS
from tests.slack_emulator.wire import SlackError
from tests.slack_emulator.workspace import Workspace


class Clock:
    moment = 1_763_722_800.0

    def __call__(self) -> float:
        return self.moment


def test_trigger_id_expires_after_three_seconds() -> None:
    clock = Clock()
    triggers = Triggers(clock)
    early, late = triggers.issue("U1"), triggers.issue("U1")
    clock.moment += 2.9
    assert triggers.redeem(early) == "U1"
    clock.moment += 0.2
    with pytest.raises(SlackError, match="expired_trigger_id"):
        triggers.redeem(late)


def test_response_url_expires_after_thirty_minutes() -> None:
    clock = Clock()
    urls = ResponseUrls(clock)
    key = urls.issue(ResponseTarget("C1", "U1"))
    clock.moment += 30 * 60
    assert urls.use(key).channel == "C1"
    clock.moment += 1
    with pytest.raises(SlackError, match="expired_url"):
        urls.use(key)


def test_message_timestamps_increase_when_the_clock_goes_back() -> None:
    clock = Clock()
    workspace = Workspace([DORA], [OPS, DESK], now=clock)
    first, second = workspace.next_ts(), workspace.next_ts()
    clock.moment -= 100
    third = workspace.next_ts()
    assert [first, second, third] == [
        "1763722800.000000",
        "1763722800.000100",
        "1763722800.000200",
    ]


def test_change_sequence_wakes_a_waiter_from_another_thread() -> None:
    async def scene() -> int:
        changes = ChangeSequence()
        waiting = asyncio.create_task(changes.wait_beyond(0, within=10))
        await asyncio.sleep(0)
        await asyncio.to_thread(changes.advance)
        return await waiting

    assert run(scene()) == 1


def test_change_sequence_wait_times_out_with_the_old_number() -> None:
    assert run(ChangeSequence().wait_beyond(0, within=0.01)) == 0


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("/keyturn help me", Typed("/keyturn", "help me")),
        ("  /keyturn  ", Typed("/keyturn", "")),
        ("/keyturn a\nb", Typed("/keyturn", "a\nb")),
        ("hello /keyturn", None),
        ("/ keyturn", None),
        ("/etc/passwd", None),
    ],
)
def test_slash_commands_are_distinguished_from_messages(typed: str, command: Typed | None) -> None:
    assert parse_slash_command(typed) == command


def test_typed_names_become_ids_and_other_text_is_escaped() -> None:
    people, channels = {"bob": "U1"}, {"ops": "C1"}
    typed = "@bob @eve bob@bob.example #ops #1 <b> & https://a.example/?x=1&y=@bob"
    assert encode_message(typed, people, channels) == (
        "<@U1> @eve bob@bob.example <#C1|ops> #1 &lt;b&gt; &amp; "
        "<https://a.example/?x=1&amp;y=@bob>"
    )
    assert encode_command_text("@Bob in #OPS", people, channels) == "<@U1|bob> in <#C1|ops>"


def _input_blocks(kind: str, **more: object) -> list[dict[str, object]]:
    element = {"type": kind, "action_id": "a", **more}
    return [{"type": "input", "block_id": "b", "element": element, "label": {}}]


@pytest.mark.parametrize(
    ("kind", "more", "good", "bad"),
    [
        ("plain_text_input", {"min_length": 2}, "ab", "a"),
        ("plain_text_input", {"max_length": 2}, "ab", "abc"),
        ("number_input", {"is_decimal_allowed": False}, "-7", "1.5"),
        ("number_input", {"is_decimal_allowed": True, "max_value": "2"}, "1.5", "2.5"),
        ("number_input", {"is_decimal_allowed": True, "min_value": "2"}, "2", "NaN"),
        ("email_text_input", {}, "a@b.example", "a"),
        ("url_text_input", {}, "https://a.example", "javascript:alert(1)"),
        ("plain_text_input", {}, "x", ""),
    ],
)
def test_modal_input_is_validated_as_slack_does(
    kind: str, more: dict[str, object], good: str, bad: str
) -> None:
    blocks = _input_blocks(kind, **more)
    assert complaints(blocks, read_state(blocks, {"v/b/a": [good]}, {})) == {}
    assert complaints(blocks, read_state(blocks, {"v/b/a": [bad]}, {})).keys() == {"b"}


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("users_select", ["U1"], {"selected_user": "U1"}),
        ("multi_users_select", ["U1", "U2"], {"selected_users": ["U1", "U2"]}),
        ("datepicker", ["2025-11-21"], {"selected_date": "2025-11-21"}),
        ("datetimepicker", ["2025-11-21T11:00"], {"selected_date_time": 1_763_722_800}),
        ("datetimepicker", ["soon"], {"selected_date_time": None}),
        ("static_select", ["x"], {"selected_option": {"value": "x"}}),
        ("static_select", ["y"], {"selected_option": None}),
        ("checkboxes", ["x", "y"], {"selected_options": [{"value": "x"}]}),
    ],
)
def test_modal_input_values_have_the_state_format_of_slack(
    kind: str, given: list[str], value: dict[str, object]
) -> None:
    blocks = _input_blocks(kind, options=[{"value": "x"}])
    state = read_state(blocks, {"v/b/a": given}, {})
    assert state == {"b": {"a": {"type": kind, **value}}}

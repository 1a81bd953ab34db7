from typing import Any

import pytest

from tests.slack_emulator.blockkit import faults_of_blocks, faults_of_view, with_ids

Payload = dict[str, Any]


def plain(length: int = 1) -> Payload:
    return {"type": "plain_text", "text": "x" * length}


def mrkdwn(length: int = 1) -> Payload:
    return {"type": "mrkdwn", "text": "x" * length}


def options(count: int, **more: Any) -> list[Payload]:
    return [{"text": plain(), "value": str(index), **more} for index in range(count)]


def button(**more: Any) -> Payload:
    return {"type": "button", "text": plain(), **more}


def actions(*elements: Payload) -> Payload:
    return {"type": "actions", "elements": list(elements)}


def input_block(element: Payload, **more: Any) -> Payload:
    return {"type": "input", "label": plain(), "element": element, **more}


def confirm(**more: Any) -> Payload:
    return {"title": plain(), "text": plain(), "confirm": plain(), "deny": plain(), **more}


def select(count: int, **more: Any) -> Payload:
    return {"type": "static_select", "action_id": "a", "options": options(count), **more}


def section(length: int) -> Payload:
    return {"type": "section", "text": mrkdwn(length)}


def table(rows: int, columns: int, length: int = 1) -> Payload:
    cell = {"type": "raw_text", "text": "x" * length}
    return {"type": "table", "rows": [[cell] * columns] * rows}


AT = "https://a.example/"
X = {"type": "text", "text": "x"}

# What just fits, and what is one too many.
LIMITS: list[tuple[str, Payload, Payload]] = [
    ("section text", section(3000), section(3001)),
    (
        "fields",
        {"type": "section", "fields": [mrkdwn(2000)] * 10},
        {"type": "section", "fields": [mrkdwn()] * 11},
    ),
    (
        "field text",
        {"type": "section", "fields": [mrkdwn(2000)]},
        {"type": "section", "fields": [mrkdwn(2001)]},
    ),
    ("header", {"type": "header", "text": plain(150)}, {"type": "header", "text": plain(151)}),
    ("header kind", {"type": "header", "text": plain()}, {"type": "header", "text": mrkdwn()}),
    ("block_id", {**section(1), "block_id": "b" * 255}, {**section(1), "block_id": "b" * 256}),
    ("action_id", actions(button(action_id="a" * 255)), actions(button(action_id="a" * 256))),
    ("button text", actions(button(text=plain(75))), actions(button(text=plain(76)))),
    ("button value", actions(button(value="v" * 2000)), actions(button(value="v" * 2001))),
    (
        "button url",
        actions(button(url=AT + "u" * (3000 - len(AT)))),
        actions(button(url=AT + "u" * (3001 - len(AT)))),
    ),
    (
        "accessibility label",
        actions(button(accessibility_label="l" * 75)),
        actions(button(accessibility_label="l" * 76)),
    ),
    ("button style", actions(button(style="danger")), actions(button(style="pretty"))),
    ("actions", actions(*[button()] * 25), actions(*[button()] * 26)),
    (
        "context",
        {"type": "context", "elements": [mrkdwn()] * 10},
        {"type": "context", "elements": [mrkdwn()] * 11},
    ),
    ("select options", actions(select(100)), actions(select(101))),
    (
        "radio options",
        actions({"type": "radio_buttons", "options": options(10)}),
        actions({"type": "radio_buttons", "options": options(11)}),
    ),
    (
        "checkbox options",
        actions({"type": "checkboxes", "options": options(10)}),
        actions({"type": "checkboxes", "options": options(11)}),
    ),
    (
        "overflow options",
        actions({"type": "overflow", "options": options(5)}),
        actions({"type": "overflow", "options": options(6)}),
    ),
    (
        "option text",
        actions(select(1, options=[{"text": plain(75), "value": "v"}])),
        actions(select(1, options=[{"text": plain(76), "value": "v"}])),
    ),
    (
        "option value",
        actions(select(1, options=[{"text": plain(), "value": "v" * 75}])),
        actions(select(1, options=[{"text": plain(), "value": "v" * 76}])),
    ),
    (
        "option description",
        actions(select(1, options=options(1, description=plain(75)))),
        actions(select(1, options=options(1, description=plain(76)))),
    ),
    (
        "initial option",
        actions(select(2, initial_option=options(1)[0])),
        actions(select(2, initial_option={"text": plain(), "value": "other"})),
    ),
    (
        "confirm title",
        actions(button(confirm=confirm(title=plain(100)))),
        actions(button(confirm=confirm(title=plain(101)))),
    ),
    (
        "confirm text",
        actions(button(confirm=confirm(text=plain(300)))),
        actions(button(confirm=confirm(text=plain(301)))),
    ),
    (
        "confirm button",
        actions(button(confirm=confirm(confirm=plain(30)))),
        actions(button(confirm=confirm(deny=plain(31)))),
    ),
    (
        "confirm complete",
        actions(button(confirm=confirm())),
        actions(button(confirm={"title": plain(), "text": plain(), "confirm": plain()})),
    ),
    (
        "input label",
        input_block(select(1), label=plain(2000)),
        input_block(select(1), label=plain(2001)),
    ),
    (
        "input hint",
        input_block(select(1), hint=plain(2000)),
        input_block(select(1), hint=plain(2001)),
    ),
    (
        "placeholder",
        input_block(select(1, placeholder=plain(150))),
        input_block(select(1, placeholder=plain(151))),
    ),
    (
        "max_length",
        input_block({"type": "plain_text_input", "max_length": 3000}),
        input_block({"type": "plain_text_input", "max_length": 3001}),
    ),
    (
        "image url",
        {"type": "image", "image_url": AT + "u" * (3000 - len(AT)), "alt_text": ""},
        {"type": "image", "image_url": AT + "u" * (3001 - len(AT)), "alt_text": ""},
    ),
    (
        "image alt text",
        {"type": "image", "image_url": AT, "alt_text": "a" * 2000},
        {"type": "image", "image_url": AT, "alt_text": "a" * 2001},
    ),
    (
        "image title",
        {"type": "image", "image_url": AT, "alt_text": "a", "title": plain(2000)},
        {"type": "image", "image_url": AT, "alt_text": "a", "title": plain(2001)},
    ),
    (
        "markdown",
        {"type": "markdown", "text": "x" * 12_000},
        {"type": "markdown", "text": "x" * 12_001},
    ),
    ("table rows", table(100, 20), table(101, 20)),
    ("table columns", table(1, 20), table(1, 21)),
    ("table characters", table(100, 20, 5), table(100, 20, 6)),
    ("empty text", section(1), section(0)),
    ("unknown key", section(1), {**section(1), "txt": 1}),
    ("unknown type", section(1), {"type": "sektion"}),
    ("no type", section(1), {"text": plain()}),
    ("neither text nor fields", section(1), {"type": "section"}),
    (
        "options or groups",
        actions(select(1)),
        actions({"type": "static_select", "action_id": "a"}),
    ),
    (
        "rich text kind",
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [X]}]},
        {"type": "rich_text", "elements": [{"type": "rich_text_poem", "elements": [X]}]},
    ),
]


@pytest.mark.parametrize(("name", "fits", "breaks"), LIMITS, ids=[row[0] for row in LIMITS])
def test_block_at_its_limit_is_valid_and_one_more_is_not(
    name: str, fits: Payload, breaks: Payload
) -> None:
    assert faults_of_blocks([fits], surface="message") == [], name
    faults = faults_of_blocks([breaks], surface="message")
    assert faults, name
    assert all("[json-pointer:/blocks" in fault for fault in faults)


def test_message_holds_50_blocks_and_a_modal_100() -> None:
    assert not faults_of_blocks([section(1)] * 50, surface="message")
    assert faults_of_blocks([section(1)] * 51, surface="message")
    assert not faults_of_blocks([section(1)] * 100, surface="modal")
    assert faults_of_blocks([section(1)] * 101, surface="modal")


def test_duplicate_block_id_or_action_id_is_refused() -> None:
    twice = [{**section(1), "block_id": "same"}] * 2
    assert "block_id same is used twice" in faults_of_blocks(twice, surface="message")[0]
    pair = actions(button(action_id="same"), button(action_id="same"))
    assert "action_id same is used twice" in faults_of_blocks([pair], surface="message")[0]


def test_message_holds_one_table_and_limits_markdown_in_total() -> None:
    assert faults_of_blocks([table(1, 1), table(1, 1)], surface="message")
    half = {"type": "markdown", "text": "x" * 6001}
    assert faults_of_blocks([half, half], surface="message")


@pytest.mark.parametrize("kind", ["markdown", "table", "context_actions", "data_table"])
def test_message_only_block_is_refused_in_a_view(kind: str) -> None:
    block = {"type": kind, "text": "x", "rows": [[{"type": "raw_text", "text": "x"}]]}
    faults = faults_of_blocks([block], surface="home")
    assert any("not supported in a home" in fault for fault in faults)


def modal(**more: Any) -> Payload:
    return {"type": "modal", "title": plain(24), "blocks": [section(1)], **more}


VIEWS: list[tuple[str, Payload, Payload]] = [
    ("title", modal(), modal(title=plain(25))),
    ("close", modal(close=plain(24)), modal(close=plain(25))),
    ("submit", modal(submit=plain(24)), modal(submit=plain(25))),
    ("metadata", modal(private_metadata="m" * 3000), modal(private_metadata="m" * 3001)),
    ("callback", modal(callback_id="c" * 255), modal(callback_id="c" * 256)),
    ("external id", modal(external_id="e" * 255), modal(external_id="e" * 256)),
    ("kind", modal(), {"type": "window", "blocks": []}),
    ("unknown key", modal(), modal(colour="red")),
    ("title needed", modal(), {"type": "modal", "blocks": []}),
    (
        "submit needed",
        modal(blocks=[input_block(select(1))], submit=plain()),
        modal(blocks=[input_block(select(1))]),
    ),
    (
        "size",
        modal(blocks=[section(2400)] * 100),
        modal(blocks=[section(2600)] * 100),
    ),
]


@pytest.mark.parametrize(("name", "fits", "breaks"), VIEWS, ids=[row[0] for row in VIEWS])
def test_view_at_its_limit_is_valid_and_one_more_is_not(
    name: str, fits: Payload, breaks: Payload
) -> None:
    assert faults_of_view(fits) == [], name
    assert faults_of_view(breaks), name


def test_missing_block_and_action_ids_are_generated() -> None:
    block, named = with_ids([actions(button()), {**section(1), "block_id": "mine"}])
    assert block["block_id"]
    assert block["elements"][0]["action_id"]
    assert named["block_id"] == "mine"


@pytest.mark.parametrize(
    "element",
    [
        None,
        {"type": "rich_text_section", "elements": []},
        {"type": "rich_text_section", "elements": [{"type": "text", "text": ""}]},
        {"type": "rich_text_preformatted", "elements": []},
        {"type": "rich_text_list", "style": "bullet", "elements": []},
        {"type": "rich_text_section", "elements": [{"type": "link", "url": "example.com"}]},
    ],
)
def test_empty_rich_text_is_refused(element: Payload | None) -> None:
    block = {"type": "rich_text", "elements": [element] if element else []}
    assert faults_of_blocks([block], surface="message") != []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "/runs/1",
        "https://",
        "javascript:alert(1)",
        "https://a b/",
        "https://[/",
    ],
)
def test_button_with_an_invalid_url_is_refused(url: str) -> None:
    faults = faults_of_blocks([actions(button(url=url))], surface="message")
    assert any("/elements/0/url" in one for one in faults)


@pytest.mark.parametrize(
    "url", ["https://keyturn.example.com/runs/1?a=b", "http://10.0.0.1:8080/"]
)
def test_button_with_a_full_url_is_valid(url: str) -> None:
    assert faults_of_blocks([actions(button(url=url))], surface="message") == []

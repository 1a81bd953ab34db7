"""Blocks and views judged as Slack judges them: kinds, required fields, unknown keys, limits.

Source: https://docs.slack.dev/reference/block-kit/blocks
"""

import secrets
from collections.abc import Iterator, Sequence

from tests.slack_emulator.elements import (
    ACTIONS,
    CHOICES,
    CONTEXT_ACTIONS,
    ID,
    IMAGE,
    SELECTS,
    TYPED_IN,
    address,
    any_text,
    element,
    plain,
)
from tests.slack_emulator.shapes import (
    Needed,
    Rule,
    Shape,
    anything,
    boolean,
    fault,
    listed,
    number,
    one_of,
    shaped,
    string,
    typed,
)
from tests.slack_emulator.wire import Json, compact, is_record, items, record, records, text

MOST_IN_MESSAGE = 50
MOST_IN_VIEW = 100
MOST_MARKDOWN = 12_000
MOST_TABLE = 10_000
MOST_VIEW_BYTES = 250_000

_STYLE = shaped(dict.fromkeys(("bold", "italic", "strike", "code", "underline"), boolean))

_INLINE: dict[str, Shape] = {
    "text": {"text": Needed(string(40_000, 1)), "style": _STYLE},
    "link": {
        "url": Needed(address),
        "text": string(40_000, 1),
        "unsafe": boolean,
        "style": _STYLE,
    },
    "emoji": {"name": Needed(ID), "unicode": ID, "style": _STYLE, "skin_tone": anything},
    "user": {"user_id": Needed(ID), "style": _STYLE},
    "channel": {"channel_id": Needed(ID), "style": _STYLE},
    "usergroup": {"usergroup_id": Needed(ID), "style": _STYLE},
    "broadcast": {"range": Needed(one_of("here", "channel", "everyone")), "style": _STYLE},
    "date": {
        "timestamp": Needed(number(0, 9_999_999_999)),
        "format": Needed(ID),
        "url": address,
        "fallback": string(3000),
        "style": _STYLE,
    },
    "color": {"value": Needed(ID)},
}

_INLINES = Needed(listed(typed(_INLINE), 5000, 1))
_SECTION: Shape = {"elements": _INLINES}
_RICH: dict[str, Shape] = {
    "rich_text_section": _SECTION,
    "rich_text_preformatted": {**_SECTION, "border": anything, "language": ID},
    "rich_text_quote": {**_SECTION, "border": anything},
    "rich_text_list": {
        "style": Needed(one_of("bullet", "ordered")),
        "elements": Needed(listed(typed({"rich_text_section": _SECTION}), 5000, 1)),
        "indent": number(0, 8),
        "offset": number(0, 10_000),
        "border": anything,
    },
}
_RICH_TEXT: Shape = {"block_id": ID, "elements": Needed(listed(typed(_RICH), 5000, 1))}

_CELL = typed({"raw_text": {"text": Needed(string(10_000, 1))}, "rich_text": _RICH_TEXT})

_CONTEXT = typed(
    {
        "image": IMAGE,
        "plain_text": {"text": Needed(string(3000, 1)), "emoji": boolean},
        "mrkdwn": {"text": Needed(string(3000, 1)), "verbatim": boolean},
    }
)

_ACCESSORIES: dict[str, Shape] = {**ACTIONS, "image": IMAGE}
_INPUTS: dict[str, Shape] = {**SELECTS, **CHOICES, **TYPED_IN}


def _section(value: object, pointer: str) -> Iterator[str]:
    yield from shaped(
        {
            "type": anything,
            "block_id": ID,
            "text": any_text(3000),
            "fields": listed(any_text(2000), 10, 1),
            "accessory": element(_ACCESSORIES),
            "expand": boolean,
        }
    )(value, pointer)
    if not {"text", "fields"} & record(value).keys():
        yield fault("must have text or fields", pointer)


_BLOCKS: dict[str, Rule] = {
    "section": _section,
    "divider": typed({"divider": {"block_id": ID}}),
    "header": typed({"header": {"block_id": ID, "text": Needed(plain(150))}}),
    "context": typed({"context": {"block_id": ID, "elements": Needed(listed(_CONTEXT, 10, 1))}}),
    "actions": typed(
        {"actions": {"block_id": ID, "elements": Needed(listed(element(ACTIONS), 25, 1))}}
    ),
    "context_actions": typed(
        {
            "context_actions": {
                "block_id": ID,
                "elements": Needed(listed(element(CONTEXT_ACTIONS), 5, 1)),
            }
        }
    ),
    "input": typed(
        {
            "input": {
                "block_id": ID,
                "label": Needed(plain(2000)),
                "element": Needed(element(_INPUTS)),
                "hint": plain(2000),
                "optional": boolean,
                "dispatch_action": boolean,
            }
        }
    ),
    "image": typed({"image": {**IMAGE, "block_id": ID, "title": plain(2000)}}),
    "rich_text": typed({"rich_text": _RICH_TEXT}),
    "markdown": typed({"markdown": {"block_id": ID, "text": Needed(string(MOST_MARKDOWN, 1))}}),
    "table": typed(
        {
            "table": {
                "block_id": ID,
                "rows": Needed(listed(listed(_CELL, 20, 1), 100, 1)),
                "column_settings": listed(anything, 20),
            }
        }
    ),
    "alert": typed(
        {
            "alert": {
                "block_id": ID,
                "text": Needed(any_text(200)),
                "level": one_of("default", "info", "warning", "error", "success"),
            }
        }
    ),
}

# Known to Slack, taken without a closer look, and drawn as "unsupported block".
_UNREAD = frozenset(
    {"video", "file", "plan", "task_card", "card", "carousel", "container", "call"}
    | {"data_table", "data_visualization"}
)

_ONLY_IN_MESSAGES = frozenset(
    {"markdown", "table", "context_actions", "plan", "task_card", "data_table", "container"}
    | {"carousel", "data_visualization"}
)


def faults_of_blocks(blocks: object, *, surface: str) -> list[str]:
    """Return what Slack would find wrong. surface: `message`, `modal` or `home`."""
    most = MOST_IN_MESSAGE if surface == "message" else MOST_IN_VIEW
    pointer = "/blocks" if surface == "message" else "/view/blocks"
    faults = list(listed(_block, most)(blocks, pointer))
    for index, block in enumerate(records(blocks)):
        kind = text(block.get("type"))
        misplaced = kind in _ONLY_IN_MESSAGES and surface != "message"
        if misplaced or (kind == "alert" and surface != "modal"):
            faults.append(fault(f"{kind} is not supported in a {surface}", f"{pointer}/{index}"))
    return [*faults, *_doubles(records(blocks), pointer), *_too_much(records(blocks), pointer)]


def _block(value: object, pointer: str) -> Iterator[str]:
    kind = text(record(value).get("type"))
    if kind in _UNREAD:
        return
    rule = _BLOCKS.get(kind)
    if rule is None:
        yield fault(f"unsupported type: {kind or None}", f"{pointer}/type")
    else:
        yield from rule(value, pointer)


def _doubles(blocks: Sequence[Json], pointer: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, block in enumerate(blocks):
        block_id = text(block.get("block_id"))
        if block_id and block_id in seen:
            yield fault(f"block_id {block_id} is used twice", f"{pointer}/{index}/block_id")
        seen.add(block_id)
        ids = [text(inner.get("action_id")) for inner in elements_of(block)]
        for action_id in sorted({one for one in ids if one and ids.count(one) > 1}):
            yield fault(f"action_id {action_id} is used twice", f"{pointer}/{index}/elements")


def _too_much(blocks: Sequence[Json], pointer: str) -> Iterator[str]:
    markdown = sum(len(text(b.get("text"))) for b in blocks if b.get("type") == "markdown")
    if markdown > MOST_MARKDOWN:
        yield fault(f"markdown blocks hold more than {MOST_MARKDOWN} characters", pointer)
    tables = [block for block in blocks if block.get("type") == "table"]
    if len(tables) > 1:
        yield fault("only one table is allowed in a message", pointer)
    if sum(len(_cell_text(table)) for table in tables) > MOST_TABLE:
        yield fault(f"the table holds more than {MOST_TABLE} characters", pointer)


def _cell_text(value: object) -> str:
    if is_record(value):
        return "".join(
            text(inner) if key == "text" else _cell_text(inner) for key, inner in value.items()
        )
    return "".join(_cell_text(inner) for inner in items(value))


def faults_of_view(view: Json) -> list[str]:
    """Return what Slack would find wrong with a modal or a Home tab."""
    kind = text(view.get("type"))
    if kind not in ("modal", "home"):
        return [fault("must be one of: modal, home", "/view/type")]
    faults = list(shaped(_MODAL if kind == "modal" else _HOME)(view, "/view"))
    faults += faults_of_blocks(view.get("blocks"), surface=kind)
    asks = any(block.get("type") == "input" for block in records(view.get("blocks")))
    if kind == "modal" and asks and not view.get("submit"):
        faults.append(fault("submit is required when there is an input block", "/view"))
    if len(compact(view).encode()) > MOST_VIEW_BYTES:
        faults.append(fault("the view is larger than 250 KB", "/view"))
    return faults


_VIEW: Shape = {
    "type": Needed(anything),
    "blocks": Needed(anything),
    "private_metadata": string(3000),
    "callback_id": string(255),
    "external_id": string(255),
}
_HOME: Shape = _VIEW
_MODAL: Shape = {
    **_VIEW,
    "title": Needed(plain(24)),
    "submit": plain(24),
    "close": plain(24),
    "clear_on_close": boolean,
    "notify_on_close": boolean,
    "submit_disabled": boolean,
}


def elements_of(block: Json) -> list[Json]:
    """Return the elements of a block that people act on."""
    kind = block.get("type")
    if kind == "section":
        accessory = record(block.get("accessory"))
        return [accessory] if accessory and accessory.get("type") != "image" else []
    if kind == "input":
        return [record(block.get("element"))]
    if kind in ("actions", "context_actions"):
        return records(block.get("elements"))
    return []


def with_ids(blocks: object) -> tuple[Json, ...]:
    """Return the blocks with the block and action ids that Slack makes up where there are none."""
    return tuple(_with_ids(block) for block in records(blocks))


def _with_ids(block: Json) -> Json:
    named = {**block, "block_id": block.get("block_id") or secrets.token_hex(3)}
    kind = block.get("type")
    if kind == "section" and record(block.get("accessory")).get("type", "image") != "image":
        named["accessory"] = _with_action_id(record(block["accessory"]))
    if kind == "input":
        named["element"] = _with_action_id(record(block["element"]))
    if kind in ("actions", "context_actions"):
        named["elements"] = [_with_action_id(inner) for inner in records(block["elements"])]
    return named


def _with_action_id(inner: Json) -> Json:
    return {**inner, "action_id": inner.get("action_id") or secrets.token_hex(3)}

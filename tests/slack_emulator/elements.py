"""The elements that blocks are made of, and the limits that Slack sets them.

Source of the limits: the doc comments of Slack's npm package `@slack/types`, and
https://docs.slack.dev/reference/block-kit/block-elements
"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.slack_emulator.shapes import (
    Needed,
    Rule,
    Shape,
    anything,
    boolean,
    both,
    fault,
    listed,
    number,
    one_of,
    shaped,
    string,
    typed,
)
from tests.slack_emulator.wire import record, records, text

ID = string(255)
_SCHEMES = frozenset({"http", "https", "mailto", "slack"})
_PLAIN: Shape = {"text": Needed(string(3000, 1)), "emoji": boolean}


def plain(most: int) -> Rule:
    """Return the rule of a plain text object."""
    return typed({"plain_text": {**_PLAIN, "text": Needed(string(most, 1))}})


def address(value: object, pointer: str) -> Iterator[str]:
    """Judge the address of a button, a link or an image: a whole one, as a browser opens it."""
    yield from string(3000, 1)(value, pointer)
    if not isinstance(value, str) or not value:
        return
    try:
        parts = urlsplit(value)
        whole = parts.scheme in _SCHEMES and bool(parts.hostname or parts.scheme == "mailto")
    except ValueError:
        whole = False
    if not whole or not value.isprintable() or " " in value:
        yield fault("must be a valid URL", pointer)


def any_text(most: int) -> Rule:
    """Return the rule of a text object, plain or mrkdwn."""
    return typed(
        {
            "plain_text": {**_PLAIN, "text": Needed(string(most, 1))},
            "mrkdwn": {"text": Needed(string(most, 1)), "verbatim": boolean},
        }
    )


CONFIRM = shaped(
    {
        "title": Needed(plain(100)),
        "text": Needed(any_text(300)),
        "confirm": Needed(plain(30)),
        "deny": Needed(plain(30)),
        "style": one_of("primary", "danger"),
    }
)

OPTION = shaped(
    {
        "text": Needed(any_text(75)),
        "value": Needed(string(75)),
        "description": any_text(75),
        "url": address,
    }
)

GROUP = shaped({"label": Needed(plain(75)), "options": Needed(listed(OPTION, 100, 1))})


def _initial_is_offered(value: object, pointer: str) -> Iterator[str]:
    element = record(value)
    offered = [*records(element.get("options"))]
    for group in records(element.get("option_groups")):
        offered += records(group.get("options"))
    chosen = records(element.get("initial_options"))
    if element.get("initial_option") is not None:
        chosen.append(record(element["initial_option"]))
    for option in chosen:
        if option not in offered:
            yield fault("initial option must be one of the options", pointer)


def _options_or_groups(value: object, pointer: str) -> Iterator[str]:
    element = record(value)
    if ("options" in element) == ("option_groups" in element):
        yield fault("must have either options or option_groups", pointer)


_COMMON: Shape = {"action_id": ID, "confirm": CONFIRM, "focus_on_load": boolean}
_HINTED: Shape = {**_COMMON, "placeholder": plain(150)}
_MOST = number(1, 100)

_CHOICE: Shape = {
    **_HINTED,
    "options": listed(OPTION, 100, 1),
    "option_groups": listed(GROUP, 100, 1),
}
_EXTERNAL: Shape = {**_HINTED, "min_query_length": number(0, 3000)}
_FEW: Shape = {**_COMMON, "options": Needed(listed(OPTION, 10, 1))}
_TYPED_IN: Shape = {
    "action_id": ID,
    "placeholder": plain(150),
    "initial_value": string(3000),
    "focus_on_load": boolean,
    "dispatch_action_config": anything,
}

BUTTON: Shape = {
    "text": Needed(plain(75)),
    "action_id": ID,
    "url": address,
    "value": string(2000),
    "style": one_of("primary", "danger"),
    "confirm": CONFIRM,
    "accessibility_label": string(75),
}

IMAGE: Shape = {
    "image_url": address,
    "slack_file": anything,
    "alt_text": Needed(string(2000)),
}

SELECTS: dict[str, Shape] = {
    "static_select": {**_CHOICE, "initial_option": OPTION},
    "external_select": {**_EXTERNAL, "initial_option": OPTION},
    "users_select": {**_HINTED, "initial_user": ID},
    "channels_select": {**_HINTED, "initial_channel": ID, "response_url_enabled": boolean},
    "conversations_select": {
        **_HINTED,
        "initial_conversation": ID,
        "default_to_current_conversation": boolean,
        "response_url_enabled": boolean,
        "filter": anything,
    },
    "multi_static_select": {
        **_CHOICE,
        "initial_options": listed(OPTION, 100),
        "max_selected_items": _MOST,
    },
    "multi_external_select": {
        **_EXTERNAL,
        "initial_options": listed(OPTION, 100),
        "max_selected_items": _MOST,
    },
    "multi_users_select": {
        **_HINTED,
        "initial_users": listed(ID, 100),
        "max_selected_items": _MOST,
    },
    "multi_channels_select": {
        **_HINTED,
        "initial_channels": listed(ID, 100),
        "max_selected_items": _MOST,
    },
    "multi_conversations_select": {
        **_HINTED,
        "initial_conversations": listed(ID, 100),
        "max_selected_items": _MOST,
        "default_to_current_conversation": boolean,
        "filter": anything,
    },
}

CHOICES: dict[str, Shape] = {
    "checkboxes": {**_FEW, "initial_options": listed(OPTION, 10, 1)},
    "radio_buttons": {**_FEW, "initial_option": OPTION},
    "datepicker": {**_HINTED, "initial_date": string(10, 10)},
    "timepicker": {**_HINTED, "initial_time": string(5, 5), "timezone": string(100)},
    "datetimepicker": {**_COMMON, "initial_date_time": number(0, 9_999_999_999)},
}

TYPED_IN: dict[str, Shape] = {
    "plain_text_input": {
        **_TYPED_IN,
        "multiline": boolean,
        "min_length": number(0, 3000),
        "max_length": number(1, 3000),
    },
    "number_input": {
        **_TYPED_IN,
        "is_decimal_allowed": Needed(boolean),
        "min_value": string(100),
        "max_value": string(100),
    },
    "email_text_input": _TYPED_IN,
    "url_text_input": _TYPED_IN,
    "rich_text_input": {**_TYPED_IN, "initial_value": anything},
    "file_input": {"action_id": ID, "filetypes": listed(ID, 100), "max_files": number(1, 10)},
}

_OVERFLOW: Shape = {
    "action_id": ID,
    "options": Needed(listed(OPTION, 5, 1)),
    "confirm": CONFIRM,
}

ACTIONS: dict[str, Shape] = {"button": BUTTON, "overflow": _OVERFLOW, **SELECTS, **CHOICES}

_FEEDBACK = shaped(
    {
        "text": Needed(plain(75)),
        "value": Needed(string(2000)),
        "accessibility_label": string(75),
    }
)

CONTEXT_ACTIONS: dict[str, Shape] = {
    "feedback_buttons": {
        "action_id": ID,
        "positive_button": Needed(_FEEDBACK),
        "negative_button": Needed(_FEEDBACK),
    },
    "icon_button": {
        "icon": Needed(ID),
        "text": Needed(plain(75)),
        "action_id": ID,
        "value": string(2000),
        "confirm": CONFIRM,
        "accessibility_label": string(75),
        "visible_to_user_ids": listed(ID, 100),
    },
}


def element(kinds: dict[str, Shape]) -> Rule:
    """Return the rule of an element of one of these kinds."""
    return both(typed(kinds), _choices)


def _choices(value: object, pointer: str) -> Iterator[str]:
    kind = text(record(value).get("type"))
    if kind in ("static_select", "multi_static_select"):
        yield from _options_or_groups(value, pointer)
    if kind in ("static_select", "multi_static_select", "checkboxes", "radio_buttons"):
        yield from _initial_is_offered(value, pointer)

"""What people fill in: the values of a view's or message's elements, as Slack reports them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from tests.slack_emulator.blockkit import elements_of
from tests.slack_emulator.wire import Fields, Json, SlackError, record, records, text, whole

# The options that an external select was last offered, by address and value.
Offered = Mapping[str, Mapping[str, Json]]

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

REQUIRED = "Please complete this required field."


def address(block_id: object, action_id: object) -> str:
    """Return one word for an element, safe in a form's field names."""
    return f"{quote(text(block_id), safe='')}/{quote(text(action_id), safe='')}"


def find(blocks: Sequence[Json], where: str) -> tuple[Json, Json]:
    """Return the block and the element at an address."""
    block_id, _, action_id = (unquote(part) for part in where.partition("/"))
    for block in blocks:
        if block.get("block_id") != block_id:
            continue
        for element in elements_of(block):
            if element.get("action_id") == action_id:
                return block, element
    raise SlackError("action_not_found")


def options_of(element: Json) -> list[Json]:
    """Return all options of an element, those in groups included."""
    options = list(records(element.get("options")))
    for group in records(element.get("option_groups")):
        options += records(group.get("options"))
    return options


def _picked(element: Json, given: Sequence[str], offered: Mapping[str, Json]) -> list[Json]:
    by_value = {text(option.get("value")): option for option in chosen_at_first(element)}
    by_value |= {text(option.get("value")): option for option in options_of(element)}
    by_value.update(offered)
    return [by_value[value] for value in given if value in by_value]


def chosen_at_first(element: Json) -> list[Json]:
    """Return the options that the bot chose beforehand."""
    single = record(element.get("initial_option"))
    return ([single] if single else []) + records(element.get("initial_options"))


# What a kind of element calls its value, where the value is one string.
_ONE_STRING = {
    "users_select": "selected_user",
    "channels_select": "selected_channel",
    "conversations_select": "selected_conversation",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "plain_text_input": "value",
    "email_text_input": "value",
    "url_text_input": "value",
    "number_input": "value",
}
_MANY_STRINGS = {
    "multi_users_select": "selected_users",
    "multi_channels_select": "selected_channels",
    "multi_conversations_select": "selected_conversations",
}
_INITIALS = {
    "users_select": "initial_user",
    "channels_select": "initial_channel",
    "conversations_select": "initial_conversation",
    "datepicker": "initial_date",
    "timepicker": "initial_time",
    "plain_text_input": "initial_value",
    "email_text_input": "initial_value",
    "url_text_input": "initial_value",
    "number_input": "initial_value",
    "multi_users_select": "initial_users",
    "multi_channels_select": "initial_channels",
    "multi_conversations_select": "initial_conversations",
}
_ONE_OPTION = frozenset({"static_select", "external_select", "radio_buttons"})
_MANY_OPTIONS = frozenset({"multi_static_select", "multi_external_select", "checkboxes"})


def has_value(element: Json) -> bool:
    kind = text(element.get("type"))
    known = _ONE_STRING.keys() | _MANY_STRINGS.keys() | _ONE_OPTION | _MANY_OPTIONS
    return kind in known or kind == "datetimepicker"


def initial(element: Json) -> Json:
    """Return the value that an element has before anyone touches it."""
    kind = text(element.get("type"))
    first = element.get(_INITIALS.get(kind, ""))
    if kind in _ONE_STRING:
        return {"type": kind, _ONE_STRING[kind]: first or None}
    if kind in _MANY_STRINGS:
        return {"type": kind, _MANY_STRINGS[kind]: first or []}
    if kind == "datetimepicker":
        return {"type": kind, "selected_date_time": element.get("initial_date_time")}
    return _of_options(kind, chosen_at_first(element))


def _of_options(kind: str, chosen: list[Json]) -> Json:
    if kind in _MANY_OPTIONS:
        return {"type": kind, "selected_options": chosen}
    return {"type": kind, "selected_option": chosen[0] if chosen else None}


def value_of(element: Json, given: Sequence[str], offered: Mapping[str, Json]) -> Json:
    """Return what a person gave, as Slack's `state.values` holds it.

    offered: the options that were suggested to this person; no other can be chosen.
    """
    kind = text(element.get("type"))
    filled = [value for value in given if value]
    first = filled[0] if filled else None
    if kind in _ONE_STRING:
        return {"type": kind, _ONE_STRING[kind]: first}
    if kind in _MANY_STRINGS:
        return {"type": kind, _MANY_STRINGS[kind]: filled}
    if kind == "datetimepicker":
        return {"type": kind, "selected_date_time": _timestamp(first)}
    return _of_options(kind, _picked(element, filled, offered))


def _timestamp(local: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(local or "").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def read_state(blocks: Sequence[Json], fields: Fields, offered: Offered) -> Json:
    """Return `state.values`: block id → action id → value, from the fields of a form."""
    state: Json = {}
    for block in blocks:
        for element in elements_of(block):
            if not has_value(element):
                continue
            where = address(block.get("block_id"), element.get("action_id"))
            given = fields.get(f"v/{where}", ())
            value = value_of(element, given, offered.get(where, {}))
            state.setdefault(text(block["block_id"]), {})[text(element["action_id"])] = value
    return state


def initial_state(blocks: Sequence[Json]) -> Json:
    """Return `state.values` of blocks that nobody has touched."""
    state: Json = {}
    for block in blocks:
        for element in elements_of(block):
            if has_value(element):
                inner = state.setdefault(text(block.get("block_id")), {})
                inner[text(element.get("action_id"))] = initial(element)
    return state


def plain_value(value: Json) -> str | int | list[str]:
    """Return what was filled in without its wrapping: a string, a time stamp, or several."""
    for name, inner in value.items():
        if name == "selected_option":
            return text(record(inner).get("value"))
        if name == "selected_options":
            return [text(option.get("value")) for option in records(inner)]
        if name != "type" and inner is not None:
            return inner
    return ""


def complaints(blocks: Sequence[Json], state: Json) -> dict[str, str]:
    """Return what Slack itself would not let pass, by block id: blanks, lengths, numbers."""
    complaints_by_block: dict[str, str] = {}
    for block in blocks:
        if block.get("type") != "input":
            continue
        block_id = text(block.get("block_id"))
        element = record(block.get("element"))
        value = record(record(state.get(block_id)).get(text(element.get("action_id"))))
        words = _complaint(block, element, plain_value(value))
        if words:
            complaints_by_block[block_id] = words
    return complaints_by_block


def _complaint(block: Json, element: Json, given: str | int | list[str]) -> str:
    if not given:
        return "" if block.get("optional") else REQUIRED
    for check in _CHECKS.get(text(element.get("type")), ()):
        for words in check(element, str(given)):
            return words
    return ""


def _length(element: Json, given: str) -> Iterator[str]:
    least, most = whole(element.get("min_length")), whole(element.get("max_length"), 3000)
    if len(given) < least:
        yield f"Enter at least {least} characters."
    if len(given) > most:
        yield f"Enter at most {most} characters."


def _number(element: Json, given: str) -> Iterator[str]:
    whole_number = re.fullmatch(r"-?\d{1,30}", given)
    decimal = re.fullmatch(r"-?\d{1,30}(\.\d{1,30})?", given)
    if not (decimal if element.get("is_decimal_allowed") else whole_number):
        yield "Enter a number." if element.get("is_decimal_allowed") else "Enter a whole number."
        return
    least, most = text(element.get("min_value")), text(element.get("max_value"))
    if least and float(given) < float(least):
        yield f"Enter {least} or more."
    if most and float(given) > float(most):
        yield f"Enter {most} or less."


def _email(element: Json, given: str) -> Iterator[str]:
    del element
    if not _EMAIL.fullmatch(given):
        yield "Enter an e-mail address."


def _url(element: Json, given: str) -> Iterator[str]:
    del element
    if not re.match(r"https?://[^\s/]+", given):
        yield "Enter a link that begins with http:// or https://."


_CHECKS: Mapping[str, Sequence[Callable[[Json, str], Iterator[str]]]] = {
    "plain_text_input": (_length,),
    "number_input": (_number,),
    "email_text_input": (_email,),
    "url_text_input": (_url,),
}

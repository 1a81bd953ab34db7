"""Buttons, selects and inputs turned to HTML forms that work without scripts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

from tests.slack_emulator.form_values import Offered, address, initial, options_of, plain_value
from tests.slack_emulator.mrkdwn import Names, decoded, link, to_html, with_emoji
from tests.slack_emulator.tags import tag
from tests.slack_emulator.wire import Json, record, records, text, whole


@dataclass(frozen=True)
class Surface:
    """Where blocks are drawn, and for whom.

    key: begins every id on the page. state: what was filled in so far. errors: by block id.
    offered: what external selects were last offered. people, channels: id and name of each.
    live: False draws everything greyed out.
    """

    key: str
    names: Names
    state: Json = field(default_factory=dict[str, object])
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    offered: Offered = field(default_factory=dict[str, Mapping[str, Json]])
    people: Sequence[tuple[str, str]] = ()
    channels: Sequence[tuple[str, str]] = ()
    live: bool = True


@dataclass(frozen=True)
class Control:
    """One element in its block. acts: a change of it is told to the bot at once."""

    block: Json
    element: Json
    surface: Surface

    @property
    def where(self) -> str:
        return address(self.block.get("block_id"), self.element.get("action_id"))

    @property
    def id(self) -> str:
        return f"{self.surface.key}-{self.where}"

    @property
    def acts(self) -> bool:
        return self.block.get("type") != "input" or self.block.get("dispatch_action") is True

    @property
    def kept(self) -> Json:
        """The value as Slack's `state.values` holds it."""
        block_id, action_id = text(self.block.get("block_id")), self.element.get("action_id")
        kept = record(self.surface.state.get(block_id)).get(text(action_id))
        return record(kept) or initial(self.element)

    @property
    def value(self) -> str | int | list[str]:
        return plain_value(self.kept)

    @property
    def chosen(self) -> list[Json]:
        """The options chosen so far, whole."""
        single = record(self.kept.get("selected_option"))
        return ([single] if single else []) + records(self.kept.get("selected_options"))

    @property
    def placeholder(self) -> str:
        return label(self.element.get("placeholder"))

    @property
    def name(self) -> str:
        """What a screen reader calls it, where no visible label does."""
        return label(self.block.get("label")) or self.placeholder or "Choose"

    @property
    def ticked(self) -> bool:
        """Whether it is drawn as a group of boxes, which no single label belongs to."""
        kind = text(self.element.get("type"))
        return kind in ("checkboxes", "radio_buttons") or kind.startswith("multi_")


def label(value: object) -> str:
    """Return a text object as plain words with emoji."""
    return with_emoji(decoded(text(record(value).get("text"))))


def text_object(value: object, names: Names) -> Markup:
    """Return a text object as HTML, plain or mrkdwn."""
    composition = record(value)
    if composition.get("type") == "mrkdwn":
        return to_html(text(composition.get("text")), names)
    lines = label(composition).split("\n")
    return Markup("<br>").join(escape(line) for line in lines)


def draw(control: Control) -> Markup:
    """Return the HTML of one element."""
    kind = text(control.element.get("type"))
    drawer = _DRAWERS.get(kind)
    if drawer is None:
        return tag("span", {"class": "unsupported"}, f"Unsupported element: {kind}")
    return drawer(control)


def _asks_first(element: Json) -> dict[str, str | bool]:
    confirm = record(element.get("confirm"))
    if not confirm:
        return {}
    return {
        "data-confirm": label(confirm.get("text")),
        "data-confirm-title": label(confirm.get("title")),
        "data-confirm-yes": label(confirm.get("confirm")),
        "data-confirm-no": label(confirm.get("deny")),
        "data-confirm-style": text(confirm.get("style")) or "primary",
    }


def _button(control: Control) -> Markup:
    element = control.element
    words = label(element.get("text"))
    style = element.get("style") if element.get("style") in ("primary", "danger") else "plain"
    spoken = text(element.get("accessibility_label"))
    attributes: dict[str, str | bool] = {"class": f"button button-{style}"}
    if spoken:
        attributes["aria-label"] = spoken
    url = text(element.get("url"))
    if url:
        # The link is followed and the click is told, as in Slack.
        return tag("span", {**attributes, "data-press": control.where}, link(url, words))
    pressed = {"type": "submit", "name": "press", "value": control.where, "id": control.id}
    disabled = {"disabled": not control.surface.live}
    return tag("button", {**attributes, **pressed, **disabled, **_asks_first(element)}, words)


def _overflow(control: Control) -> Markup:
    rows = [
        tag(
            "button",
            {
                "type": "submit",
                "name": "press",
                "value": f"{control.where}/{quote(text(option.get('value')), safe='')}",
                "disabled": not control.surface.live,
                **_asks_first(control.element),
            },
            label(option.get("text")),
        )
        for option in options_of(control.element)
    ]
    summary = tag("summary", {"aria-label": "More actions", "class": "button button-plain"}, "⋯")
    return tag("details", {"class": "overflow"}, summary, tag("div", {"class": "menu"}, *rows))


def _apply(control: Control) -> Markup:
    """Return the button that tells the bot of a choice where no script does."""
    if not control.acts:
        return Markup("")
    attributes = {"type": "submit", "name": "press", "value": control.where, "class": "apply"}
    return tag("button", {**attributes, **_asks_first(control.element)}, "Choose")


def _common(control: Control) -> dict[str, str | bool]:
    return {
        "name": f"v/{control.where}",
        "id": control.id,
        "disabled": not control.surface.live,
        "data-act": control.where if control.acts else False,
        **_described(control),
        **(_asks_first(control.element) if control.acts else {}),
    }


def _described(control: Control) -> dict[str, str | bool]:
    block_id = text(control.block.get("block_id"))
    if control.block.get("type") != "input":
        return {"aria-label": control.name}
    wrong = block_id in control.surface.errors
    described = f"{control.id}-error" if wrong else f"{control.id}-hint"
    return {"aria-describedby": described, "aria-invalid": "true" if wrong else "false"}


def _option(value: str, words: str, chosen: str) -> Markup:
    return tag("option", {"value": value, "selected": value == chosen}, words)


def _options(holder: Json, chosen: str) -> list[Markup]:
    return [
        _option(text(option.get("value")), label(option.get("text")), chosen)
        for option in records(holder.get("options"))
    ]


def _static_select(control: Control) -> Markup:
    chosen = str(control.value)
    rows = [tag("option", {"value": ""}, control.placeholder or "Choose an option")]
    rows += _options(control.element, chosen)
    for group in records(control.element.get("option_groups")):
        heading = {"label": label(group.get("label"))}
        rows.append(tag("optgroup", heading, *_options(group, chosen)))
    return tag("select", _common(control), *rows) + _apply(control)


def _listed_select(control: Control, listed: Sequence[tuple[str, str]]) -> Markup:
    chosen = str(control.value)
    rows = [tag("option", {"value": ""}, control.placeholder or "Choose")]
    rows += [_option(value, words, chosen) for value, words in listed]
    return tag("select", _common(control), *rows) + _apply(control)


def _people_select(control: Control) -> Markup:
    return _listed_select(control, control.surface.people)


def _channel_select(control: Control) -> Markup:
    return _listed_select(control, control.surface.channels)


def _external_select(control: Control) -> Markup:
    known = [*control.chosen, *control.surface.offered.get(control.where, {}).values()]
    rows = [tag("option", {"value": ""}, "Nothing chosen")]
    chosen = str(control.value)
    for value, words in _unique(known):
        rows.append(_option(value, words, chosen))
    holder = tag("select", {**_common(control), "class": "holder"}, *rows)
    words = next((words for value, words in _unique(known) if value == chosen), "")
    return _combo(control, words, holder) + _apply(control)


def _unique(options: Sequence[Json]) -> list[tuple[str, str]]:
    by_value = {text(option.get("value")): label(option.get("text")) for option in options}
    return list(by_value.items())


def _combo(control: Control, words: str, holder: Markup) -> Markup:
    search = tag(
        "input",
        {
            "type": "search",
            "name": f"q/{control.where}",
            "value": words,
            "placeholder": control.placeholder or "Type to search",
            "autocomplete": "off",
            "disabled": not control.surface.live,
            "class": "combo-search",
            "id": f"{control.id}-search",
            **_described(control),
            "aria-label": control.name,
        },
    )
    finder = tag(
        "button",
        {"type": "submit", "name": "find", "value": control.where, "class": "apply"},
        "Find",
    )
    several = text(control.element.get("type")).startswith("multi_")
    attributes: dict[str, str | bool] = {
        "class": "combo",
        "data-suggest": control.where,
        "data-least": str(whole(control.element.get("min_query_length"), 3)),
        "data-several": several,
    }
    return tag("div", attributes, search, finder, holder)


def _ticks(control: Control, options: Sequence[Json], kind: str) -> Markup:
    chosen = control.value
    picked = chosen if isinstance(chosen, list) else [str(chosen)]
    common = {key: value for key, value in _common(control).items() if key != "id"}
    rows: list[Markup] = []
    for index, option in enumerate(options):
        value = text(option.get("value"))
        own = {"type": kind, "value": value, "checked": value in picked}
        own["id"] = control.id if index == 0 else f"{control.id}-{index}"
        words = [text_object(option.get("text"), control.surface.names)]
        if option.get("description"):
            about = text_object(option["description"], control.surface.names)
            words.append(tag("small", {}, about))
        rows.append(
            tag(
                "label",
                {"class": "tick"},
                tag("input", {**common, **own}),
                tag("span", {}, *words),
            )
        )
    group = {"class": "ticks", "role": "group", "aria-label": control.name}
    return tag("div", group, *rows)


def _checkboxes(control: Control) -> Markup:
    return _ticks(control, options_of(control.element), "checkbox") + _apply(control)


def _radio(control: Control) -> Markup:
    return _ticks(control, options_of(control.element), "radio") + _apply(control)


def _as_options(listed: Sequence[tuple[str, str]]) -> list[Json]:
    return [
        {"value": value, "text": {"type": "plain_text", "text": words}} for value, words in listed
    ]


def _people_ticks(control: Control) -> Markup:
    return _ticks(control, _as_options(control.surface.people), "checkbox") + _apply(control)


def _channel_ticks(control: Control) -> Markup:
    return _ticks(control, _as_options(control.surface.channels), "checkbox") + _apply(control)


def _multi_external(control: Control) -> Markup:
    offered = control.surface.offered.get(control.where, {}).values()
    known = _as_options(_unique([*control.chosen, *offered]))
    return _combo(control, "", _ticks(control, known, "checkbox")) + _apply(control)


def _typed_in(kind: str) -> Callable[[Control], Markup]:
    def drawn(control: Control) -> Markup:
        attributes: dict[str, str | bool] = {
            **_common(control),
            "placeholder": control.placeholder,
            "autofocus": control.element.get("focus_on_load") is True,
            "autocomplete": "off",
        }
        if control.element.get("max_length"):
            attributes["maxlength"] = str(whole(control.element["max_length"]))
        value = str(control.value)
        if control.element.get("multiline") is True:
            # The parser drops one line break after the tag, so one is given to it.
            return tag("textarea", {**attributes, "rows": "4"}, "\n" + value) + _apply(control)
        return tag("input", {**attributes, "type": kind, "value": value}) + _apply(control)

    return drawn


def _datetime(control: Control) -> Markup:
    stamp = control.value
    value = ""
    if isinstance(stamp, int):
        value = datetime.fromtimestamp(stamp, tz=UTC).strftime("%Y-%m-%dT%H:%M")
    attributes = {**_common(control), "type": "datetime-local", "value": value}
    return tag("input", attributes) + tag("small", {}, "UTC") + _apply(control)


def _feedback(control: Control) -> Markup:
    rows: list[Markup] = []
    for side in ("positive_button", "negative_button"):
        button = record(control.element.get(side))
        value = f"{control.where}/{quote(text(button.get('value')), safe='')}"
        attributes = {"type": "submit", "name": "press", "value": value, "class": "button"}
        rows.append(tag("button", attributes, label(button.get("text"))))
    return Markup("").join(rows)


_DRAWERS: Mapping[str, Callable[[Control], Markup]] = {
    "button": _button,
    "icon_button": _button,
    "feedback_buttons": _feedback,
    "overflow": _overflow,
    "static_select": _static_select,
    "external_select": _external_select,
    "users_select": _people_select,
    "channels_select": _channel_select,
    "conversations_select": _channel_select,
    "multi_static_select": _checkboxes,
    "multi_external_select": _multi_external,
    "multi_users_select": _people_ticks,
    "multi_channels_select": _channel_ticks,
    "multi_conversations_select": _channel_ticks,
    "checkboxes": _checkboxes,
    "radio_buttons": _radio,
    "datepicker": _typed_in("date"),
    "timepicker": _typed_in("time"),
    "datetimepicker": _datetime,
    "plain_text_input": _typed_in("text"),
    "number_input": _typed_in("number"),
    "email_text_input": _typed_in("email"),
    "url_text_input": _typed_in("url"),
}
